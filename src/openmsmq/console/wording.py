"""Template filters that format values: times, ages, sizes, names.

A filter that returns Markup has escaped untrusted text, after `printable` has made its control characters visible.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec
from markupsafe import Markup, escape

from openmsmq.actions.alarms import KnownAlarm
from openmsmq.actions.queues import QueueView
from openmsmq.admin.alarms import BY_NAME, figure_text
from openmsmq.admin.series import shown as figure
from openmsmq.model.names import is_format_name
from openmsmq.model.remedies import RemedyStep
from openmsmq.model.rights import QUEUE_RIGHTS
from openmsmq.model.text import counted, duration_text, is_visible, printable, printable_json, time_text

_NAME: Final = 44  # characters of a name in a list
_TAIL: Final = 20  # of these, kept at the end
_UNITS: Final = ("B", "kB", "MB", "GB", "TB")
_BAR: Final = 92  # width of the bar of a quota
#: Kinds of queues whose names begin with the name of this machine.
_LOCAL: Final = ("queue", "subqueue", "journal")
#: State of an outgoing queue -> style of its badge.
_OUTGOING: Final = {"CONNECTED": "good", "ONHOLD": "warn", "WAITING": "bad", "DISCONNECTED": "bad", "LOCKED": "warn"}
_NO_REFERENCE: Final = ("\n", "\0", *map(chr, range(0x80, 0xA0)))
_RIGHTS: Final = {
    "FullControl": "do everything", "ReceiveMessage": "receive messages",
    "ReceiveJournalMessage": "receive from the journal", "DeleteMessage": "delete messages",
    "PeekMessage": "read messages", "WriteMessage": "send messages",
    "DeleteJournalMessage": "delete from the journal", "SetQueueProperties": "change settings",
    "GetQueueProperties": "see settings", "DeleteQueue": "delete the queue", "GetQueuePermissions": "see rights",
    "ChangeQueuePermissions": "change rights", "TakeQueueOwnership": "become the owner",
}  # fmt: skip
assert set(_RIGHTS) == {right.word for right in QUEUE_RIGHTS}
#: Alarm -> text and style of its badge, the page that helps (empty: the page of the queue), and the text of the link.
_ATTENTION: Final = {
    "disk": ("disk", "bad", "/alarms", "What to do"), "quota": ("quota", "bad", "", "Open queue"),
    "sync": ("slow disk", "warn", "/alarms", "What to do"),
    "deadletters": ("dead letters", "bad", "/deadletters", "See why"), "oldest": ("waiting", "warn", "", "Open queue"),
    "outgoing": ("outgoing", "warn", "/outgoing", "See why"),
    "indoubt": ("in doubt", "bad", "/transactions", "What to do"),
    "relay": ("move stands still", "bad", "/moves", "See why"),
    "refused": ("messages refused", "warn", "/moves", "See why"),
    "peer": ("machine away", "bad", "/moves", "See why"),
}  # fmt: skip


def shown(value: Any) -> Any:
    """Make invisible characters visible; applied to every expression of every template except those with `exact`."""
    return printable(value, multiline=True) if isinstance(value, str) and not isinstance(value, Markup) else value


def exact(value: Any) -> Markup:
    """Escape the value of a form field, so that the browser sends exactly this value back. Invisible characters become
    character references, except those that HTML lacks references for (NUL, U+0080 to U+009F)."""
    text = str(escape(value))
    if text.isprintable():
        return Markup(text)
    return Markup("".join(c if is_visible(c) or c in _NO_REFERENCE else f"&#{ord(c)};" for c in text))


def exact_time(seconds: int | None) -> str:
    """Format a time as `2026-11-22 12:00:00 UTC`; empty for 0 and None."""
    return time_text(seconds) if seconds else ""


def when(seconds: int | None, now: float | None = None) -> Markup:
    """Format a time in UTC, with the date unless it is today; the exact time on hover. Empty for 0 and None."""
    if not seconds:
        return Markup()
    at = datetime.fromtimestamp(seconds, UTC)
    today = datetime.fromtimestamp(time.time() if now is None else now, UTC).date()
    text = at.strftime("%H:%M:%S" if at.date() == today else "%Y-%m-%d %H:%M")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(at.isoformat(), time_text(seconds), text)


def age(seconds: float) -> str:
    """Format a duration: `4 s`, `2 min 3 s`, `3 h 5 min`, `2 d 4 h`."""
    return duration_text(seconds)


def since(seconds: int) -> str:
    """Format the time since `seconds` (since 1970)."""
    return age(time.time() - seconds)


def size(count: int) -> str:
    """Format a number of bytes: `640 B`, `1.2 kB`, `67 GB`."""
    value, step = float(count), 0
    while value >= 1000 and step < len(_UNITS) - 1:
        value, step = value / 1000, step + 1
    return f"{value:.0f} {_UNITS[step]}" if step == 0 or value >= 100 else f"{value:.1f} {_UNITS[step]}"


def signed(number: int) -> str:
    """Format a number with its sign: `+143`, `0`, `-12`."""
    return f"{number:+,}" if number else "0"


def short(text: str, most: int = _NAME) -> str:
    """Shorten a text to `most` characters by leaving out the middle."""
    text = printable(text)
    return text if len(text) <= most else f"{text[: most - _TAIL - 1]}…{text[-_TAIL:]}"


def called(queue: QueueView) -> str:
    """Return the name of a queue, for local queues without the machine name."""
    return queue.name.partition("\\")[2] or queue.name if queue.kind in _LOCAL else queue.name


def traits(queue: QueueView) -> str:
    """Return the traits of a queue in words."""
    place = "private" if "private$" in queue.name.lower() else "public"
    found: list[str] = [place if queue.kind == "queue" else queue.kind]
    found += ["transactional"] if queue.transactional else []
    found += ["keeps a journal"] if queue.journaling else []
    return " · ".join(found)


def states(queue: QueueView) -> list[tuple[str, str]]:
    """Return the badges of a queue: style and text of each."""
    found = []
    if queue.state:
        waits = queue.state in ("CONNECTED", "ONHOLD") or queue.messages
        found.append((_OUTGOING.get(queue.state, "") if waits else "", queue.state))
    if queue.kind == "queue" and queue.messages and not queue.readers:
        found.append(("warn", "no reader"))
    if queue.exclusive:
        found.append(("accent", "exclusive"))
    if queue.kind == "queue" and queue.grown < 0 and queue.readers:
        found.append(("good", "draining"))
    return found


def of_quota(queue: QueueView) -> float | None:
    """Return the percentage of its quota that a queue uses; None without a quota."""
    return None if not queue.quota else 100 * queue.bytes / (queue.quota * 1024)


def bar(percent: float) -> Markup:
    """Draw a percentage as a bar."""
    look = "bad" if percent >= 90 else "warn" if percent >= 75 else ""
    width = round(min(100, percent) * _BAR / 100, 1)
    return Markup(
        '<svg class="bar" viewBox="0 0 {} 6" preserveAspectRatio="none" role="img" aria-label="{} %">'
        '<rect class="{}" width="{}" height="6"/></svg>'
    ).format(_BAR, round(percent), look, width)


def words(value: Any) -> str:
    """Format a JSON value: text unchanged, anything else as JSON; invisible characters are made visible."""
    return printable(value) if isinstance(value, str) else printable_json(value)


def in_words(right: str) -> str:
    """Return a right in words."""
    return _RIGHTS.get(right, right)


def attention(alarm: KnownAlarm, queue: str | None) -> dict[str, Any]:
    """Return an alarm for pages: badge, link to the remedy, and all links. `queue` is the identifier of its queue, None
    if there is none."""
    badge, look, page, words = _ATTENTION.get(alarm.alarm, (alarm.alarm, "warn", "/alarms", "What to do"))
    if not page and queue is None:
        page, words = "/alarms", "What to do"
    place = page or f"/queues/{quoted(queue or '')}"
    return {"badge": badge, "look": look, "page": place, "words": words, "links": links(alarm, queue), "queue": queue}


def alarm_text(alarm: KnownAlarm, where: dict[str, Any]) -> Markup:
    """Return the sentence of an alarm with the current value in bold and its queue as a link, if it has a page. `where`
    is the result of `attention`."""
    condition = BY_NAME[alarm.alarm]
    local = "" if is_format_name(alarm.queue) else alarm.queue.partition("\\")[2]
    about = Markup("<bdi>{}</bdi>").format(short(local or alarm.queue or "The machine"))
    if where["queue"] is not None:
        name = printable(alarm.queue)
        about = Markup('<a href="/queues/{}" title="{}">{}</a>').format(quoted(where["queue"]), name, about)
    value = Markup("<strong>{}</strong>").format(figure_text(alarm.now, condition))
    threshold = figure_text(alarm.threshold, condition)
    return Markup(condition.sentence).format(object=about, value=value, threshold=threshold)


def links(alarm: KnownAlarm, queue: str | None) -> list[tuple[str, str]]:
    """Return the steps of an alarm's remedy as links: path and text. `queue` is the identifier of its queue, None if
    there is none."""
    steps = [RemedyStep(step.action, step.arguments) for step in alarm.steps]
    return [(page, step.words) for step in steps if (page := step.page(queue))]


def sentence(text: str) -> str:
    """Turn the text of an error into a sentence."""
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "!", "?")) else ".")


def quoted(text: str) -> str:
    """Quote text for use in the path of a link."""
    return quote(text, safe="")


def values(found: list[float | None]) -> str:
    """Return the values of a line as JSON for scripts."""
    return msgspec.json.encode([None if value is None else round(value, 3) for value in found]).decode()


FILTERS: Final = {
    "time": exact_time, "when": when, "since": since, "size": size, "signed": signed, "short": short, "called": called,
    "traits": traits, "states": states, "of_quota": of_quota, "bar": bar, "in_words": in_words, "words": words,
    "figure": figure, "counted": counted, "number": lambda value: f"{value:,}", "quoted": quoted, "json": values,
    "sentence": sentence, "age": age, "alarm_text": alarm_text, "exact": exact,
}  # fmt: skip
