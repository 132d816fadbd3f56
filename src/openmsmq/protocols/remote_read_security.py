"""Protection that RemoteRead requires of its callers ([MS-MQRR] 3.1.4.2, 3.1.4.11 and 5.1; notes 19, 26 and 38).

A client sets fWorkgroup if it is not in a domain and so cannot be authenticated. Windows lets such clients read without
authentication if its registry allows it: values of HKLM\\Software\\Microsoft\\MSMQ\\Parameters\\security, here as in
Windows Vista and later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RemoteReadSecurity:
    """Settings that waive the requirement. The default of all is off, as on Windows.

    Attributes:
        allow_nonauthenticated_rpc: AllowNonauthenticatedRpc: waived for clients in a workgroup.
        deny_workgroup_client: NewRemoteReadServerDenyWorkgroupClient: cancels the former setting.
        allow_none_security_client: NewRemoteReadServerAllowNoneSecurityClient: waived for all clients, on queues that
            Anonymous Logon may peek at or receive from.
    """

    allow_nonauthenticated_rpc: bool = False
    deny_workgroup_client: bool = False
    allow_none_security_client: bool = False

    @property
    def serves_workgroups(self) -> bool:
        """Deviation D-32 from note 19, which requires `any of` fWorkgroup and the absence of the value that denies
        workgroup clients. Taken literally, fWorkgroup would matter only if workgroup clients are denied, and would
        admit them."""
        return self.allow_nonauthenticated_rpc and not self.deny_workgroup_client

    @property
    def is_negotiated(self) -> bool:
        """Whether the required level depends on the opened queue and the caller."""
        return self.serves_workgroups or self.allow_none_security_client

    def waives(self, workgroup: bool, open_to_anonymous: Callable[[], bool]) -> bool:
        """Whether the requirement is waived for a queue being opened, so that level NONE is sufficient for its
        reader."""
        return (self.serves_workgroups and workgroup) or (self.allow_none_security_client and open_to_anonymous())
