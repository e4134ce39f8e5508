"""Environments, splits and tasks (chapter 3 of the core, module `sampling`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conformance_peer import Peer, RpcError

from ludus.server.serving.serve import LudusServer

TRAIN: dict[str, Any] = {"environment": "workshop", "split": "train"}


@pytest.mark.requirement("ENV-1", "ENV-2", "TASK-5")
async def test_every_environment_is_listed_once_with_its_tools_and_splits(peer: Peer) -> None:
    listed = (await peer.call("environments/list"))["environments"]
    assert sorted(one["name"] for one in listed) == ["faulty", "plain", "shop", "workshop"]
    workshop = next(one for one in listed if one["name"] == "workshop")
    names = [tool["name"] for tool in workshop["tools"]]
    assert len(names) == len(set(names))
    assert not {"submit_answer", "start_episode"} & set(names)
    assert {split["name"]: (split["type"], split["count"]) for split in workshop["splits"]} == {
        "train": ("train", 7),
        "validation": ("validation", 3),
        "test": ("test", 3),
        "endless": ("train", None),
    }
    assert (await peer.call("splits/list", environment="workshop"))["splits"] == workshop["splits"]


@pytest.mark.requirement("ENV-2")
def test_a_reserved_tool_name_is_refused_at_startup() -> None:
    from ludus.protocol.errors import AuthoringError
    from ludus.server import Environment, EpisodeHost, Task, tool

    class Bad(Environment[Task]):
        splits = {"train": [Task(id="t")]}

        def prompt(self) -> str:
            return ""

        @tool
        def submit_answer(self) -> str:
            """Reserved."""
            return ""

    with pytest.raises(AuthoringError, match="submit_answer"):
        EpisodeHost([Bad])


@pytest.mark.requirement("TASK-7")
@pytest.mark.parametrize("cursor", ["", "nonsense", "-1", "1e3", "\x00", "9" * 5000])
async def test_a_cursor_that_cannot_be_read_is_refused(peer: Peer, cursor: str) -> None:
    with pytest.raises(RpcError) as caught:
        await peer.call("tasks/list", **TRAIN, cursor=cursor)
    assert caught.value.code == -32602
    assert "cursor" in caught.value.message


@pytest.mark.requirement("TASK-5")
@pytest.mark.parametrize("index", [0, 1, 10**6, 2**53 - 1])
async def test_an_endless_split_gives_the_same_task_for_the_same_index(peer: Peer, index: int) -> None:
    first = await peer.call("tasks/get", environment="workshop", split="endless", index=index)
    assert await peer.call("tasks/get", environment="workshop", split="endless", index=index) == first
    assert first["task"]["index"] == index


@pytest.mark.requirement("TASK-10")
async def test_a_band_draws_tasks_passed_sometimes_first_then_those_unknown(peer: Peer) -> None:
    outcomes = [{"task": "p-3", "reward": 1.0, "passed": passed} for passed in (True, False, False)]
    outcomes += [{"task": f"p-{index}", "reward": 1.0, "passed": True} for index in (0, 1)]
    await peer.call("outcomes/report", **TRAIN, outcomes=outcomes, key="k")
    drawn = await peer.call("tasks/sample", **TRAIN, count=4, seed=1, strategy="band", band=[0.2, 0.5])
    ids = [row["id"] for row in drawn["tasks"]]
    assert ids[0] == "p-3"
    assert not {"p-0", "p-1"} & set(ids[1:])


@pytest.mark.requirement("OUT-3")
async def test_outcomes_of_all_principals_are_one_collection(
    guarded: LudusServer, tokens: dict[str, str], connect: Callable[..., Any], wire: str
) -> None:
    outcome = {"task": "p-0", "reward": 1.0, "passed": True}
    counts = []
    for name in ("alice", "bob"):
        peer = connect(wire, guarded, tokens[name])
        counts.append((await peer.call("outcomes/report", **TRAIN, outcomes=[outcome], key="k"))["recorded"])
    assert counts == [1, 2]


@pytest.mark.requirement("OUT-1")
async def test_outcomes_reported_again_under_their_key_are_not_counted_again(peer: Peer) -> None:
    report = {**TRAIN, "outcomes": [{"task": "p-0", "reward": 1.0, "passed": True}]}
    assert (await peer.call("outcomes/report", **report, key="a"))["recorded"] == 1
    assert (await peer.call("outcomes/report", **report, key="a"))["recorded"] == 1
    assert (await peer.call("outcomes/report", **report, key="b"))["recorded"] == 2
