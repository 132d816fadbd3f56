"""Migration of a data directory into a domain."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from daemon import Daemon
from openmsmq.server import domain_migration
from openmsmq.server.identity import identifier_in
from openmsmq.store import Store


def test_the_queue_manager_has_a_new_identifier_and_is_known_by_the_former_ones(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert not domain_migration.is_used(data)
    names = []
    with Daemon(data, "--computer-name", "MQ1") as first, first.connect() as manager:
        manager.create_queue(r".\private$\kept")
        manager.create_queue(r".\listed")
        names.append(manager.format_name(r".\private$\kept"))
        listed = UUID(manager.format_name(r".\listed").removeprefix("PUBLIC="))
        with manager.open(names[0], "send") as queue:
            queue.send(b"of before", recoverable=True)
        with manager.open(r"DIRECT=OS:elsewhere\private$\q", "send") as queue:
            queue.send(b"waits", recoverable=True)
    assert domain_migration.is_used(data)
    for number in range(2):
        identifier, public = uuid4(), uuid4()
        store = Store.open(data / "store")
        try:
            contents = domain_migration.contents_of(store)
            assert contents is not None
            assert contents.outgoing == {r"DIRECT=OS:elsewhere\private$\q": 1}
            (definition,) = contents.public
            assert contents.public[definition].instance == listed.bytes_le
            domain_migration.move(store, contents, identifier, {definition: public})
            assert identifier_in(store) == identifier.bytes_le
        finally:
            store.close()
        listed = public
        with (
            Daemon(data, "--computer-name", "MQ1", "--directory-provider", "none") as moved,
            moved.connect() as manager,
        ):
            assert UUID(str(manager.machine_id)) == identifier
            names.append(manager.format_name(r".\private$\kept"))
            assert len(set(names)) == number + 2
            for name in names:  # every name that it ever had
                with manager.open(name, "peek", protocol="qmcomm") as queue:
                    assert queue.peek(5).body == b"of before"
            manager.open(f"PUBLIC={public}", "send").close()


def test_a_store_that_nobody_has_used_has_nothing_to_move(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    try:
        assert domain_migration.contents_of(store) is None
    finally:
        store.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_files_written_by_root_belong_to_the_owner_of_the_data_directory(tmp_path: Path) -> None:
    data, nobody = tmp_path / "data", 65534
    Store.open(data / "store").close()
    os.chown(data, nobody, nobody)
    domain_migration.give_to_owner(data)
    files = list((data / "store").rglob("*"))
    assert files and {(path.stat().st_uid, path.stat().st_gid) for path in files} == {(nobody, nobody)}
