"""An inventory as one HTML file, in the console's look: no script, nothing loaded from elsewhere, light and dark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from typing import Any, Final

from openmsmq.admin.inventory import Inventory, InventoryQueue
from openmsmq.admin.inventory_remarks import Remark
from openmsmq.model.look import look_css
from openmsmq.model.text import printable, time_text

_TONES: Final = {"not here": "bad", "to do": "warn", "to know": ""}
_ITEM: Final = re.compile("; (?=[a-z ]+ not learned: )")  # before each but the first of several in one remark
_OWN: Final = """
main { margin: 0 auto; }
tbody td { vertical-align: top; }
.remarks td:nth-child(2) { min-width: 14ch; overflow-wrap: anywhere; }
.remarks td:nth-child(3) { width: 45%; overflow-wrap: anywhere; }
.remarks td:nth-child(4) { width: 33%; }
.remarks .badge { white-space: nowrap; }
@media (max-width: 760px) {
  .remarks thead { display: none; }
  .remarks tr { display: block; padding: 10px 16px; border-top: 1px solid var(--line); }
  .remarks tbody td:nth-child(n) { display: block; width: auto; border: 0; padding: 2px 0; }
  .remarks td:nth-child(4) { color: var(--muted); }
}
@media print { .panel { break-inside: avoid-page; box-shadow: none; } .scroll { overflow: visible; } }
"""


def report(found: Inventory, remarks: Sequence[Remark]) -> str:
    """Return the HTML document."""
    style = look_css() + (resources.files("openmsmq.console") / "static" / "style.css").read_text(encoding="utf-8")
    title = f"Inventory of {_text(found.host)}"
    parts = [
        f'<div class="head"><h1>{title}</h1><span class="badge">{_text(time_text(found.taken))}</span>'
        f'<span class="badge">by {_text(found.source)}</span></div>',
        _tiles(found, remarks),
        _panel("Remarks", ("", "about", "what", "what to do"), [
            (f'<span class="badge {_TONES[each.weight]}">{each.weight}</span>', _text(each.about),
             _ITEM.sub(";<br>", _text(each.said)), _text(each.do))
            for each in remarks
        ], "No remarks.", "remarks"),
        _panel("Queues", _QUEUE_COLUMNS, [_cells(queue) for queue in found.queues], "No queues."),
        _panel("Rights", ("queue", "owner", "rights"), [
            _rights(queue, found.accounts) for queue in found.queues if queue.kind != "system"
        ], "No rights are known."),
        _panel("Outgoing queues", ("destination", "state", "next hops", "#messages", "#not acknowledged"), [
            (_text(each.format_name), _text(each.state), _text(" ".join(each.next_hops)), number(each.messages),
             number(each.unacknowledged))
            for each in found.outgoing
        ], "None."),
        _panel("Transactional senders", ("queue", "queue manager", "last", "#rejected"), [
            (_text(queue.name), _text(sender.queue_manager), _text(time_text(sender.last)), number(sender.rejected))
            for queue in found.queues for sender in queue.senders
        ], "None known."),
        _panel("Protocols", ("protocol", "answer"), [
            (_text(each.name), _text(each.answer or "answers")) for each in found.services
        ], "Not asked."),
    ]  # fmt: skip
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>\n{style}{_OWN}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )


_QUEUE_COLUMNS: Final = (
    "queue", "kind", "transactional", "#messages", "#bytes", "#in the journal", "subqueues", "first message of", "open",
)  # fmt: skip


def yes_no(value: bool | None) -> str:
    return "unknown" if value is None else "yes" if value else "no"


def number(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _text(text: str) -> str:
    return escape(printable(text))


def _cells(queue: InventoryQueue) -> tuple[str, ...]:
    first = time_text(queue.first.sent) if queue.first else ""
    label = queue.definition.get("label") or ""
    name = _text(queue.name) + (f" <small>{_text(label)}</small>" if label else "")
    opened = "" if queue.open is None else yes_no(queue.open)
    return (
        name, queue.kind, yes_no(queue.transactional), number(queue.messages), number(queue.bytes),
        number(queue.journal_messages), _text(", ".join(queue.subqueues)), _text(first), opened,
    )  # fmt: skip


def _rights(queue: InventoryQueue, accounts: dict[str, str]) -> tuple[str, ...]:
    definition = queue.definition
    owner = definition.get("owner") or ""
    lines = [definition["sddl"]] if "sddl" in definition else definition.get("permissions")
    if lines is None:
        return _text(queue.name), "", "unknown"
    return _text(queue.name), _text(_named(owner, accounts)), "<br>".join(_text(_named(e, accounts)) for e in lines)


def _named(text: str, accounts: dict[str, str]) -> str:
    """Replace the SIDs whose names are known."""
    return " ".join(f"{word} ({accounts[word]})" if word in accounts else word for word in text.split(" "))


def _tiles(found: Inventory, remarks: Sequence[Remark]) -> str:
    queues = [queue for queue in found.queues if queue.kind != "system"]
    values: dict[str, int] = {
        "queues": len(queues),
        "messages": sum(queue.messages or 0 for queue in queues),
        "in journals": sum(queue.journal_messages or 0 for queue in queues),
        "dead letters": sum(queue.messages or 0 for queue in found.queues if queue.name.endswith("deadletter")),
        "do not work here": sum(each.weight == "not here" for each in remarks),
        "to do": sum(each.weight == "to do" for each in remarks),
    }
    tiles = [
        f'<div class="tile"><span class="label">{label}</span><span class="value">{value:,}</span></div>'
        for label, value in values.items()
    ]
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _panel(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], empty: str, look: str = "") -> str:
    """Return a table as HTML. Columns whose names begin with # are numbers; cells are HTML. `look` is an additional
    class."""
    body = [
        "<tr>" + "".join(
            f'<td class="n">{cell}</td>' if column.startswith("#") else f"<td>{cell}</td>"
            for column, cell in zip(columns, row, strict=True)
        ) + "</tr>"
        for row in rows
    ]  # fmt: skip
    head = "".join(
        f'<th scope="col"{" class=n" if column.startswith("#") else ""}>{column.lstrip("#")}</th>' for column in columns
    )
    content = (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>\n'
        + "\n".join(body)
        + "\n</tbody></table></div>"
        if body
        else f'<p class="empty">{empty}</p>'
    )
    return f'<section class="panel {look}"><header><h2>{title}</h2></header>{content}</section>'
