"""Which protection RemoteRead demands of its callers ([MS-MQRR] 3.1.4.2, 3.1.4.11 and 5.1; notes 19, 26 and 38).

A client says in fWorkgroup whether it is outside of any domain, and then has nobody who could vouch for it. Windows
lets such clients read without authentication where its registry says so; these are the values of
HKLM\\Software\\Microsoft\\MSMQ\\Parameters\\security, in the behavior of Windows Vista and later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RemoteReadSecurity:
    """When the demand is waived. All values are off on Windows, and here.

    allow_nonauthenticated_rpc: AllowNonauthenticatedRpc: for clients in a workgroup.
    deny_workgroup_client: NewRemoteReadServerDenyWorkgroupClient: not even then.
    allow_none_security_client: NewRemoteReadServerAllowNoneSecurityClient: for everybody, on a queue that Anonymous
        Logon may peek or receive from.
    """

    allow_nonauthenticated_rpc: bool = False
    deny_workgroup_client: bool = False
    allow_none_security_client: bool = False

    @property
    def serves_workgroups(self) -> bool:
        """Deviation D-32 from note 19: it asks for `any of` fWorkgroup and the absence of the value that denies
        workgroup clients. Taken literally, fWorkgroup would matter only where workgroup clients are denied, and let
        them in."""
        return self.allow_nonauthenticated_rpc and not self.deny_workgroup_client

    @property
    def is_negotiated(self) -> bool:
        """Whether the required level depends on the opened queue and the caller."""
        return self.serves_workgroups or self.allow_none_security_client

    def waives(self, workgroup: bool, open_to_anonymous: Callable[[], bool]) -> bool:
        """Whether a queue is opened without the demand: from now on the level of its reader is NONE or better."""
        return (self.serves_workgroups and workgroup) or (self.allow_none_security_client and open_to_anonymous())
