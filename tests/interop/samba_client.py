"""Samba's DCE/RPC client as a separate process, run by the interpreter that Debian's python3-samba is installed for.

    /usr/bin/python3 samba_client.py mgmt|epmapper|nothing BINDING [USER PASSWORD]

USER may be a ticket cache, such as FILE:/tmp/krb5cc_0; the password is then ignored.

Each line on standard input is a request in JSON, each line on standard output its response: `{"value": ...}`, or
`{"error": text, "status": NTSTATUS}` for Samba's exceptions. The first response tells whether the connection was made.
No code of the product is imported here.

The connection starts with an interface that Samba has a description of; alter_context adds every other one. It may
start with `nothing`, that is, with the first request, but not with a user: Samba 4.17 and 4.22 then look up the
authentication services of an unknown interface, and crash.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from samba import NTSTATUSError, credentials, param
from samba.dcerpc import base, epmapper, mgmt, misc
from samba.ndr import ndr_unpack

DOMAIN, REALM = "WORKGROUP", "RIG.TEST"
NDR = "8a885d04-1ceb-11c9-9fe8-08002b104860"


class Client:
    """One connection."""

    def __init__(self, binding: str, user: str = "", password: str = "") -> None:
        self.binding = binding
        self.settings = param.LoadParm()
        self.credentials = credentials.Credentials()
        if user.startswith("FILE:"):
            self.settings.set("realm", REALM)
            self.credentials.set_kerberos_state(credentials.MUST_USE_KERBEROS)
            self.credentials.set_named_ccache(user, credentials.SPECIFIED, self.settings)
        elif user:
            self.credentials.set_kerberos_state(credentials.DONT_USE_KERBEROS)
            of, _, name = user.rpartition("\\")
            self.credentials.set_domain(of or DOMAIN)
            self.credentials.set_workstation("SAMBA")
            self.credentials.set_username(name)
            self.credentials.set_password(password)
        else:
            self.credentials.set_anonymous()
        self.first: Any = None
        self.interfaces: dict[tuple[str, int], Any] = {}

    def begin(self, interface: str) -> None:
        if interface != "nothing":
            kind = {"mgmt": mgmt.mgmt, "epmapper": epmapper.epmapper}[interface]
            self.first = kind(self.binding, self.settings, self.credentials)

    def request(self, uuid: str, version: int, opnum: int, stub: str, target: str | None) -> str:
        key = uuid, version
        if key not in self.interfaces:
            # With credentials, Samba 4.22 opens a second connection in a new association group; without, it
            # alters the context of the first connection, as 4.17 does in both cases.
            way = {"credentials": self.credentials} if self.first is None else {"basis_connection": self.first}
            self.interfaces[key] = base.ClientConnection(self.binding, key, self.settings, **way)
            self.first = self.first or self.interfaces[key]
        data = bytes.fromhex(stub)
        connection = self.interfaces[key]
        answer = connection.request(opnum, data, target) if target else connection.request(opnum, data)
        return bytes(answer).hex()

    # -- the management interface --------------------------------------------------------------------------------

    def interface_ids(self) -> list[list[Any]]:
        return [[str(i.id.uuid), i.id.if_version] for i in self.first.inq_if_ids().if_id]

    def statistics(self) -> list[int]:
        return list(self.first.inq_stats(4, 0).statistics)

    def principal_name(self, service: int, room: int) -> str:
        return str(self.first.inq_princ_name(service, room))

    def listening(self) -> list[int]:
        """Return the error status and whether the server listens."""
        return list(self.first.is_server_listening())

    def stop_listening(self) -> None:
        self.first.stop_server_listening()

    # -- the endpoint mapper -------------------------------------------------------------------------------------

    def lookup(self, page: int) -> list[list[Any]]:
        """Return the whole endpoint map, read in pages."""
        handle, found = misc.policy_handle(), []
        while True:
            handle, entries, status = self.first.epm_Lookup(0, None, None, 0, handle, page)
            if status:
                return found
            for entry in entries:
                found.append([entry.annotation, *_tower(entry.tower.tower)])
            if handle.uuid == misc.GUID():
                return found

    def map(self, uuid: str, version: int) -> list[list[Any]]:
        """Return where an interface is served."""
        _, towers, status = self.first.epm_Map(None, _asked(uuid, version), misc.policy_handle(), 4)
        if status:
            raise RuntimeError(f"ept_map: {status:#x}")
        return [_tower(found.twr.tower) for found in towers if found.twr is not None]


def _asked(uuid: str, version: int) -> epmapper.epm_twr_t:
    """Return a tower with open ports (C706 Appendix L) as in NDR: size, length, octets."""
    floors = (
        (b"\x0d" + _octets(uuid) + version.to_bytes(2, "little"), bytes(2)),
        (b"\x0d" + _octets(NDR) + b"\x02\0", bytes(2)),
        (b"\x0b", bytes(2)),
        (b"\x07", bytes(2)),
        (b"\x09", bytes(4)),
    )
    sides = [side for floor in floors for side in floor]
    octets = b"\x05\0" + b"".join(len(side).to_bytes(2, "little") + side for side in sides)
    size = len(octets).to_bytes(4, "little")
    return ndr_unpack(epmapper.epm_twr_t, size + size + octets)


def _octets(uuid: str) -> bytes:
    parts = uuid.split("-")
    return b"".join(bytes.fromhex(p)[::-1] for p in parts[:3]) + bytes.fromhex("".join(parts[3:]))


def _tower(tower: epmapper.epm_tower) -> list[Any]:
    interface = tower.floors[0].lhs
    syntax = ndr_unpack(misc.ndr_syntax_id, interface.lhs_data + bytes(20 - len(interface.lhs_data)))
    return [str(syntax.uuid), syntax.if_version, tower.floors[3].rhs.port, tower.floors[4].rhs.ipaddr]


def _answer(act: Any, *arguments: Any) -> None:
    try:
        answer = {"value": act(*arguments)}
    except NTSTATUSError as error:
        answer = {"error": error.args[1], "status": error.args[0]}
    except RuntimeError as error:  # a Win32 error of the management interface is raised as this one
        answer = {"error": str(error.args), "status": error.args[0] if isinstance(error.args[0], int) else 0}
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    client = Client(*sys.argv[2:])
    _answer(client.begin, sys.argv[1])
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        _answer(getattr(client, name), *arguments)
    # Exit without destroying Samba's objects, which need an order that Python does not know.
    os._exit(0)
