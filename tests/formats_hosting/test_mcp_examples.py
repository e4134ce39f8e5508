"""The ten tasks in examples/formats/mcp: each is solved by its right calls, and not by doing nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mcp_targets import environment

from ludus.client import connect

FOLDER = Path(__file__).parents[2] / "examples" / "formats" / "mcp"

SOLUTIONS: dict[str, tuple[list[tuple[str, dict[str, Any]]], str]] = {
    "close-printer": ([("set_status", {"number": 1, "status": "closed"})], ""),
    "assign-password": ([("assign", {"number": 2, "person": "ben"})], ""),
    "new-ticket": ([("create_ticket", {"title": "Server room is too hot", "priority": 1})], ""),
    "count-open": ([], "5"),
    "most-urgent": ([], "Cleo"),
    "unassigned": ([("assign", {"number": number, "person": "ada"}) for number in (2, 5)], ""),
    "vpn-hand-over": (
        [("assign", {"number": number, "person": "ben"}) for number in (4, 6)]
        + [("comment", {"number": number, "text": "Cleo is away"}) for number in (4, 6)],
        "",
    ),
    "reopen": ([("set_status", {"number": 3, "status": "open"}), ("assign", {"number": 3, "person": "cleo"})], "3"),
    "waiting": (
        [("set_status", {"number": 5, "status": "waiting"}), ("comment", {"number": 5, "text": "Ordered"})],
        "",
    ),
    "duplicate": (
        [("set_status", {"number": 6, "status": "closed"}), ("comment", {"number": 6, "text": "Same as 4"})],
        "",
    ),
}
CLEAR = (
    "from tickets import server, tickets; import copy; first = copy.deepcopy(tickets)\n"
    "@server.tool()\ndef clear() -> str:\n    tickets.clear(); tickets.update(copy.deepcopy(first)); return ''\n"
    "server.run('stdio')\n"
)
"""The same server with a tool that resets it, so that one process plays all tasks."""


async def test_each_example_is_solved_by_its_calls_and_not_by_doing_nothing(serve: Any, tmp_path: Path) -> None:
    program = tmp_path / "resettable.py"
    program.write_text(f"import sys; sys.path.insert(0, {str(FOLDER)!r})\n{CLEAR}", encoding="utf-8")
    cls = environment(f"{sys.executable} {program}", tasks=str(FOLDER / "tickets.jsonl"), reset="clear")
    assert cls.name == "tickets"
    server = await serve(cls)
    async with connect(server.url) as client:
        remote = client.environment("tickets")
        tasks = [task.id async for task in remote.tasks("test")]
        assert tasks == list(SOLUTIONS)
        for task, (calls, answer) in SOLUTIONS.items():
            rewards = []
            for chosen, said in ((calls, answer), ([], "I do not know")):
                async with remote.episode(split="test", task=task) as episode:
                    for tool, arguments in chosen:
                        assert (await episode.call(tool, **arguments)).error is None
                    reward = (await episode.grade(said)).reward
                    assert reward is not None
                    rewards.append(reward.value)
            assert rewards == [1.0, 0.0], task
