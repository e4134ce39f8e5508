"""The ten tasks in examples/formats/mcp: each is solved by its solution, and not by doing nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp_targets import environment

from ludus.client import connect
from ludus.server import Answer, Call

pytestmark = pytest.mark.suite("formats")

FOLDER = Path(__file__).parents[2] / "examples" / "formats" / "mcp"

CLEAR = (
    "from tickets import server, tickets; import copy; first = copy.deepcopy(tickets)\n"
    "@server.tool()\ndef clear() -> str:\n    tickets.clear(); tickets.update(copy.deepcopy(first)); return ''\n"
    "server.run('stdio')\n"
)
"""The same server with a tool that resets it, so that one process plays all tasks."""


def solution_of(cls: Any, task: Any) -> Iterator[Call | Answer]:
    """The actions of a task's solution."""
    return iter(cls.oracle(task))


async def test_each_example_is_solved_by_its_calls_and_not_by_doing_nothing(serve: Any, tmp_path: Path) -> None:
    program = tmp_path / "resettable.py"
    program.write_text(f"import sys; sys.path.insert(0, {str(FOLDER)!r})\n{CLEAR}", encoding="utf-8")
    cls = environment(f"{sys.executable} {program}", tasks=str(FOLDER / "tickets.jsonl"), reset="clear")
    assert cls.name == "tickets"
    server = await serve(cls)
    async with connect(server.url) as client:
        remote = client.environment("tickets")
        split: Any = cls.splits["test"]
        tasks = [split.get(index) for index in range(10)]
        assert [task.id async for task in remote.tasks("test")] == [task.id for task in tasks]
        for task in tasks:
            rewards = []
            for actions in (list(solution_of(cls, task)), [Answer(text="I do not know")]):
                async with remote.episode(split="test", task=task.id) as episode:
                    for action in actions:
                        if isinstance(action, Answer):
                            reward = (await episode.grade(action.text)).reward
                            assert reward is not None
                            rewards.append(reward.value)
                        else:
                            assert (await episode.call(action)).error is None
            assert rewards == [1.0, 0.0], task.id
