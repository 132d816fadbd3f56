"""Tasks of calls."""

from __future__ import annotations

import asyncio
import gc
import weakref

from openmsmq.protocols.environment import CallTasks


def test_a_task_is_kept_until_it_is_done_and_gives_its_result() -> None:
    async def main() -> None:
        tasks = CallTasks()
        hold: asyncio.Future[int] = asyncio.Future()

        async def work() -> int:
            return await hold

        async def greet() -> str:
            return "at once"

        task = tasks.spawn(work())
        kept = weakref.ref(task)
        assert await asyncio.wait_for(tasks.spawn(greet()), 5) == "at once"
        del task
        gc.collect()
        found = kept()
        assert found is not None and not found.done()
        hold.set_result(5)
        assert await found == 5
        await asyncio.sleep(0)
        assert not tasks._tasks

    asyncio.run(main())
