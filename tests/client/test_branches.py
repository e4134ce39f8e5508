"""Tree rollouts: a rollout is forked at its turns, and each fork is played on, over the channel and over MCP alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, ClassVar

import pytest
from terminal import running_episodes
from threaded import server_in_thread
from waiting import wait_until
from worlds import Counting, Playground

from ludus.client import (
    Answer,
    Branching,
    Call,
    Client,
    Conversation,
    RandomPolicy,
    Trajectory,
    TrajectoryWriter,
    Turn,
    Usage,
    connect,
    read_trajectories,
    rollout,
    rollout_all,
    summarize,
    sync,
    text_of,
)
from ludus.protocol.errors import CapacityError, InvalidParams, Unsupported
from ludus.protocol.items import CallItem
from ludus.protocol.trajectory import latest
from ludus.server import Environment, Result, ServerLimits, Task, tool


class Walk(Environment[Task]):
    """Four steps; each earns its length."""

    splits = {"train": [Task(id=f"w-{index}") for index in range(3)]}
    forkable = True
    reward_range = (0.0, 100.0)
    opened: ClassVar[int] = 0
    now: ClassVar[int] = 0
    most: ClassVar[int] = 0
    falls: ClassVar[list[int]] = []
    """For each fall to come, the length of the step that causes it."""

    def setup(self) -> None:
        cls = type(self)
        cls.opened, cls.now = cls.opened + 1, cls.now + 1
        cls.most = max(cls.most, cls.now)
        self.path: list[int] = []

    def teardown(self) -> None:
        type(self).now -= 1

    def prompt(self) -> str:
        return "Walk."

    @tool(inline=True)
    def go(self, length: int) -> Result:
        """Take a step."""
        if length in self.falls:
            self.falls.remove(length)
            raise RuntimeError("fell")
        self.path.append(length)
        return Result(f"at {sum(self.path)}", reward=float(length), finished=len(self.path) == 4)


class Unsteady(Walk):
    """Claims that its steps can be repeated, although they depend on how often it was started."""

    @tool(inline=True)
    def go(self, length: int) -> Result:
        """Take a step."""
        return Result(f"at {self.opened}", reward=1.0)


@pytest.fixture(autouse=True)
def fresh() -> None:
    for cls in (Walk, Unsteady):
        cls.opened = cls.now = cls.most = 0
    Walk.falls.clear()


class Steps:
    """A policy that takes steps of a length that says where in the tree it is, and counts the turns."""

    name = "steps"

    def __init__(self, length: Callable[[Conversation], int] = lambda c: 10 * (c.turn - 1) + len(c.place)) -> None:
        self.turns: list[tuple[str, int]] = []
        self._length = length

    async def __call__(self, conversation: Conversation) -> Turn:
        self.turns.append((conversation.place, conversation.turn))
        call = CallItem(f"c{conversation.turn}", Call("go", {"length": self._length(conversation)}))
        return Turn((call,), usage=Usage(requests=1, output_tokens=7))


async def open_episodes(client: Client) -> int:
    return await asyncio.to_thread(running_episodes, client.url)


def places(found: list[Trajectory]) -> list[str]:
    return [one.branch.place if one.branch else "" for one in found]


def lengths(one: Trajectory) -> list[str]:
    return [str(item["arguments"]) for item in one.items if item["type"] == "function_call"]


# ── rollouts ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_rollout_becomes_a_tree_whose_branches_say_where_they_began(client_of: Any) -> None:
    client = await client_of(Walk)
    found = await rollout_all(client.environment("walk"), Steps(), n=1, seed=3, branches=Branching(width=2))
    assert places(found) == ["1.0", "1.1", "2.0", "2.1", "3.0", "3.1", ""]
    *branches, trunk = found
    assert {one.seed for one in found} == {trunk.seed}
    assert len({one.episode for one in found}) == 7
    for one in branches:
        assert one.branch is not None
        assert (one.branch.parent, one.branch.step) == (trunk.episode, one.branch.turn)
        shared = trunk.turns[one.branch.turn - 1].items
        assert one.items[:shared] == trunk.items[:shared]
        assert lengths(one)[one.branch.turn :] != lengths(trunk)[one.branch.turn :]
        assert [step.step for step in one.steps] == [1, 2, 3, 4]
        assert one.value == sum(step.reward.value or 0.0 for step in one.steps if step.reward)
    assert trunk.value == 0 + 10 + 20 + 30
    assert branches[0].value == 0 + 13 + 23 + 33
    assert await open_episodes(client) == 0


async def test_shared_turns_are_neither_sampled_nor_paid_again(client_of: Any) -> None:
    policy = Steps()
    client = await client_of(Walk)
    found = await rollout_all(client.environment("walk"), policy, n=1, branches=Branching(width=2))
    assert sorted(policy.turns) == sorted(
        [("", turn) for turn in (1, 2, 3, 4)]
        + [(f"{at}.{number}", turn) for at in (1, 2, 3) for number in (0, 1) for turn in range(at + 1, 5)]
    )
    (last,) = [one for one in found if one.branch and one.branch.place == "3.1"]
    assert [turn.usage.output_tokens if turn.usage else None for turn in last.turns] == [None, None, None, 7]
    assert [turn.policy_seconds for turn in last.turns[:3]] == [0.0] * 3
    assert [step.seconds for step in last.steps[:3]] == [0.0] * 3
    assert summarize(found).usage == Usage(requests=len(policy.turns), output_tokens=7 * len(policy.turns))


async def test_branches_branch_again_at_their_own_turns(client_of: Any) -> None:
    client = await client_of(Walk)
    chosen = Branching(width=1, at=(1, 2, 3), depth=2, concurrency=1)
    found = await rollout_all(client.environment("walk"), Steps(), n=1, branches=chosen)
    assert places(found) == ["1.0", "1.0/2.0", "1.0/3.0", "2.0", "2.0/3.0", "3.0", ""]
    parents = {one.branch.place: one.branch.parent for one in found if one.branch}
    ids = {one.branch.place if one.branch else "": one.episode for one in found}
    assert parents["1.0/2.0"] == parents["1.0/3.0"] == ids["1.0"]
    assert parents["2.0/3.0"] == ids["2.0"]
    assert parents["1.0"] == ids[""]


async def test_a_branch_at_the_start_is_a_further_rollout_of_the_task(client_of: Any) -> None:
    client = await client_of(Walk)
    found = await rollout_all(client.environment("walk"), Steps(), n=1, branches=Branching(width=2, at=[0]))
    assert places(found) == ["0.0", "0.1", ""]
    assert lengths(found[0])[0] == '{"length": 3}'


async def test_a_rerun_with_the_same_seed_repeats_the_tree(client_of: Any) -> None:
    client = await client_of(Playground)
    environment, runs = client.environment("playground"), []
    for _ in range(2):
        runs.append(
            await rollout_all(
                environment, RandomPolicy(4, answers=0.2), n=3, seed=9, branches=Branching(width=2, at=(1, 2), depth=2)
            )
        )
    assert places(runs[0]) == places(runs[1])
    assert len(runs[0]) > 3
    for one, again in zip(*runs, strict=True):
        assert (one.items, one.value, one.seed) == (again.items, again.value, again.seed)
    first = [one.items for one in runs[0] if one.task.index == 0]
    assert len({str(items) for items in first}) == len(first), "branches draw like each other"


@pytest.mark.parametrize("wire", ["channel", "mcp", "ors"], indirect=True)
async def test_an_environment_that_cannot_be_forked_is_refused_before_anything_is_played(client_of: Any) -> None:
    client = await client_of(Counting)
    Counting.torn_down.clear()
    with pytest.raises(Unsupported, match="'counting' cannot branch: it is not forkable"):
        await rollout_all(client.environment("counting"), RandomPolicy(), n=1, branches=Branching())
    assert not Counting.torn_down


async def test_an_environment_that_only_claims_to_repeat_its_steps_stops_the_rollout(client_of: Any) -> None:
    client = await client_of(Unsteady)
    with pytest.raises(Unsupported, match="is not deterministic; set `forkable = False`"):
        await rollout_all(client.environment("unsteady"), Steps(), n=1, branches=Branching())

    async def is_closed() -> bool:
        return await open_episodes(client) == 0

    # The first fork that is refused cancels the request for the second one, whose episode the client closes later.
    await wait_until(is_closed, message="all episodes are closed")


async def test_a_branch_that_breaks_is_forked_again_from_the_same_step(client_of: Any) -> None:
    client = await client_of(Walk)
    Walk.falls[:] = [23]  # the third step of a branch with a place of three letters
    found = await rollout_all(
        client.environment("walk"), Steps(), n=1, branches=Branching(width=1, at=[1]), retry_environment_errors=True
    )
    assert places(found) == ["1.0", ""]
    branch = found[0]
    assert (branch.attempts, branch.failure, branch.value) == (2, None, 0 + 13 + 23 + 33)
    assert [failure.kind for failure in branch.incidents] == ["environment"]


async def test_a_branch_that_stays_broken_is_unscored_and_its_rollout_counts(client_of: Any) -> None:
    client = await client_of(Walk)
    Walk.falls[:] = [23, 23]
    found = await rollout_all(
        client.environment("walk"), Steps(), n=1, retries=1, branches=Branching(width=1, at=[1]),
        retry_environment_errors=True,
    )  # fmt: skip
    branch, trunk = found
    assert branch.failure is not None
    assert (branch.attempts, branch.value, branch.failure.kind) == (2, None, "environment")
    assert trunk.value == 60
    assert summarize(found).mean == 60


async def test_open_branches_are_bounded(client_of: Any) -> None:
    client = await client_of(Walk)
    chosen = Branching(width=4, at=(0, 1, 2, 3), concurrency=2)
    found = await rollout_all(client.environment("walk"), Steps(), samples=2, n=2, concurrency=1, branches=chosen)
    assert len(found) == 4 * (1 + 16)
    assert all(one.value is not None for one in found)
    assert Walk.most <= 1 + 2


async def test_leaving_the_loop_closes_every_branch(client_of: Any) -> None:
    client = await client_of(Walk)
    stuck = asyncio.Event()

    class Stuck(Steps):
        async def __call__(self, conversation: Conversation) -> Turn:
            turn = await super().__call__(conversation)
            if conversation.place and conversation.task.index == 1:
                stuck.set()
                await asyncio.Event().wait()
            return turn

    stream = rollout(
        client.environment("walk"), Stuck(), n=2, concurrency=2, branches=Branching(width=3, concurrency=32)
    )
    async with aclosing(stream):
        async for _ in stream:
            await stuck.wait()
            assert await open_episodes(client) > 0
            break
    assert await open_episodes(client) == 0


async def test_a_policy_that_keeps_more_than_the_conversation_is_copied_at_the_branch(client_of: Any) -> None:
    class Remembering:
        """Keeps the turns it has taken itself; its branches have those before them."""

        def __init__(self, taken: tuple[str, ...] = ()) -> None:
            self.taken = taken
            self.closed = False

        def branch(self, place: str) -> Remembering:
            return Remembering(self.taken)

        async def __call__(self, conversation: Conversation) -> Call:
            assert len(self.taken) == conversation.turn - 1
            self.taken += (conversation.place,)
            return Call("go", {"length": len("".join(self.taken))})

        async def aclose(self) -> None:
            ended.append(self.taken)

    class Policy:
        name = "remembering"

        def begin(self, conversation: Conversation) -> Remembering:
            assert conversation.turn == 1
            return Remembering()

    ended: list[tuple[str, ...]] = []
    client = await client_of(Walk)
    found = await rollout_all(client.environment("walk"), Policy(), n=1, branches=Branching(width=1, at=(1, 3)))
    assert [one.failure for one in found] == [None] * 3
    assert sorted(ended) == [("",) * 4, ("", "", "", "3.0"), ("", "1.0", "1.0", "1.0")]


async def test_a_resumed_file_has_whole_trees(client_of: Any, tmp_path: Path) -> None:
    client = await client_of(Walk)
    environment, file = client.environment("walk"), tmp_path / "walks.jsonl"
    found = await rollout_all(environment, Steps(), n=1, branches=Branching(width=2, at=[2]))
    with TrajectoryWriter(file) as writer:
        for one in found[:-1]:  # a crash before the trunk was written
            writer.write(one)
    with TrajectoryWriter(file, resume=True) as writer:
        assert writer.done == set()
        stream = rollout(environment, Steps(), n=1, branches=Branching(width=2, at=[2]), skip=writer.done)
        async for one in stream:
            writer.write(one)
    whole = latest(read_trajectories(file))
    assert places(whole) == ["2.0", "2.1", ""]
    assert {one.branch.parent for one in whole if one.branch} == {whole[-1].episode}
    with TrajectoryWriter(file, resume=True) as writer:
        assert writer.done == {found[-1].key}


@pytest.mark.parametrize(
    "fields", [{"width": 0}, {"depth": 0}, {"concurrency": 0}, {"at": [2, -1]}], ids=lambda fields: next(iter(fields))
)
def test_impossible_branches_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidParams, match=rf"Branching\({next(iter(fields))}="):
        Branching(**fields)


# ── single episodes ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_forks_of_one_step_go_their_own_ways_and_are_closed(client_of: Any) -> None:
    client = await client_of(Walk)
    async with client.environment("walk").episode() as episode:
        for length in (1, 2, 3):
            await episode.call("go", length=length)
        async with episode.branch(3) as now, episode.branch(2, step=1) as earlier:
            assert len({episode.id, *(fork.id for fork in (*now, *earlier))}) == 6
            said = [text_of((await fork.call("go", length=5)).content) for fork in (*now, *earlier)]
            assert said == ["at 11"] * 3 + ["at 6"] * 2
            assert (await earlier[0].call("go", length=1)).step == 3
        assert await open_episodes(client) == 1
        assert (await episode.call("go", length=4)).step == 4


async def test_branches_that_cannot_be_opened_leave_no_episode(client_of: Any) -> None:
    limits = ServerLimits(max_episodes=3, queue_seconds=0.0)
    client = await client_of(Walk, limits=limits, options={"patience_seconds": 0})
    async with client.environment("walk").episode() as episode:
        with pytest.raises(InvalidParams, match="has not finished step 2; it is at step 0"):
            async with episode.branch(2, step=2):
                raise AssertionError
        with pytest.raises(CapacityError):
            async with episode.branch(3):
                raise AssertionError
        with pytest.raises(InvalidParams, match="ask for at least 1"):
            async with episode.branch(0):
                raise AssertionError
        assert await open_episodes(client) == 1


async def test_a_conversation_is_copied_in_the_form_of_its_provider(client_of: Any) -> None:
    client = await client_of(Walk)

    def go(length: int) -> dict[str, Any]:
        function = {"name": "go", "arguments": f'{{"length": {length}}}'}
        return {"role": "assistant", "tool_calls": [{"id": "same", "type": "function", "function": function}]}

    async with client.environment("walk").drive() as driver:
        await driver.act(go(1))
        before = list(driver.messages)
        async with driver.branch(2) as branches:
            for length, branch in enumerate(branches, start=2):
                assert branch.messages == before
                await branch.act(go(length))
            assert [text_of(branch.results[0].content) for branch in branches] == ["at 3", "at 4"]
            outcomes = [await branch.finish() for branch in branches]
            assert [outcome.value for outcome in outcomes] == [3.0, 4.0]
            assert [branch.place for branch in branches] == ["1.0", "1.1"]
        assert driver.messages == before
        await driver.finish()
        with pytest.raises(InvalidParams, match="is done; branch off before its last turn"):
            async with driver.branch(1):
                raise AssertionError


async def test_the_ors_wire_says_that_it_cannot_fork() -> None:
    with server_in_thread(Walk) as server:
        async with connect(server.url, wire="ors") as client, client.environment("walk").episode() as episode:
            with pytest.raises(Unsupported, match="the wire 'ors' cannot fork episodes"):
                async with episode.branch(2):
                    raise AssertionError


def test_the_blocking_client_grows_the_same_trees() -> None:
    with server_in_thread(Walk) as server, sync.connect(server.url) as client:
        environment = client.environment("walk")
        found = sync.rollout_all(environment, Steps(), n=1, branches=Branching(width=1))
        assert places(found) == ["1.0", "2.0", "3.0", ""]
        with environment.episode() as episode, episode.branch(2) as forks:
            assert [text_of(fork.call("go", length=2).content) for fork in forks] == ["at 2", "at 2"]
        with environment.drive() as driver, driver.branch(2) as branches:
            assert [branch.turns for branch in branches] == [0, 0]
        assert running_episodes(server.url) == 0


async def test_a_final_message_can_branch_too(client_of: Any) -> None:
    client = await client_of(Playground)

    async def policy(conversation: Conversation) -> Call | Answer:
        return Call("add") if conversation.turn == 1 else Answer("no idea")

    found = await rollout_all(client.environment("playground"), policy, n=1, branches=Branching(width=2))
    assert [(one.outcome, one.value, len(one.steps)) for one in found] == [("submitted", 0.25, 1)] * 3
