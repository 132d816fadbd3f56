"""Partners that break the rules of MS-CMP and MS-DTCO, each alongside one that obeys them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from daemon import eventually
from interop.test_oletx_peer import DONE, LOW, NOT_DONE, Partners
from oletx_peer.peer import Peer, PeerConnection, PeerError
from oletx_peer.wire import BRANCH, CHECKABORT, PROPAGATE, REDELIVERCOMMIT, PeerMessage, encode_boxcar, propagate_body

OTHER = UUID(int=2)
PREPARE = bytes(8)


@pytest.fixture(scope="module")
def here(tmp_path_factory: Any) -> Iterator[Partners]:
    partners = Partners(Path(tmp_path_factory.mktemp("oletx")), LOW)
    yield partners
    partners.close()


@pytest.fixture(autouse=True)
def as_it_was(here: Partners) -> Iterator[None]:
    """Check after each test that a transaction of a well-behaved partner commits."""
    yield
    eventually(lambda: here.left() == NOT_DONE)
    guid = here.begin("push")
    assert here.peer.commit(guid) == "committed"
    eventually(lambda: here.left() == DONE)
    with here.daemon.connect() as manager, manager.open(r".\private$\x") as queue:
        queue.receive(0)
    here.put("old")


def pushed(here: Partners) -> tuple[UUID, PeerConnection]:
    """Create a branch here whose superior is the test itself."""
    guid = uuid4()
    link = here.peer.dial("HERE", PROPAGATE, "PROPAGATE_PROPAGATE", propagate_body(guid, 0x100000, ""))
    assert expected(link) == "PROPAGATE_PROPAGATED"
    here.work(guid)
    return guid, link


def expected(link: PeerConnection) -> str:
    message = link.expect()
    return message.name if message is not None else "nothing"


def prepared(here: Partners) -> tuple[UUID, PeerConnection]:
    guid, link = pushed(here)
    here.peer.send(link, "PREPAREREQ", PREPARE)
    assert expected(link) == "PREPAREREQDONE"
    return guid, link


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ((), ("COMMITREQ", b"")),
        ((("PREPAREREQ", PREPARE),), ("PREPAREREQ", PREPARE)),
        ((), ("PREPAREREQ", bytes(7))),
        ((), ("COMMITREQDONE", b"")),
        ((), (0x7777, b"")),
        ((), ("PROPAGATE_PROPAGATE", bytes(60))),
    ],
    ids=["commit first", "prepare twice", "short prepare", "of the wrong end", "unknown", "propagate twice"],
)
def test_what_a_state_does_not_allow_is_a_protocol_error(here: Partners, first: Any, then: Any) -> None:
    """T7: 2009; the outcome of branches in doubt is requested, and the peer replies that they were aborted."""
    _, link = pushed(here)
    for name, body in first:
        here.peer.send(link, name, body)
        expected(link)
    here.peer.send(link, *then)
    assert expected(link) == "PROTOCOL_ERROR"
    here.peer.end(link)
    eventually(lambda: here.left() == NOT_DONE)


def test_a_repeated_commit_commits_once(here: Partners) -> None:
    guid, link = prepared(here)
    here.peer.send(link, "COMMITREQ")
    here.peer.send(link, "COMMITREQ")
    assert expected(link) in ("COMMITREQDONE", "PROTOCOL_ERROR")
    here.peer.end(link)
    eventually(lambda: here.left() == DONE)
    again = here.peer.dial("HERE", REDELIVERCOMMIT, "REDELIVER_COMMITREQ", guid.bytes_le)
    assert expected(again) == "REDELIVER_COMMITREQDONE"
    here.peer.end(again)
    assert here.left() == DONE
    with here.daemon.connect() as manager, manager.open(r".\private$\x") as queue:
        queue.receive(0)
    here.put("old")


def test_an_abort_that_crosses_the_vote_aborts(here: Partners) -> None:
    """T6."""
    _, link = pushed(here)
    here.peer.send(link, "PREPAREREQ", PREPARE)
    here.peer.send(link, "ABORTREQ")
    answer = expected(link)
    if answer == "PREPAREREQDONE":
        answer = expected(link)
    assert answer == "ABORTREQDONE"
    here.peer.end(link)


def test_phase_zero_is_not_offered(here: Partners) -> None:
    """[MS-DTCO] 3.7.7.5: a subordinate that registers is rejected and may continue."""
    transaction = here.manager.transaction()
    guid = UUID(bytes_le=transaction.uow)
    link = here.peer.dial("HERE", BRANCH, "BRANCHING", guid.bytes_le)
    assert expected(link) == "BRANCHED"
    here.peer.send(link, "PHASE0REGISTER")
    assert expected(link) == "PHASE0REGISTRATIONREJECTED"
    transaction.abort()
    assert expected(link) == "ABORTREQ"
    here.peer.send(link, "ABORTREQDONE")
    here.peer.end(link)


def test_requests_for_an_outcome_are_answered(here: Partners) -> None:
    """T11: unknown, active, committing, aborted."""

    def check(guid: UUID) -> str:
        link = here.peer.dial("HERE", CHECKABORT, "CHECKABORT_CHECK", guid.bytes_le)
        answer = expected(link)
        here.peer.end(link)
        return answer

    assert check(uuid4()) == "CHECKABORT_ABORTED"
    transaction = here.manager.transaction()
    guid = UUID(bytes_le=transaction.uow)
    assert check(guid) == "CHECKABORT_RETRY"
    transaction.abort()
    assert check(guid) == "CHECKABORT_ABORTED"


def test_only_the_superior_can_commit_a_transaction_in_doubt(here: Partners) -> None:
    """T21."""
    guid, link = prepared(here)
    stranger = Peer("OTHER", OTHER, ("127.0.0.1", here.other_port), {"HERE": here.peer.partners["HERE"]})
    other = stranger.dial("HERE", REDELIVERCOMMIT, "REDELIVER_COMMITREQ", guid.bytes_le)
    assert expected(other) == "REDELIVER_RETRY"
    stranger.close()
    assert here.left() == []
    here.peer.send(link, "ABORTREQ")
    assert expected(link) == "ABORTREQDONE"
    here.peer.end(link)


@pytest.mark.parametrize("kind", [0x01, 0x28, 0x05, 0x48])
def test_facets_for_applications_are_denied(here: Partners, kind: int) -> None:
    """[MS-DTCO] 3.4.3, 3.6.3: no remote clients."""
    link = here.peer.dial("HERE", kind)
    assert expected(link) == "nothing"
    denied = [event for event in here.peer.trace if event.name == "CONNECTION_REQ_DENIED"]
    assert "05000780" in str(denied[-1]), "E_ACCESSDENIED"
    here.peer.end(link)


def test_the_name_of_another_partner_gives_no_access(here: Partners) -> None:
    """Deviation D-223: the caller is called back by the name that it gives, which is another partner's."""
    liar = Peer("PEER", UUID(int=3), partners={"HERE": here.peer.partners["HERE"]}, setup_timeout=1.0, retries=1)
    with pytest.raises(PeerError):
        liar.session("HERE", 2.0)
    liar.close()


