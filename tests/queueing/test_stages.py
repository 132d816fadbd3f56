"""The table of stages: its indexes agree with a full scan."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from openmsmq.model.lookup_id import lookup_id
from openmsmq.queueing.stages import Stage, StageTable

TRANSACTION: Any = None  # which the table does not use


def a_stage(handle: str, sink: str) -> Stage:
    return Stage(handle, sink, 1, 0, "a", "S-1-1-0", TRANSACTION)


@given(
    recovered=st.permutations(range(4)),
    steps=st.lists(st.tuples(st.integers(0, 9), st.sampled_from([16, 17]), st.booleans()), max_size=40),
)
def test_stages_of_a_queue_and_of_a_sink_are_found(recovered: list[int], steps: list[tuple[int, int, bool]]) -> None:
    """After a restart, stages arrive in any order; later, their rows have rising sequences."""
    table = StageTable()
    stages: dict[int, Stage] = {}
    for number in recovered:
        stages[number] = a_stage(str(number), f"s{number % 2}")
        stages[number].add(16, lookup_id(0, 10 + number), 0)
        table.add(stages[number])
    for sequence, (number, queue, ends) in enumerate(steps, 100):
        if number not in stages:
            stages[number] = a_stage(str(number), f"s{number % 2}")
            table.add(stages[number])
        if ends:
            table.remove(stages.pop(number))
        else:
            stages[number].add(queue, lookup_id(0, sequence), 0)
            table.wrote(stages[number])
        for at in (16, 17):
            present = [stage for stage in stages.values() if at in stage.lowest]
            assert {stage.handle for stage in table.at(at)} == {stage.handle for stage in present}
            assert table.lowest(at, 1000) == min((stage.lowest[at] for stage in present), default=1000)
            assert table.lowest(at, 5) == 5
        for sink in ("s0", "s1"):
            of_sink = {stage.handle for stage in stages.values() if stage.sink == sink}
            assert {stage.handle for stage in table.of_sink(sink)} == of_sink
            assert (sink in table.sinks()) == bool(of_sink)
    assert {stage.handle for stage in table.all()} == {stage.handle for stage in stages.values()}
