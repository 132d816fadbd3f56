"""The commands and the HTTP API remain compatible with `recorded.txt`; lines that begin with + were added later."""

from __future__ import annotations

from pathlib import Path

from surface.facts import facts

RECORDED = (Path(__file__).parent / "recorded.txt").read_text(encoding="utf-8").splitlines()


def test_no_command_option_operation_or_member_is_lost() -> None:
    lost = {line.removeprefix("+ ") for line in RECORDED} - set(facts())
    assert not lost, "\n".join(sorted(lost))


def test_what_is_added_to_commands_and_api_is_listed() -> None:
    """If this fails, add these lines to recorded.txt, each preceded by a plus and a space."""
    added = set(facts()) - {line.removeprefix("+ ") for line in RECORDED}
    assert not added, "\n".join(f"+ {line}" for line in sorted(added))
