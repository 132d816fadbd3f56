"""Another IDL compiler, Wine's, finds the same procedures in the same IDL."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from idl_files import DIRECTORIES, SOURCES, idl_files
from msrpc.idl.wiretypes import InterfaceType
from requirements import program

# It does not accept the IDL of [MS-DCOM] 6 and [MS-OAUT] 6 as published, which these include; ENDS counts their
# procedures.
REFUSED = {"com.idl", "mc-mqac.idl", "ms-dcom.idl", "ms-oaut.idl"}


def _header(path: Path, target: Path) -> str:
    header = target / "out.h"
    widl = program("x86_64-w64-mingw32-widl", "make widl")
    command = [widl, "-h", "-H", str(header), *(f"-I{directory}" for directory in DIRECTORIES), str(path)]
    done = subprocess.run(command, cwd=target, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return header.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", [path for path in idl_files() if path.name not in REFUSED], ids=lambda path: path.name)
def test_a_second_compiler_finds_the_same_procedures_in_the_same_order(path: Path, tmp_path: Path) -> None:
    header = _header(path, tmp_path)
    for interface in SOURCES.compile(path.name).interfaces:
        guard = rf"#define __{interface.name}_INTERFACE_DEFINED__(.*?)#endif +/\* __{interface.name}_INTERFACE"
        body = re.search(guard, header, re.DOTALL)
        assert body is not None, interface.name
        found = re.findall(r"^\S.*? __cdecl (\w+)\(", body[1], re.MULTILINE)
        assert found == [operation.name for operation in interface.operations]


def test_every_interface_has_its_published_number_of_procedures() -> None:
    counts = {
        i.name: len(i.operations) for path in idl_files() for i in SOURCES.compile(path.name).interfaces if not i.base
    }
    published = {"qmcomm": 35, "qmcomm2": 4, "qmmgmt": 2, "qm2qm": 11, "RemoteRead": 16, "ept": 7, "mgmt": 5}
    published["IXnRemote"] = 8
    published |= {"IActivation": 1, "IRemoteSCMActivator": 5, "IObjectExporter": 6, "IUnknown": 3}
    own = {"pac": 1}  # pac only declares a structure; it is not a network interface
    assert counts == published | own


# The opnum after the last one ([MC-MQAC] 3, [MS-DCOM] 3.1.1.5.6, [MS-OAUT] 3).
ENDS = {
    "IMSMQQuery": 8, "IMSMQQuery2": 9, "IMSMQQuery4": 10, "IMSMQMessage": 56, "IMSMQMessage2": 82, "IMSMQMessage4": 98,
    "IMSMQQueue": 20, "IMSMQQueue2": 26, "IMSMQQueue3": 39, "IMSMQQueue4": 40, "IMSMQPrivateEvent": 10,
    "IMSMQEvent": 7, "IMSMQEvent3": 8, "IMSMQQueueInfo": 37, "IMSMQQueueInfo2": 41, "IMSMQQueueInfo4": 46,
    "IMSMQQueueInfos": 9, "IMSMQQueueInfos4": 10, "IMSMQTransaction": 10, "IMSMQTransaction2": 12,
    "IMSMQTransaction3": 13, "IMSMQCoordinatedTransactionDispenser3": 9, "IMSMQTransactionDispenser": 8,
    "IMSMQApplication": 8, "IMSMQApplication2": 15, "IMSMQApplication3": 25, "IMSMQDestination": 21,
    "IMSMQPrivateDestination": 9, "IMSMQCollection": 10, "IMSMQManagement": 16, "IMSMQOutgoingQueueManagement": 22,
    "IMSMQQueueManagement": 19, "ITransaction": 6, "IConnectionPoint": 8, "IConnectionPointContainer": 5,
    "IEnumConnections": 7, "IEnumConnectionPoints": 7, "IRemUnknown": 6, "IRemUnknown2": 7, "IDispatch": 7,
    "IEnumVARIANT": 7, "ITypeInfo": 22, "ITypeLib": 13,
}  # fmt: skip


def test_interfaces_of_objects_end_at_their_published_opnum() -> None:
    found = {
        i.name: i.first_opnum + len(i.operations)
        for name in ("ms-dcom.idl", "ms-oaut.idl", "mc-mqac.idl")
        for i in SOURCES.compile(name).interfaces
    }
    assert {name: found[name] for name in ENDS} == ENDS


def test_the_automation_objects_are_15_classes_with_676_members() -> None:
    library = SOURCES.compile("mc-mqac.idl")
    assert len(library.coclasses) == 15
    assert sum(_members(i) for i in library.interfaces if i.name.startswith("IMSMQ")) == 676


def _members(interface: InterfaceType | None) -> int:
    return 0 if interface is None else len(interface.members or []) + _members(interface.base)
