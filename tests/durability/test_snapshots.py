"""Episodes come back and fork from snapshots; what must not run twice does not; judges are not asked again."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from durable_server import SAVED, Process
from stores import Store, digest_of

from ludus.client import Episode, connect, text_of
from ludus.protocol.episodes import TurnMark
from ludus.protocol.errors import AuthoringError, EpisodeEnded, EpisodeFailed, InfrastructureFailed, Unsupported
from ludus.protocol.lifecycle import EndReason
from ludus.server import Environment, Task, tool
from ludus.server.durability.snapshot_store import SnapshotFolder, SnapshotStore
from ludus.server.hosting.host import EpisodeHost
from ludus.server.runtime.snapshots import KEPT

WIRES = ["channel", "mcp"]
SNIPPET = Path(__file__).resolve().parents[2] / "docs" / "snippets" / "saved.py"
BOXED = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@pytest.fixture
def world() -> tuple[Path, tuple[str, ...]]:
    """The environments of `served`."""
    return SAVED


@pytest.fixture
async def unjournaled(tmp_path: Path) -> AsyncIterator[Process]:
    """A server without a journal."""
    async with AsyncExitStack() as stack:
        process = Process(tmp_path, world=SAVED, journaled=False)
        stack.push_async_callback(process.end)
        await process.start()
        yield process


async def said(episode: Episode, name: str, **arguments: Any) -> str:
    """The observation of a call."""
    return text_of((await episode.call(name, **arguments)).content)


def lines(served: Process, name: str) -> list[str]:
    """The lines that the environments left in a file."""
    path = served.folder / name
    return path.read_text("utf-8").splitlines() if path.exists() else []


# ── back from a snapshot ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.suite("histories", first=1)
@pytest.mark.parametrize("wire", WIRES)
async def test_a_state_that_no_repetition_gives_comes_back_from_its_snapshot(served: Process, wire: Any) -> None:
    async with connect(served.url, wire=wire) as client:
        episode = await client.environment("vault").start(index=0, seed=3)
        before = [await said(episode, "draw") for _ in range(4)][-1]
        await served.restart()
        after = await said(episode, "draw")
        assert after.startswith(before + " ")
        assert len(lines(served, "draws.txt")) == 5, "no call ran a second time"
        assert [entry.step for entry in (await episode.rewards()).entries] == [1, 2, 3, 4, 5]
        other = await client.environment("vault").start(index=0, seed=3)
        drawn = [(await said(other, "draw")).split()[2::2] for _ in range(5)][-1]
        assert drawn == after.split()[2::2], "the random generator goes on where it was"


@pytest.mark.suite("histories")
async def test_calls_after_the_last_snapshot_are_repeated(served: Process) -> None:
    async with connect(served.url) as client:
        episode = await client.environment("sparse").start(index=0, seed=1)
        before = [await said(episode, "draw") for _ in range(5)][-1]
        await served.restart()
        assert (await said(episode, "draw")).startswith(before + " ")
        assert len(lines(served, "draws.txt")) == 5 + 2 + 1, "calls 4 and 5 ran again"


@pytest.mark.suite("histories")
async def test_the_environment_on_the_page_comes_back_and_forks(tmp_path: Path) -> None:
    served = Process(tmp_path, world=(SNIPPET, ("Dealer",)))
    try:
        await served.start()
        async with connect(served.url) as client:
            episode = await client.environment("dealer").start(index=0)
            seen = [await said(episode, "deal") for _ in range(3)]
            await served.restart()
            assert (await said(episode, "deal")).startswith(seen[2][:-1])
            branch = await episode.fork(1)
            assert (await said(branch, "deal")).startswith(seen[0][:-1])
    finally:
        await served.end()


@pytest.mark.suite("histories")
@BOXED
async def test_the_files_of_a_sandbox_come_back_and_fork_at_every_step(served: Process) -> None:
    async with connect(served.url) as client:
        episode = await client.environment("workshop").start(index=0)
        born = await said(episode, "shell", command="cat born")
        for number in range(1, 4):
            await said(episode, "shell", command=f"echo {number} >> log; head -c 1000 /dev/zero > zeros{number}")
        await served.restart()
        for step, expected in ((0, ""), (1, ""), (2, "1\n"), (4, "1\n2\n3\n")):
            branch = await episode.fork(step)
            assert await said(branch, "shell", command="cat log 2> /dev/null") == expected
            assert await said(branch, "shell", command="cat born") == born
            await branch.close()
        await said(episode, "shell", command="echo 4 >> log")
        assert await said(episode, "shell", command="cat log") == "1\n2\n3\n4\n"


@pytest.mark.suite("histories", first=1)
@pytest.mark.parametrize("wire", WIRES)
async def test_a_fork_without_a_journal_comes_from_a_snapshot(unjournaled: Process, wire: Any) -> None:
    async with connect(unjournaled.url, wire=wire) as client:
        episode = await client.environment("vault").start(index=0)
        seen = [await said(episode, "draw") for _ in range(3)]
        branch = await episode.fork(2)
        assert (await said(branch, "draw")).startswith(seen[1] + " ")
        again = await branch.fork(1)
        assert (await said(again, "draw")).startswith(seen[0] + " ")
        assert len(lines(unjournaled, "draws.txt")) == 5, "no call ran a second time"
        assert [entry.step for entry in (await branch.rewards()).entries] == [1, 2, 3]


@pytest.mark.suite("histories")
async def test_a_fork_from_a_snapshot_survives_too(served: Process) -> None:
    async with connect(served.url) as client:
        episode = await client.environment("vault").start(index=0)
        seen = [await said(episode, "draw") for _ in range(3)]
        branch = await episode.fork(2)
        await episode.close()
        await served.restart()
        assert (await said(branch, "draw")).startswith(seen[1] + " ")
        await served.restart()
        first = await branch.fork(1)
        assert (await said(first, "draw")).startswith(seen[0] + " ")


@pytest.mark.suite("histories")
async def test_the_snapshots_of_a_closed_episode_are_removed(served: Process, served_store: Store) -> None:
    async with connect(served.url) as client:
        episodes = [await client.environment("vault").start(index=0) for _ in range(2)]
        for one in episodes:
            await said(one, "draw")
        assert served_store.parts().keys() == {one.id for one in episodes}
        await episodes[0].close()
        await served.restart()
        await said(episodes[1], "draw")
        assert served_store.parts().keys() == {episodes[1].id}


async def test_a_snapshot_that_was_changed_ends_the_episode_unscored(served: Process, served_store: Store) -> None:
    async with connect(served.url) as client:
        episode = await client.environment("vault").start(index=0)
        await said(episode, "draw")
        await served.end()
        served_store.spoil_parts(episode.id)
        await served.start()
        info = await episode.info()
        assert info.end_reason is EndReason.INFRASTRUCTURE_ERROR
        assert info.incident is not None
    log = await served.whole_log()
    assert re.search(r"a part of a snapshot of \S+ was changed (on disk|in the database)", log)


# ── what must not run twice ────────────────────────────────────────────────────────────────────────────────────────


async def test_a_call_that_may_have_acted_on_the_outside_ends_the_episode_and_never_runs_again(served: Process) -> None:
    async with connect(served.url) as client:
        sure, unsure = [await client.environment("mailer").start(index=0) for _ in range(2)]
        assert await said(sure, "send", text="one") == "sent 1"
        waiting = asyncio.ensure_future(unsure.call("send", text="wait"))
        while "wait" not in lines(served, "sent.txt"):
            await asyncio.wait([waiting], timeout=0.01)
        await served.restart()
        (served.folder / "go").touch()
        with pytest.raises((EpisodeEnded, EpisodeFailed)):
            await waiting
        info = await unsure.info()
        assert info.end_reason is EndReason.INFRASTRUCTURE_ERROR
        assert info.reward is not None
        assert info.reward.value is None
        assert await said(sure, "send", text="two") == "sent 2"
    assert Counter(lines(served, "sent.txt")) == {"one": 1, "wait": 1, "two": 1}
    assert "step 1 may have run, and its environment acts on the outside" in await served.whole_log()


async def test_an_environment_that_is_not_durable_leaves_unscored_episodes(served: Process) -> None:
    async with connect(served.url) as client:
        episode = await client.environment("fleeting").start(index=0)
        await said(episode, "act")
        await served.restart()
        info = await episode.info()
        assert info.end_reason is EndReason.INFRASTRUCTURE_ERROR
        with pytest.raises(EpisodeEnded):
            await episode.call("act")
    assert "its environment is not durable" in await served.whole_log()


# ── judges and calls that overlap ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.suite("histories")
async def test_judges_are_not_asked_again(served: Process) -> None:
    async with connect(served.url) as client:
        episode = await client.environment("judged").start(index=0)
        for turn, last in ((1, False), (1, True), (2, False)):
            await episode.call_in_turn(TurnMark(number=turn, last=last, text="hm"), "act", text="a")
        before = (await episode.rewards()).entries
        asked = Counter(lines(served, "asked.txt"))
        assert asked == {"step": 3, "turn": 1}
        await served.restart()
        assert (await episode.rewards()).entries == before
        branch = await episode.fork(3)
        assert (await branch.rewards()).entries == before
        assert Counter(lines(served, "asked.txt")) == asked
        await episode.call_in_turn(TurnMark(number=2, last=True, text="hm"), "act", text="b")
        after = (await episode.rewards()).entries
        assert after[: len(before)] == before
        assert [(one.source, one.turn) for one in after[len(before) :]] == [("step", None), ("turn", 2)]
        assert Counter(lines(served, "asked.txt")) == {"step": 4, "turn": 2}


@pytest.mark.suite("histories")
async def test_a_repeated_call_that_earns_another_reward_is_no_fork_and_no_recovery(served: Process) -> None:
    async with connect(served.url) as client:
        episode = await client.environment("lucky").start(index=0)
        await said(episode, "act")
        with pytest.raises(Unsupported, match="repeating step 1 gave another reward"):
            await episode.fork(1)
        await served.restart()
        assert (await episode.info()).end_reason is EndReason.INFRASTRUCTURE_ERROR
    assert "repeating step 1 gave another reward" in await served.whole_log()


@pytest.mark.suite("histories")
async def test_calls_that_overlapped_are_repeated_in_the_order_in_which_they_ended(served: Process) -> None:
    async with connect(served.url) as client:
        episode = await client.environment("racing").start(index=0)
        await asyncio.gather(
            episode.call("run", label="a", after="c"), episode.call("run", label="b", after="a"),
            episode.call("run", label="c"),
        )  # fmt: skip
        before = (await episode.rewards()).entries
        assert [entry.step for entry in before] == [3, 1, 2]
        await served.restart()
        assert await said(episode, "run", label="d") == "c a b d"
        assert (await episode.rewards()).entries[:3] == before


# ── while an episode is rebuilt ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.suite("histories")
@pytest.mark.parametrize("wire", WIRES)
async def test_an_episode_that_is_being_rebuilt_lets_its_requests_wait_and_the_others_go_on(
    served: Process, wire: Any
) -> None:
    async with connect(served.url, wire=wire) as client:
        slow = await client.environment("slow").start(index=0)
        vault = await client.environment("vault").start(index=0)
        assert await said(slow, "act", text="first") == "first"
        await said(vault, "draw")
        (served.folder / "stop").touch()
        await served.restart()
        second, info = asyncio.ensure_future(said(slow, "act", text="second")), asyncio.ensure_future(slow.info())
        while len(lines(served, "acts.txt")) < 2:
            await asyncio.wait([second, info], timeout=0.01)
        await said(vault, "draw")
        other = await client.environment("slow").start(index=1)
        assert not second.done()
        assert not info.done()
        (served.folder / "stop").unlink()
        assert await second == "second"
        assert (await info).end_reason is None
        await other.close()
    assert lines(served, "acts.txt") == ["first", "first", "second"]


@pytest.mark.suite("histories")
async def test_a_server_that_stops_while_it_rebuilds_loses_nothing(served: Process) -> None:
    async with connect(served.url) as client:
        episode = await client.environment("slow").start(index=0)
        await said(episode, "act", text="first")
        (served.folder / "stop").touch()
        await served.restart()
        waiting = asyncio.ensure_future(said(episode, "act", text="second"))
        while len(lines(served, "acts.txt")) < 2:
            await asyncio.wait([waiting], timeout=0.01)
        await served.restart(signal.SIGTERM)
        (served.folder / "stop").unlink()
        assert await waiting == "second"
        assert (await episode.info()).steps == 2


# ── the classes and the store ──────────────────────────────────────────────────────────────────────────────────────


class Plain(Environment[Task]):
    """An environment."""

    splits = {"train": [Task(id="one")]}

    def prompt(self) -> str:
        return "?"

    @tool
    def act(self) -> str:
        """Act."""
        return "."


class WithState(Plain):
    """An environment that can be saved."""

    def snapshot(self) -> bytes:
        return b"state"

    def restore(self, state: bytes) -> None:
        pass


class Half(Plain):
    """One of the two methods."""

    def snapshot(self) -> bytes:
        return b"state"


@pytest.mark.parametrize(
    ("base", "changes", "complaint"),
    [
        (Plain, {"durable": "always"}, "it must be one of replay, snapshot, none"),
        (Plain, {"durable": "snapshot"}, "nothing to save"),
        (Half, {}, r"defines snapshot\(self\) without restore"),
        (WithState, {"snapshot_every": 0}, "at least 1"),
        (Plain, {"outside_effects": True}, "must not be repeated"),
        (WithState, {"durable": "snapshot", "outside_effects": True, "forkable": True}, "forkable = False"),
        (WithState, {"durable": "snapshot", "outside_effects": True, "snapshot_every": 2}, "snapshot_every = 1"),
    ],
)
def test_a_class_that_contradicts_itself_is_refused(base: type[Plain], changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(AuthoringError, match=complaint):
        EpisodeHost([type("Odd", (base,), changes)])


def test_a_folder_shares_parts_with_forks_without_copying_them(tmp_path: Path) -> None:
    store = SnapshotFolder(tmp_path / "parts", syncs=True)
    digest = store.put("e_one", b"a")
    assert store.share("e_one", "e_two", [digest])
    inodes = [(tmp_path / "parts" / name / digest).stat().st_ino for name in ("e_one", "e_two")]
    assert inodes[0] == inodes[1]


def test_a_store_keeps_equal_parts_once_and_shares_them_with_forks(store: Store) -> None:
    journal = store.open("normal")
    parts: SnapshotStore | None = journal.snapshot_store
    assert parts is not None
    digests = [parts.put("e_one", data) for data in (b"a", b"a", b"b")]
    assert digests == [digest_of(data) for data in (b"a", b"a", b"b")]
    assert store.parts() == {"e_one": 2}
    for _ in range(2):
        assert parts.share("e_one", "e_two", digests)
    assert not parts.share("e_one", "e_three", [*digests, digest_of(b"c")])
    parts.drop("e_two", [digests[0]])
    parts.forget("e_one")
    assert parts.get("e_two", digests[2]) == b"b"
    for episode, digest in (("e_one", digests[0]), ("e_two", digests[0])):
        with pytest.raises(InfrastructureFailed, match=f"a part of a snapshot of {episode} "):
            parts.get(episode, digest)
    parts.keep_only(["e_two"])
    assert store.parts() == {"e_two": 1}
    store.spoil_parts("e_two")
    with pytest.raises(InfrastructureFailed, match="was changed"):
        parts.get("e_two", digests[2])
    parts.keep_only([])
    assert not store.parts()
    journal.close()


async def test_an_episode_keeps_a_bounded_number_of_snapshots_and_still_forks_everywhere(
    served: Process, served_store: Store
) -> None:
    async with connect(served.url) as client:
        episode = await client.environment("sparse").start(index=0, seed=2)
        seen = [await said(episode, "draw") for _ in range(3 * KEPT + 30)]
        for step in (1, 50, 101, len(seen)):
            branch = await episode.fork(step)
            assert (await said(branch, "draw")).startswith(seen[step - 1] + " ")
            await branch.close()
        assert served_store.parts()[episode.id] <= 2 * (KEPT + 1)


async def test_a_fork_of_an_ended_episode_whose_snapshots_are_gone_says_so(unjournaled: Process) -> None:
    async with connect(unjournaled.url) as client:
        episode = await client.environment("vault").start(index=0)
        await said(episode, "draw")
        await episode.close()
        with pytest.raises(Unsupported, match="snapshots are dropped"):
            await episode.fork(1)
