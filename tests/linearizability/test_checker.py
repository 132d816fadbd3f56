"""The checker refuses what a queue cannot do, accepts what it can, and agrees with a search of all orders."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise, permutations
from pathlib import Path
from textwrap import dedent

import pytest

import seeds
from linearizability import history
from linearizability.checker import NEVER, check, is_linearizable
from linearizability.history import FAILED, OK, UNKNOWN, Operation
from linearizability.model import EMPTY, steps
from linearizability.reference import Simulation
from tallies import tally

HERE = Path(__file__).parent
PUBLISHED = HERE.parents[1] / "docs" / "proof" / "histories"
KINDS = {"s": "send", "r": "receive", "p": "peek", "b": "begin", "c": "commit", "a": "abort", "l": "lock"}
KINDS |= {"g": "stage", "m": "claim", "x": "crash"}
# kind, @queue, .transaction, =value or values, /priority, ? for unknown, ! for failed
WORD = re.compile(r"([a-z])(?:@(\w+))?(?:\.(\w+))?(?:=([\w,-]*))?(?:/(\d))?([?!]?)")


def written(text: str) -> list[Operation]:
    """A history as a text: one row for each client, in which an operation stands from its first to its last column.

    `s=a` sends a, `r=a` receives a, `r=-` times out; `r.t=a` receives in transaction t; each operation ends with its
    last character, or with the dots behind it.
    """
    found = []
    for number, row in enumerate(line for line in text.splitlines() if line.strip()):
        for match in re.finditer(r"\S+", row):
            word = WORD.fullmatch(match[0].rstrip("_"))
            assert word is not None, match[0]
            letter, queue, transaction, value, priority, fate = word.groups()
            kind = KINDS[letter]
            values = value.split(",") if value else []
            result: object = None
            argument: object = None
            if kind == "send":
                argument = [value, int(priority or 0)]
            elif kind == "stage":
                argument = values
            elif kind == "claim":
                argument, result = int(priority or 9), [] if value == "-" else values
            elif kind in ("receive", "peek", "lock"):
                result = None if value == "-" else value
            outcome = {"": OK, "?": UNKNOWN, "!": FAILED}[fate]
            where = (queue or "q") if kind not in ("begin", "commit", "abort", "crash") else None
            times = (match.start() * 10 + 1, match.end() * 10)
            found.append(Operation(f"c{number}", kind, *times, outcome, where, transaction, argument, result))
    return found


GOOD = {
    "in order": "s=a s=b r=a r=b r=-",
    "concurrent sends, either order": "s=a___ \n  s=b__\n          r=b r=a",
    "a receive during the send": "s=a_____\n   r=a",
    "a time-out during the send": "s=a_____\n   r=-\n          r=a",
    "priority": "s=a s=b/5 r=b r=a",
    "order within a priority": "s=a/5 s=b s=c/5 r=a r=c r=b",
    "peek takes nothing": "s=a p=a p=a r=a p=-",
    "a commit": "b.t s.t=a s.t=b r=- c.t r=a r=b",
    "a message keeps its place from its send on": "b.t s.t=a s=b c.t r=a r=b",
    "another one is first while it is locked": "b.t s.t=a s=b r=b c.t r=a",
    "an aborted send": "b.t s.t=a a.t r=-",
    "an aborted receive comes back to its place": "s=a s=b b.t r.t=a p=b a.t r=a r=b",
    "a committed receive": "s=a b.t r.t=a r=- c.t r=-",
    "a receive while another aborts": "s=a b.t r.t=a a.t____\n               r=-",
    "a transaction of two queues": "b.t s.t=a s@z.t=b r=- r@z=- c.t r@z=b r=a",
    "a receive in two phases": "s=a l.t=a r=- a.t r=a",
    "an acknowledged receive in two phases": "s=a l.t=a c.t r=-",
    "an unknown send that was done": "s=a? r=a",
    "an unknown send that was not done": "s=a? r=-",
    "an unknown send that was done late": "s=a? r=- r=a",
    "an unknown receive that took a message": "s=a r? r=-",
    "an unknown receive that took none": "s=a r? r=a",
    "an unknown receive that took it late": "s=a r? p=a r=-",
    "an unknown commit that was done": "b.t s.t=a c.t? r=a",
    "an unknown commit that was not done": "b.t s.t=a c.t? r=-",
    "a crash aborts": "s=a b.t r.t=a s.t=b x r=a r=-",
    "an unknown abort": "s=a b.t r.t=a a.t? r=- r=a",
    "an unknown send before a crash": "s=a? x r=a",
    "a failed send": "s=a! r=-",
    "a stage survives a crash": "g.t=a,b x r=- c.t r=a r=b",
    "a claim": "s=a s=b s=c m.t=a,b/2 r=c c.t r=-",
    "a claim ends at a locked message": "s=a s=b s=c b.u r.u=a a.u l.v=a a.v m.t=a,b,c c.t",
    "a claim behind nothing": "s=a s=b l.v=a m.t=- a.v m.u=a,b",
    "a claim survives a crash": "s=a m.t=a x r=- a.t r=a",
}
BAD = {
    "twice": "s=a r=a r=a",
    "twice by two clients": "s=a r=a__\n    r=a__",
    "lost": "s=a r=-",
    "lost while others come": "s=a s=b r=b r=-",
    "never sent": "s=a r=b",
    "out of order": "s=a s=b r=b r=a",
    "priority ignored": "s=a s=b/5 r=a r=b",
    "order within a priority": "s=a/5 s=c/5 r=c r=a",
    "received before it was sent": "r=a s=a",
    "a peek of a later one": "s=a s=b p=b",
    "a peek took it": "s=a p=a r=-",
    "a peek after it was taken": "s=a r=a p=a",
    "visible before the commit": "b.t s.t=a r=a c.t",
    "half of a commit": "b.t s.t=a s.t=b c.t r=b r=-",
    "a commit in another order": "b.t s.t=a s.t=b c.t r=b r=a",
    "an aborted send appears": "b.t s.t=a a.t r=a",
    "two queues of one commit, one is visible": "b.t s.t=a s@z.t=b c.t______\n               r@z=b r=-",
    "an aborted receive too early": "s=a b.t r.t=a r=a a.t",
    "an aborted receive comes too late": "s=a b.t r.t=a a.t r=- r=a",
    "an aborted receive is lost": "s=a b.t r.t=a a.t r=-",
    "an aborted receive loses its place": "s=a s=b b.t r.t=a a.t r=b r=a",
    "a committed receive is repeated": "s=a b.t r.t=a c.t r=a",
    "two transactions have it": "s=a b.t r.t=a b.u r.u=a",
    "a lock is ignored": "s=a l.t=a r=a c.t",
    "a lock that stays": "s=a l.t=a a.t r=- r=a",
    "an unknown send that comes twice": "s=a? r=a r=a",
    "an unknown send that appears after a crash": "s=a? x r=- r=a",
    "an unknown receive that took two": "s=a s=b r? r=-",
    "an unknown receive that took it after a crash": "s=a r? x p=a r=-",
    "half of an unknown commit": "b.t s.t=a s.t=b c.t? r=a r=-",
    "an unknown commit after a crash": "b.t s.t=a c.t? x r=- r=a",
    "lost by a crash": "s=a x r=-",
    "a receive undone by a crash": "s=a r=a x r=a",
    "a crash that aborts nothing": "s=a b.t r.t=a x r=-",
    "a transaction that goes on after a crash": "b.t s.t=a x c.t r=a",
    "a failed send appears": "s=a! r=a",
    "a stage is visible": "g.t=a,b r=a c.t",
    "a stage is lost by a crash": "g.t=a,b x c.t r=-",
    "a claim takes a later one": "s=a s=b m.t=b/1",
    "a claim passes a locked message": "s=a s=b l.v=a m.t=b",
    "a claim is lost by a crash": "s=a m.t=a x r=a",
}


@pytest.mark.parametrize("name", GOOD)
def test_good_histories_are_accepted(name: str) -> None:
    verdicts = check(written(GOOD[name]))
    assert all(verdict.accepted for verdict in verdicts), "\n".join(map(str, verdicts))
    assert naive(written(GOOD[name]))


@pytest.mark.parametrize("name", BAD)
def test_bad_histories_are_refused(name: str) -> None:
    assert not is_linearizable(written(BAD[name]))
    assert not naive(written(BAD[name]))


# The first guess about an unknown operation is wrong, which a crash or a claim shows at the end.
GUESSES = {
    "a commit before the abort": (
        """
        s=a b.t r.t=a    c.t? a.t r=-
                 b.u r.u?
                                      b.v r.v=- s@z.v=e c.v r@z=e
        """,
        "x r=-",
    ),
    "a stage before the abort": (
        """
        b.v s.v=d s@z.v=e c.v r=d r@z=e g.t=b?
                                              s=c  m.u=-_____
                                               a.t______
        """,
        "x s=f m.w=c,f c.w",
    ),
}


@pytest.mark.parametrize("name", GUESSES)
def test_a_wrong_guess_is_noticed_at_once(name: str) -> None:
    """The search does not try all orders of the operations of other clients first."""
    begin, end = GUESSES[name]
    rows = dedent(begin).strip("\n").splitlines()
    rows = [row.ljust(max(map(len, rows))) for row in rows]
    for number in range(50):
        for kind in "sr":
            rows = [f"{row} {kind}@z=m{number}n{client}____".ljust(len(row) + 16) for client, row in enumerate(rows)]
    rows[0] += f" {end}"
    operations = [
        replace(operation, argument="if open") if operation.kind == "abort" else operation
        for operation in written("\n".join(rows))
    ]
    (verdict,) = check(operations)
    assert verdict.accepted, str(verdict)
    assert verdict.steps < 1.2 * verdict.count


def test_the_verdict_shows_where_it_failed() -> None:
    (verdict,) = check(written("s=a s=b r=a r=a r=b"))
    assert [operation.result for operation in verdict.prefix] == [None, None, "a"]
    text = str(verdict)
    assert "q: 5 operations are not linearizable" in text
    assert text.endswith("c0 receive at q gave 'a'")
    assert "q (1 messages): b" in text


def test_queues_without_a_common_transaction_are_checked_alone() -> None:
    verdicts = check(written("s=a s@z=b b.t s@y.t=c r@z.t=b c.t r=a r=a"))
    assert {tuple(verdict.queues): verdict.accepted for verdict in verdicts} == {("q",): False, ("y", "z"): True}


def test_a_history_is_written_and_read(tmp_path: Path) -> None:
    operations = Simulation(seeds.chance("files"), 4, 2, 0.05).run(200)
    for name in ("plain.jsonl", "packed.jsonl.xz"):
        history.write(tmp_path / name, operations)
        assert history.read(tmp_path / name) == sorted(operations, key=lambda operation: operation.call)
    history.write(tmp_path / "bad.jsonl", written(BAD["lost"]))
    command = [sys.executable, str(HERE)]
    good = subprocess.run([*command, str(tmp_path / "packed.jsonl.xz")], capture_output=True, text=True)
    bad = subprocess.run([*command, str(tmp_path / "bad.jsonl")], capture_output=True, text=True)
    assert (good.returncode, bad.returncode) == (0, 1), good.stderr + bad.stderr
    assert "are not linearizable" in bad.stdout
    (tmp_path / "broken.jsonl").write_text('{"client": "c"}\n')
    with pytest.raises(ValueError, match="line 1"):
        history.read(tmp_path / "broken.jsonl")


@pytest.mark.parametrize("path", sorted(PUBLISHED.glob("*.xz")), ids=lambda path: path.name)
def test_published_histories_are_linearizable(path: Path) -> None:
    assert is_linearizable(history.read(path))


def test_nothing_of_the_server_is_used() -> None:
    program = "import sys; sys.path.insert(0, sys.argv[1]); import linearizability.checker; "
    program += "print([n for n in sys.modules if n.split('.')[0] in ('openmsmq', 'msrpc')])"
    done = subprocess.run([sys.executable, "-c", program, str(HERE.parent)], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


# -- by comparison ----------------------------------------------------------------------------------------------------


def naive(operations: Sequence[Operation]) -> bool:
    """Try all orders of all subsets that leave out unknown operations only."""
    crashes = sorted(operation.call for operation in operations if operation.kind == "crash")
    placed = [operation for operation in operations if operation.outcome != FAILED]
    ends = {
        id(o): next((c - 1 for c in crashes if c > o.call), NEVER) if o.outcome == UNKNOWN else o.returned
        for o in placed
    }
    doubtful = [operation for operation in placed if operation.outcome == UNKNOWN]
    for count in range(len(doubtful) + 1):
        for out in combinations(doubtful, count):
            if _some_order([o for o in placed if all(o is not left for left in out)], ends):
                return True
    return False


def _some_order(operations: list[Operation], ends: dict[int, int]) -> bool:
    if len(operations) > 9:  # too many for permutations; the same by recursion
        return _by_recursion(operations, ends, EMPTY)
    return any(_is_legal(order, ends) for order in permutations(operations))


def _is_legal(order: tuple[Operation, ...], ends: dict[int, int]) -> bool:
    latest = 0
    for operation in order:
        if ends[id(operation)] < latest:
            return False
        latest = max(latest, operation.call)
    states = {EMPTY}
    for operation in order:
        states = {after for state in states for after in steps(state, operation)}
    return bool(states)


def _by_recursion(left: list[Operation], ends: dict[int, int], state: object) -> bool:
    if not left:
        return True
    limit = min(ends[id(operation)] for operation in left)
    return any(
        _by_recursion([o for o in left if o is not operation], ends, after)
        for operation in left
        if operation.call <= limit
        for after in steps(state, operation)  # type: ignore[arg-type]
    )


def tiny(chance: random.Random, kinds: Sequence[str]) -> list[Operation]:
    """A history of at most 6 operations, right or wrong."""
    count = chance.randrange(2, 7)
    values, made = list("abcdefghijkl"), []
    for number in range(count):
        kind = chance.choice(kinds)
        call = chance.randrange(1, 40)
        own = values[number], values[number + 6]
        transaction = chance.choice("tu") if kind in ("begin", "commit", "abort", "lock", "stage", "claim") else None
        if kind in ("send", "receive") and chance.random() < 0.4:
            transaction = chance.choice("tu")
        arguments: dict[str, object] = {
            "send": [own[0], chance.choice((0, 0, 5))],
            "stage": list(own[: chance.choice((1, 2))]),
            "claim": chance.choice((1, 2, 9)),
            "abort": chance.choice((None, "if open")),
        }
        result: object = None
        if kind in ("receive", "peek", "lock"):
            result = chance.choice([None, *values[:count]])
        elif kind == "claim":
            result = chance.choice([[], *([value] for value in values[:count]), list(own), values[:2]])
        outcome = OK if kind == "crash" else chance.choice((OK, OK, OK, UNKNOWN))
        queue = "q" if kind in ("send", "receive", "peek", "lock", "stage", "claim") else None
        returned = call if kind == "crash" else call + chance.randrange(30)
        argument = arguments.get(kind)
        made.append(Operation(f"c{number}", kind, call, returned, outcome, queue, transaction, argument, result))
    return made


USUAL = ("send", "receive", "send", "receive", "peek", "begin", "commit", "abort", "lock", "crash")
BULK = ("send", "receive", "peek", "stage", "claim", "claim", "commit", "abort", "abort", "crash")


def test_tiny_histories_as_by_all_permutations() -> None:
    chance = seeds.chance("tiny histories")
    found: Counter[bool] = Counter()
    for number in range(3000):
        if number % 2:
            operations = tiny(chance, chance.choice((USUAL, BULK)))
        else:
            simulated = Simulation(chance, 3, 1, 0.2).run(chance.randrange(2, 6), drain=False)[:6]
            operations = damaged(simulated, chance) if chance.random() < 0.6 else simulated
        expected = naive(operations)
        assert is_linearizable(operations) == expected, "\n".join(map(str, operations))
        found[expected] += 1
    tally("histories", sum(found.values()))
    assert min(found.values()) > 250, found


def damaged(operations: Sequence[Operation], chance: random.Random) -> list[Operation]:
    """A history with one wrong result, one operation less or one twice."""
    changed = list(operations)
    reads = [index for index, o in enumerate(changed) if o.kind in ("receive", "peek", "lock") and o.outcome == OK]
    kind = chance.choice(("swap", "drop", "repeat", "change"))
    if kind == "swap" and len(reads) > 1:
        one, other = chance.sample(reads, 2)
        results = changed[one].result, changed[other].result
        changed[one] = replace(changed[one], result=results[1])
        changed[other] = replace(changed[other], result=results[0])
    elif kind == "change" and reads:
        wrong = chance.choice(reads)
        changed[wrong] = replace(changed[wrong], result=chance.choice([None, changed[chance.choice(reads)].result]))
    elif kind == "repeat" and reads:
        earlier = changed[chance.choice(reads)]
        later = max(operation.returned for operation in changed) + 1
        changed.append(
            replace(earlier, client="again", call=later, returned=later + 1, transaction=None, kind="receive")
        )
    elif changed:
        del changed[chance.randrange(len(changed))]
    return changed


# -- by mutation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crashes", [0.0, 0.03])
@pytest.mark.parametrize("queues", [1, 2])
def test_simulated_histories_are_accepted(crashes: float, queues: int) -> None:
    for seed in range(5):
        operations = Simulation(seeds.chance(f"simulation {crashes} {queues} {seed}"), 6, queues, crashes).run(150)
        verdicts = check(operations)
        assert all(verdict.accepted for verdict in verdicts), "\n".join(map(str, verdicts))
        tally("operations", len(operations))
        tally("histories")


def mutants(operations: list[Operation]) -> Iterator[tuple[str, list[Operation]]]:
    """Histories that no queue can give: a result twice, a result lost at the end, neighbours of one queue exchanged."""
    drained = [index for index, o in enumerate(operations) if o.client == "drain" and o.result is not None]
    for index in drained:
        yield "lost", operations[:index] + operations[index + 1 :]
    final = [index for index, o in enumerate(operations) if o.outcome == OK and o.result and o.transaction is None]
    for index in final:
        if operations[index].kind == "receive":
            later = operations[-1].returned + 5
            yield "twice", [*operations, replace(operations[index], client="z", call=later, returned=later + 1)]
    priority = {o.argument[0]: o.argument[1] for o in operations if o.kind == "send"}
    for one, other in pairwise(drained):
        first, second = operations[one], operations[other]
        if first.queue == second.queue and priority[first.result] != priority[second.result]:
            changed = operations.copy()
            changed[one], changed[other] = replace(first, result=second.result), replace(second, result=first.result)
            yield "exchanged", changed


def test_every_damage_that_no_queue_can_do_is_refused() -> None:
    refused: Counter[str] = Counter()
    chance = seeds.chance("mutants")
    for seed in range(4):
        operations = Simulation(seeds.chance(f"mutants {seed}"), 5).run(150)
        every = [*mutants(operations)]
        for kind, changed in chance.sample(every, min(len(every), 10)):
            assert not is_linearizable(changed), kind
            refused[kind] += 1
    tally("mutants of histories", sum(refused.values()))
    assert refused["twice"] > 10, refused


def test_random_damage_to_long_histories_is_mostly_refused() -> None:
    """An accepted change may be valid, as when the results of concurrent receives are exchanged."""
    verdicts: Counter[bool] = Counter()
    chance = seeds.chance("random damage")
    for _ in range(120):
        operations = Simulation(chance, 4, 1, 0.0).run(60)
        verdicts[is_linearizable(damaged(operations, chance))] += 1
    tally("mutants of histories", 120)
    assert verdicts[False] > 60, verdicts