@pytest.mark.parametrize(
    "boxcar",
    [
        struct.pack("<4I", 0, 0, 48, 1) + bytes(24),
        struct.pack("<4I", 0, 0, 40, 2) + bytes(24),
        encode_boxcar([PeerMessage(0xFFF, 1, 1, 0x2001, b"", 0xFFFFFFFF)]),
        struct.pack("<4I", 0, 0, 40, 0xFFFFFFFF) + bytes(24),
    ],
    ids=["total", "count", "length", "many"],
)
def test_a_malformed_boxcar_ends_only_its_own_session(here: Partners, boxcar: bytes) -> None:
    """T20, deviation D-220."""
    session = here.peer.session("HERE")
    here.peer.send_boxcar(session, boxcar)
    eventually(lambda: here.peer.session("HERE") is not session)


def test_a_connection_beyond_the_quota_is_ignored(here: Partners) -> None:
    """T19: and the session continues."""
    session = here.peer.session("HERE")
    request = [PeerMessage(5, 1, 5000 + n, CHECKABORT) for n in range(300)]
    check = PeerMessage(0xFFF, 1, 5000 + 299, 0x2021, bytes(16))
    here.peer.enqueue(session, *request, check)
    here.peer.flush(session)
    here.peer.enqueue(session, *(PeerMessage(1, 1, 5000 + n, CHECKABORT) for n in range(300)))
    here.peer.flush(session)
    assert here.peer.session("HERE") is session
