"""Remarks on an inventory before a move: unsupported features, required steps, and notes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, NamedTuple

from openmsmq.admin.account_names import Accounts, mapped, unknown
from openmsmq.admin.definitions import DEFINED, Document
from openmsmq.admin.definitions_schema import FORMAT, DefinitionsError
from openmsmq.admin.inventory import UNLISTED, Inventory, InventoryOutgoing, InventoryQueue
from openmsmq.model.constants import INFINITE
from openmsmq.model.text import counted

Weight = Literal["not here", "to do", "to know"]
_MANY: Final = 1000  # messages in a journal that is probably not read


class Remark(NamedTuple):
    """A remark. `about` is a queue or `the machine`; `weight` says whether it is unsupported here, a required step, or
    a note."""

    weight: Weight
    about: str
    said: str
    do: str


#: Destinations that this queue manager cannot send to, by prefix of the format name.
_DESTINATIONS: Final = (
    ("MULTICAST=", "a multicast address", "give the receivers queues of their own, and send to each of them"),
    ("DIRECT=HTTP://", "a queue by HTTP", "send by DIRECT=OS: or DIRECT=TCP: instead; port 1801 must be open"),
    ("DIRECT=HTTPS://", "a queue by HTTPS", "send by DIRECT=OS: or DIRECT=TCP: instead; port 1801 must be open"),
    ("DIRECT=SPX:", "a queue by IPX", "send by DIRECT=OS: or DIRECT=TCP: instead"),
)


def _destination(format_name: str) -> tuple[str, str] | None:
    """Return the first destination in a format name that cannot be reached from here, and the remedy; None if all
    can."""
    for element in format_name.upper().split(","):
        for begin, what, do in _DESTINATIONS:
            if element.strip().startswith(begin):
                return what, do
    return None


class _Check(NamedTuple):
    """A condition of a queue: `said` returns its description, empty if it does not apply."""

    weight: Weight
    said: Callable[[InventoryQueue], str]
    do: str


def _property(name: str) -> Callable[[InventoryQueue], Any]:
    return lambda queue: queue.definition.get(name)


def _journal(queue: InventoryQueue) -> str:
    """Describe a journal that is probably not read; empty if there is none."""
    count = queue.journal_messages or 0
    if not count or count < max(_MANY, queue.messages or 0):
        return ""
    unlimited = queue.definition.get("journal_quota") == INFINITE
    return f"its journal has {counted(count, 'message')}{' and no quota' if unlimited else ''}"


def _response(queue: InventoryQueue) -> str:
    name = queue.first.response_queue if queue.first else ""
    found = _destination(name)
    return f"its first message requests replies to {found[0]}: {name}" if found else ""


def _unlearned(queue: InventoryQueue) -> str:
    return "; ".join(f"{each.item} not learned: {each.reason}" for each in queue.not_learned)


#: In display order.
_CHECKS: Final = (
    _Check(
        "not here", lambda q: f"it takes what is sent to {q.definition['multicast_address']}"
        if _property("multicast_address")(q) else "",
        "there is no multicast here: let senders name the queue",
    ),
    _Check("not here", _response, "change the requests: answers go to DIRECT=OS: or DIRECT=TCP: names"),
    _Check(
        "not here", lambda q: "it is a connector queue, or a queue of a foreign system" if q.foreign else "",
        "its connector program has to run here, with the setting FOREIGN; try it before the move",
    ),
    _Check(
        "not here", lambda q: "its first message comes from a connector" if q.first and q.first.connector else "",
        "find out which program translates these messages, and whether it will stay in use",
    ),
    _Check(
        "to do", lambda q: "it takes signed messages only" if _property("authenticate")(q) else "",
        "register the certificates of its senders here: openmsmq certificates register",
    ),
    _Check(
        "to do", lambda q: "it takes encrypted messages only" if _property("priv_level")(q) == 2 else "",
        "senders need the public key of this machine: openmsmq keys",
    ),
    _Check(
        "to do", lambda q: f"it has {counted(len(q.subqueues), 'subqueue')}: {', '.join(q.subqueues[:5])}"
        if q.subqueues else "",
        "relays carry the queue itself: let programs empty the subqueues, or move their messages back into the queue",
    ),
    _Check("to do", _journal, "fetch it (adopt shadow 'QUEUE;journal') or purge it; then give it a quota or a reader"),
    _Check(
        "to do", lambda q: "its messages will be dropped with the machine" if q.kind == "system" and q.messages else "",
        "look at them; what is wanted comes by openmsmq adopt shadow, with this name",
    ),
    _Check(
        "to do", lambda q: "it is a public queue" if q.kind == "public" else "",
        "it moves in the directory: create it here, and delete it there",
    ),
    _Check(
        "to do", lambda q: f"{counted(len({s.queue_manager for s in q.senders}), 'queue manager')} sent transactional "
        f"messages to it, of which {sum(s.rejected for s in q.senders):,} were rejected"
        if any(s.rejected for s in q.senders) else "",
        "find out why messages arrive out of order or twice before the move",
    ),
    _Check(
        "to know", lambda q: "transactional messages come from "
        f"{counted(len({s.queue_manager for s in q.senders}), 'queue manager')}"
        if q.senders and not any(s.rejected for s in q.senders) else "",
        "let these senders rest between adopt switch and 'nothing left', or their order is lost",
    ),
    _Check("to do", _unlearned, "log in as a user with these rights, or run tools/windows/Export-Msmq.ps1 there"),
)  # fmt: skip


def remarks(found: Inventory) -> list[Remark]:
    """Return the remarks by decreasing weight; those about the machine first, then by queue."""
    found_remarks = [*_of_machine(found)]
    for queue in found.queues:
        checks = ((check, check.said(queue)) for check in _CHECKS)
        found_remarks += [Remark(check.weight, queue.name, text, check.do) for check, text in checks if text]
    for outgoing in found.outgoing:
        found_remarks += _of_outgoing(outgoing)
    weights = ("not here", "to do", "to know")
    return sorted(found_remarks, key=lambda remark: weights.index(remark.weight))


def _of_machine(found: Inventory) -> Iterator[Remark]:
    for each in found.not_learned:
        yield Remark("to do", "the machine", f"{each.item} not learned: {each.reason}",
                     _DIRECTORY if each.item == UNLISTED else _AT_THE_MACHINE)  # fmt: skip
    for service in found.services:
        if service.answer:
            yield Remark("to do", "the machine", f"{service.name} does not answer: {service.answer}", _SERVICE)
    for account, queues in unknown([queue.definition for queue in found.queues]).items():
        known = found.accounts.get(account)
        name = f"account {account}{f' ({known})' if known else ''}"
        yield Remark(
            "to do", "the machine", f"{name} is of that machine or its domain; {_named(queues)}",
            "say in the file of --accounts what it is called here",
        )  # fmt: skip
    yield Remark(
        "to know", "the machine", "triggers, rules and programs that start with messages are not visible",
        "look for the service Message Queuing Triggers there (Get-Service MSMQTriggers)",
    )  # fmt: skip


_AT_THE_MACHINE: Final = (
    "ask its automation objects (--by com), or run tools/windows/Export-Msmq.ps1 there and read its file (--file)"
)
_DIRECTORY: Final = "let this machine's directory list them (--directory), if that machine has public queues"
_SERVICE: Final = "look at its firewall, and at the registry values in docs/moving.md"


def _named(queues: list[str]) -> str:
    return f"{counted(len(queues), 'queue')} named: {', '.join(queues[:3])}{', …' if len(queues) > 3 else ''}"


def _of_outgoing(queue: InventoryOutgoing) -> Iterator[Remark]:
    about = f"outgoing {queue.format_name}"
    found = _destination(queue.format_name)
    if found is not None:
        yield Remark("not here", about, f"programs there send to {found[0]}", found[1])
    if queue.foreign:
        yield Remark("not here", about, "it leads to a foreign system", "find out which program is the connector")
    if queue.messages or queue.unacknowledged:
        yield Remark(
            "to do", about,
            f"waiting: {counted(queue.messages or 0, 'message')}; not acknowledged: {queue.unacknowledged or 0:,}; "
            f"state: {queue.state or 'unknown'}",
            "leave that machine running until they are sent; they do not come here",
        )  # fmt: skip


# -- a document of definitions -------------------------------------------------------------------------------------


class InventoryDefinitions(NamedTuple):
    """A document for `openmsmq definitions import`, and the queues left out: name -> reason."""

    document: Document
    left_out: dict[str, str]


def definitions_of(found: Inventory, accounts: Accounts) -> InventoryDefinitions:
    """Return the definitions of the private queues, with their accounts replaced by those of this machine.

    A queue is left out if its rights, or whether it is transactional, are unknown. It would be created differently, and
    other users could access it."""
    queues, left_out = [], {}
    for queue in found.queues:
        definition = {key: value for key, value in queue.definition.items() if key in _KEPT and value is not None}
        if queue.kind != "private":
            if queue.kind == "public":
                left_out[queue.name] = "it is a public queue: create it in the directory"
        elif "transactional" not in definition:
            left_out[queue.name] = "it is not known whether it is transactional"
        elif not definition.keys() & {"permissions", "sddl"}:
            left_out[queue.name] = "its rights are not known"
        else:
            try:
                queues.append(mapped(definition, accounts))
            except DefinitionsError as error:
                left_out[queue.name] = str(error)
    return InventoryDefinitions({"format": FORMAT, "queues": queues}, left_out)


_KEPT: Final = frozenset(["name", "owner", "permissions", "sddl", *DEFINED])
