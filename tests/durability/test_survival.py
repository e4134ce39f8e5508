"""Episodes survive the death of their server: nothing that was answered is lost, and nothing runs twice."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from durable_server import Process
from stores import Store

from ludus.client import Client, Episode, GroupMember, connect, text_of
from ludus.protocol.episodes import Candidate, Outcome, ReportOutcomesParams, ScoreGroupParams
from ludus.protocol.errors import EpisodeEnded, EpisodeNotFound
from ludus.protocol.lifecycle import EndReason
from ludus.protocol.methods import REPORT_OUTCOMES, SCORE_GROUP

TASKS = ("t1", "t1", "t2")
GOOD = (True, False, True)
WIRES = ["channel", "mcp", "ors"]


async def numbers(episode: Episode, count: int) -> list[str]:
    """The observations of so many calls of `add`."""
    return [text_of((await episode.call("add", number=number)).content) for number in range(1, count + 1)]


@pytest.mark.suite("histories", first=1)
@pytest.mark.parametrize("wire", WIRES)
async def test_episodes_go_on_after_kill_9_with_an_unchanged_client(served: Process, wire: Any) -> None:
    async with connect(served.url, wire=wire) as client:
        ledger = client.environment("ledger")
        episodes = [await ledger.start(index=index % 5, seed=index) for index in range(20)]
        before = [await numbers(one, 3) for one in episodes]
        await served.restart()
        assert served.process is not None
        after = [text_of((await one.call("add", number=10)).content) for one in episodes]
        runs = [line.split()[0] for line in (served.folder / "runs.txt").read_text("utf-8").splitlines()]
        assert (len(runs), runs.count(str(served.process.pid))) == (140, 80), "each call ran again, once"
        assert [text.split()[0] for text in after] == ["16"] * 20, "1 + 2 + 3 + 10"
        logs = [[entry.reward.value for entry in (await one.rewards()).entries] for one in episodes]
        assert logs == [[1.0, 2.0, 3.0, 10.0]] * 20
        other = await ledger.start(index=3, seed=3)
        assert await numbers(other, 3) == before[3], "the same seed draws the same numbers"
        assert text_of((await other.call("add", number=10)).content) == after[3]
        graded = [await one.grade("16") for one in episodes]
        assert [one.reward.value for one in graded if one.reward is not None] == [1.0] * 20


@pytest.mark.suite("histories")
async def test_calls_that_are_running_when_the_server_dies_run_once_in_the_recovered_state(served: Process) -> None:
    async with connect(served.url) as client:
        ledger = client.environment("ledger")
        episodes = [await ledger.start(index=0, seed=7) for _ in range(50)]

        async def play(episode: Episode) -> list[int]:
            return [int(text_of((await episode.call("add", number=1)).content).split()[0]) for _ in range(20)]

        playing = asyncio.gather(*(play(one) for one in episodes))
        for _ in range(3):
            await asyncio.wait([playing], timeout=0.3)
            await served.restart()
        assert await playing == [list(range(1, 21))] * 50
        infos = [await one.info() for one in episodes]
        assert {(info.steps, info.reward.value) for info in infos if info.reward is not None} == {(20, 20.0)}


@pytest.mark.suite("histories", first=1)
@pytest.mark.parametrize("wire", ["channel", "mcp"])
async def test_a_start_that_is_repeated_after_the_death_gets_the_group_of_the_first(served: Process, wire: Any) -> None:
    async with connect(served.url, wire=wire) as client:
        ledger = client.environment("ledger")
        members = [GroupMember("the key", 3, place) for place in range(3)]
        first = [await ledger.start(index=1, seed=5, join=one) for one in members]
        await first[0].grade("0")
        await served.restart()
        again = [await ledger.start(index=1, seed=5, join=one) for one in members]
        assert [one.id for one in again] == [one.id for one in first]
        assert again[0].prompt == first[0].prompt


@pytest.mark.suite("histories")
async def test_an_episode_that_had_ended_still_answers(served: Process) -> None:
    async with connect(served.url) as client:
        episode = await client.environment("ledger").start(index=0, seed=1)
        await numbers(episode, 2)
        graded = await episode.grade("3")
        await served.restart()
        info = await episode.info()
        assert (info.end_reason, info.steps, info.reward) == (EndReason.SUBMITTED, 2, graded.info.reward)
        with pytest.raises(EpisodeEnded):
            await episode.call("add", number=1)


async def test_a_graceful_stop_leaves_episodes_for_the_next_process(served: Process) -> None:
    async with connect(served.url) as client:
        episode = await client.environment("ledger").start(index=0, seed=1)
        assert (await numbers(episode, 2))[1].startswith("3 ")
        await served.restart(signal.SIGTERM)
        assert text_of((await episode.call("add", number=4)).content).startswith("7 ")
        assert (await episode.info()).end_reason is None


@pytest.mark.suite("histories")
async def test_a_fork_survives_with_the_steps_of_its_origin(served: Process) -> None:
    async with connect(served.url) as client:
        episode = await client.environment("ledger").start(index=0, seed=1)
        await numbers(episode, 3)
        branch = await episode.fork(step=2)
        await served.restart()
        assert text_of((await branch.call("add", number=10)).content).startswith("13 ")
        assert text_of((await episode.call("add", number=10)).content).startswith("16 ")


async def test_an_episode_that_departs_from_its_journal_is_unscored_and_the_log_says_where(served: Process) -> None:
    async with connect(served.url) as client:
        episode = await client.environment("drifting").start(index=0)
        await episode.call("who")
        await served.restart()
        info = await episode.info()
        assert info.end_reason is EndReason.INFRASTRUCTURE_ERROR
        assert info.reward is not None
        assert info.reward.value is None
    assert "repeating step 1 gave another content" in await served.whole_log()


async def test_secrets_are_in_no_journal_so_their_episodes_end(served: Process, served_store: Store) -> None:
    async with connect(served.url) as client:
        episode = await client.environment("ledger").start(index=0, secrets={"KEY": "hunter2-hunter2"})
        await numbers(episode, 1)
        await served.restart()
        assert (await episode.info()).end_reason is EndReason.INFRASTRUCTURE_ERROR
    assert "its start gave secrets" in await served.whole_log()
    rows = served_store.rows()
    assert rows
    assert not any(b"hunter2" in row for row in rows)


@pytest.mark.suite("histories")
async def test_an_episode_that_is_forgotten_leaves_the_journal(served: Process, served_store: Store) -> None:
    async with connect(served.url) as client:
        episode = await client.environment("ledger").start(index=0)
        await episode.close()
        await served.restart(signal.SIGTERM, "--result-ttl-seconds", "0")
        with pytest.raises(EpisodeNotFound):
            await episode.info()
    await served.end(signal.SIGTERM)
    assert served_store.rows() == []


@pytest.mark.suite("histories")
async def test_a_call_of_ors_is_resumed_by_its_task_id_and_repeated_under_its_key(served: Process) -> None:
    head = {"X-Session-ID": "a session of mine"}
    call = {"name": "add", "input": {"number": 5}}
    async with aiohttp.ClientSession(served.url, headers=head) as http:

        async def post(path: str, body: Any, **headers: str) -> str:
            async with http.post(path, json=body, headers=headers) as answer:
                return f"{answer.status} {await answer.text()}"

        body = {"env_name": "ledger", "split": "train", "index": 0, "seed": 4}
        await post("/create", body, **{"Idempotency-Key": "k0"})
        first = await post("/ledger/call", call)
        second = await post("/ledger/call", call, **{"Idempotency-Key": "k2"})
        assert ['"text":"5 ' in first, '"text":"10 ' in second] == [True, True]
        task_id = first.split("data: ", 1)[1].split("\r\n", 1)[0]
        await served.restart()
        assert await post("/create", body, **{"Idempotency-Key": "k0"}) == '200 {"sid":"a session of mine"}'
        assert (await post("/create", body, **{"Idempotency-Key": "another"})).startswith("400 ")
        assert await post("/ledger/call", {**call, "task_id": task_id}) == first
        assert await post("/ledger/call", call, **{"Idempotency-Key": "k2"}) == second
        assert (await post("/ledger/call", {**call, "task_id": "0" * 32})).count("unknown task_id")
        assert '"text":"15 ' in await post("/ledger/call", call, **{"Idempotency-Key": "k3"})
        await served.restart()
        again = await post("/ledger/call", call)  # as `first`, whose bytes it repeats, but without its task id
        assert '"text":"20 ' in again, "without a key, nothing says that it is the same call"
        await post("/delete", {})
        await served.restart()
        assert (await post("/ledger/call", call)).startswith("404 ")


@pytest.mark.suite("histories")
async def test_reports_of_outcomes_and_their_keys_survive(served: Process) -> None:
    outcomes = tuple(
        Outcome(task=name, reward=float(good), passed=good) for name, good in zip(TASKS, GOOD, strict=True)
    )

    async def report(client: Client, key: str) -> int:
        params = ReportOutcomesParams(environment="ledger", split="train", outcomes=outcomes, key=key)
        return (await client.environment("ledger")._wire.request(REPORT_OUTCOMES, params)).recorded

    async with connect(served.url) as client:
        assert await report(client, "one") == 3
        for _ in range(2):  # the second time, they come from the sum that replaces the first
            await served.restart()
            assert await report(client, "one") == 3
        assert await report(client, "two") == 6
        await served.restart()
        ledger = client.environment("ledger")
        drawn = [await ledger.sample("train", seed=seed, strategy="band", band=(0.4, 0.6)) for seed in range(10)]
        assert {row.id for (row,) in drawn} == {"t1"}


@pytest.mark.suite("histories")
async def test_a_group_that_was_scored_keeps_its_score(served: Process) -> None:
    async with connect(served.url) as client:
        members = [GroupMember("key", 2, place) for place in range(2)]
        group = [await client.environment("ledger").start(index=0, join=one) for one in members]
        candidates = {one.id: Candidate(messages=()) for one in group}
        params = ScoreGroupParams(group=group[0].group, candidates=candidates, key="the score")
        before = await client.environment("ledger")._wire.request(SCORE_GROUP, params)
        await served.restart()
        assert await client.environment("ledger")._wire.request(SCORE_GROUP, params) == before
    assert (served.folder / "scores.txt").read_text("utf-8") == "scored\n"


@pytest.mark.suite("histories")
async def test_a_play_url_stays_valid(served: Process, tmp_path: Path) -> None:
    from mcp import Client

    async with connect(served.url) as client:
        episode = await client.environment("ledger").start(index=0, seed=1)
        url = episode.play_url
        assert url is not None
        async with Client(url) as agent:
            await agent.call_tool("add", {"number": 5})
        await served.restart()
        async with Client(url) as agent:
            answer = await agent.call_tool("add", {"number": 6})
    assert answer.content[0].text.startswith("11 ")  # type: ignore[union-attr]


async def test_a_journal_with_stdio_is_refused(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "ludus.cli",
        "serve",
        "guess_number",
        "--stdio",
        "--journal",
        str(tmp_path / "j.db"),
    ]
    done = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    _, said = await asyncio.wait_for(done.communicate(), 60)
    assert done.returncode == 2
    assert "--journal works only without --stdio" in " ".join(said.decode().replace("│", " ").split())


async def test_a_broken_journal_keeps_the_server_from_starting_and_says_which_row(
    served: Process, served_store: Store
) -> None:
    await served.end(signal.SIGTERM)
    served_store.add_row(7, b"\0")
    with pytest.raises(AssertionError, match=r"row 7 of the journal .*cannot be read"):
        await served.start()
