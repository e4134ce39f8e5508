"""`ludus eval play`, `ludus eval submit` and `ludus eval --submit` as a person uses them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from lock_model import Answer, ModelServer, right_turn
from results_hub import ResultsHub, board_of, ludus

from ludus.client import Call, Conversation, OpenAIPolicy, PolicyResult
from ludus.evaluation.models import probe_model
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.errors import EveryAttemptFailed
from ludus.registry.played_runs import SAME_FAILURES, PlayedEpisode, play_run
from ludus.registry.results import ResultsClient
from ludus.registry.types.results import Declared, RunParams

POLICY = '''
"""Opens the locks with an even number."""

import re

from ludus.client import Call, text_of


async def act(conversation):
    prompt = " ".join(text_of(item.content) for item in conversation.items)
    number = int(re.search(r"(?:lock|train)-([0-9]+)", prompt)[1])
    return Call("turn", {"number": number % 10 if number % 2 == 0 else 11})
'''


@pytest.fixture
def kind() -> str:
    """One database is enough here."""
    return "sqlite"


@pytest.fixture
def policy(tmp_path: Path) -> str:
    """A policy in a file."""
    (tmp_path / "policy.py").write_text(POLICY)
    return f"{tmp_path / 'policy.py'}:act"


async def test_a_run_is_played_by_one_command_and_shown_on_the_board(
    hub: ResultsHub, package: str, policy: str, tmp_path: Path
) -> None:
    out = tmp_path / "play.jsonl"
    code, shown, said = await ludus(
        hub, "eval", "play", package, "--env", "locks", "--split", "train", "--model", policy, "--name", "even",
        "--tasks", "4", "--samples", "2", "--out", str(out),
    )  # fmt: skip
    assert code == 0, said
    assert "mean 0.5000" in shown
    assert "8 completed" in shown
    assert "run 1 of 1 of alice" in said
    lines = out.read_text().splitlines()
    assert len(lines) == 8
    assert not any('"reward":{' in line for line in lines)
    row = (await board_of(hub, package, split="train"))["rows"][0]
    assert (row["model"], row["by"], row["mean"]["value"], row["episodes"]) == ("even", "alice", 0.5, 8)
    assert row["harness"].startswith("ludus eval ")


@pytest.mark.suite("hub")
async def test_an_open_run_is_resumed(hub: ResultsHub, package: str, policy: str) -> None:
    params = {"environment": "locks", "split": "train", "tasks": 2, "declared": {"model": "even"}}
    async with hub.client() as client:
        where = f"/api/v1/environments/{package}/versions/1.0.0/runs"
        key = (await client.post(where, json=params)).json()["key"]
        await client.post(f"/api/v1/runs/{key}/episodes")
    code, shown, said = await ludus(hub, "eval", "play", package, "--model", policy, "--resume", key)
    assert code == 1, "the episode that was open counts as closed"
    assert "1 closed" in shown, said


@pytest.mark.suite("hub")
async def test_an_evaluation_is_uploaded_only_if_asked_and_says_what_it_uploads(
    hub: ResultsHub, package: str, policy: str, tmp_path: Path
) -> None:
    folder = str(tmp_path / "evaluation")
    code, _, said = await ludus(
        hub, "eval", "--env", f"locks@{hub.address}", "--split", "train", "--model", policy, "--out", folder
    )
    assert (code, hub.url in said) == (0, False)
    async with hub.client() as client:
        assert (await client.get(f"/api/v1/environments/{package}/versions/1.0.0/boards")).json()["boards"] == []
    code, _, said = await ludus(hub, "eval", "submit", folder, "--to", f"{package}@1.0.0", "--with-rollouts")
    assert code == 0, said
    assert said.index("for all to see") < said.index("reported: ")
    assert "the whole conversations" in said
    key = re.findall(r"/runs/([A-Za-z0-9_-]{22})", said)[0]
    async with hub.client(None) as client:
        rollouts = await client.get(f"/api/v1/runs/{key}/rollouts")
        assert len(rollouts.text.splitlines()) == 4
        run = (await client.get(f"/api/v1/runs/{key}")).json()
    assert (run["figures"]["mean"]["value"], run["level"], run["rollouts"]) == (0.5, "reported", True)
    code, _, said = await ludus(
        hub, "eval", "--env", f"locks@{hub.address}", "--split", "train", "--model", policy, "--out", folder,
        "--resume", "--submit", f"{package}@1.0.0",
    )  # fmt: skip
    assert (code, f"/runs/{key}" in said, "not: conversations" in said) == (0, True, True)


@pytest.mark.suite("hub")
async def test_a_policy_that_fails_again_and_again_stops_and_leaves_the_run_open(
    hub: ResultsHub, package: str, tmp_path: Path
) -> None:
    (tmp_path / "broken.py").write_text("async def act(conversation):\n    raise RuntimeError('no model today')\n")
    code, _, said = await ludus(
        hub, "eval", "play", package, "--env", "locks", "--model", f"{tmp_path / 'broken.py'}:act", "--tasks", "30",
        "--concurrency", "1",
    )  # fmt: skip
    assert code == 5, said
    assert "no model today" in said
    key = re.findall(r"--resume ([A-Za-z0-9_-]{22})", said)[0]
    async with hub.client() as client:
        assert (await client.get(f"/api/v1/runs/{key}")).json()["state"] == "open"
    counts = hub.store.counts(key)
    assert counts == {"ended": 3, "waiting": 27}


async def test_a_program_that_plays_a_run_gets_the_error_itself(hub: ResultsHub, package: str) -> None:
    async def broken(conversation: Conversation) -> PolicyResult:
        raise RuntimeError("no model today")

    params = RunParams(environment="locks", split="train", tasks=4, declared=Declared(model="m"))
    async with ResultsClient(hub.url, hub.tokens["alice"]) as client:
        run = await client.register(package, "1.0.0", params)
        with pytest.raises(EveryAttemptFailed, match="no model today"):
            await play_run(client, run, broken, concurrency=1)


@pytest.mark.suite("hub")
async def test_what_cannot_be_submitted_is_refused_in_words(
    hub: ResultsHub, package: str, policy: str, tmp_path: Path
) -> None:
    folder = str(tmp_path / "evaluation")
    await ludus(hub, "eval", "--env", f"debts@{hub.address}", "--split", "train", "--model", policy, "--out", folder)
    for arguments, code, words in (
        (("--to", package), 2, "name the version"),
        (("--to", f"{package}@9.9"), 3, "has no version"),
        (("--to", f"{package}@1.0.0", "--model", "absent"), 3, "has no model 'absent'"),
    ):
        found, _, said = await ludus(hub, "eval", "submit", folder, *arguments)
        assert (found, words in " ".join(said.split())) == (code, True), said
    found, _, said = await ludus(hub, "eval", "play", package, "--model", "oracle", "--env", "locks")
    assert (found, "the hub keeps" in said) == (2, True)
    found, _, said = await ludus(hub, "eval", "play", package, "--model", policy)
    assert (found, "name one with --env" in said) == (3, True)


# ── outages of the model ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    """A model endpoint that opens the locks."""
    server = ModelServer()
    await server.start()
    yield server
    await server.stop()


def failing_after(calls: int, status: int = 200) -> Answer:
    """Answer a number of calls, and then fail: with a status, or as a proxy does that has lost its model."""
    left = iter([True] * calls)

    def answer(asked: dict[str, Any]) -> Any:
        if "messages" not in asked:  # the check whether a server listens
            return web.json_response({})
        if not next(left, False):
            if status != 200:
                return web.json_response({"error": {"message": "the model is gone"}}, status=status)
            choice = {"index": 0, "finish_reason": "the model is gone", "message": {"role": "assistant", "content": ""}}
            return web.json_response({"choices": [choice]})
        is_first = "lock" not in json.dumps(asked["messages"])
        return {"role": "assistant", "content": "ready"} if is_first else right_turn(asked)

    return answer


def play_of(package: str, model: ModelServer, *options: str) -> tuple[str, ...]:
    name = f"openai:m@{model.url}"
    return ("eval", "play", package, "--env", "locks", "--split", "test", "--model", name, *options)


async def boards_of(hub: ResultsHub, package: str) -> list[Any]:
    async with hub.client() as client:
        boards = (await client.get(f"/api/v1/environments/{package}/versions/1.0.0/boards")).json()["boards"]
        assert isinstance(boards, list)
        return boards


@pytest.mark.suite("hub", first=2)
@pytest.mark.parametrize("status", [200, 400, 401, 404, 501])
async def test_a_model_that_fails_at_once_registers_no_run_and_says_why(
    hub: ResultsHub, package: str, model: ModelServer, status: int
) -> None:
    model.answer = failing_after(0, status)
    code, _, said = await ludus(hub, *play_of(package, model))
    assert code != 0
    assert "nothing was registered" in said
    assert "the model is gone" in " ".join(said.split())
    assert await boards_of(hub, package) == []


async def test_the_first_call_offers_the_tools_of_the_environment(model: ModelServer) -> None:
    model.answer = failing_after(1)
    tools = (ToolSpec(name="turn", description="Turn.", input_schema={"type": "object", "properties": {}}),)
    async with OpenAIPolicy("m", model.url, "key") as policy:
        await probe_model(policy, tools)
    (asked,) = model.asked
    assert [tool["function"]["name"] for tool in asked["tools"]] == ["turn"]


async def test_an_outage_stops_the_run_with_its_reason_and_makes_no_task_look_unsolved(
    hub: ResultsHub, package: str, model: ModelServer
) -> None:
    model.answer = failing_after(1)
    code, _, said = await ludus(hub, *play_of(package, model, "--tasks", "4", "--samples", "4", "-c", "2"))
    words = " ".join(said.split())
    assert code != 0
    assert "because of a failure on this side" in words
    assert "the model is gone" in words
    key = re.findall(r"/runs/([A-Za-z0-9_-]{22})", said)[0]
    counts = hub.store.counts(key)
    assert SAME_FAILURES <= counts["ended"] <= SAME_FAILURES + 1
    async with hub.client() as client:
        assert (await client.get(f"/api/v1/runs/{key}")).json()["state"] == "open"
        await client.post(f"/api/v1/runs/{key}/end")
        board = (await client.get(f"/{package}/versions/1.0.0/board?environment=locks&split=test&level=played",
                                  headers={"accept": "text/html"})).text  # fmt: skip
        page = (await client.get(f"/{package}", headers={"accept": "text/html"})).text
    assert "16 without reward" in board
    assert "never solved" not in board
    assert "never solved" not in page


async def test_only_tasks_that_were_played_to_an_end_count_as_solved_or_not(
    hub: ResultsHub, package: str, model: ModelServer
) -> None:
    model.answer = failing_after(3)  # the first call, and two episodes
    code, shown, said = await ludus(hub, *play_of(package, model, "--tasks", "4", "-c", "1"))
    assert code == 1, said
    assert "2 completed" in shown
    board = await board_of(hub, package)
    assert (sum(board["difficulty"]), board["difficulty"][-1]) == (2, 2)
    assert (board["rows"][0]["unscored"], board["rows"][0]["mean"]["value"]) == (2, 0.5)


async def test_episodes_that_have_begun_are_played_on_when_others_fail(hub: ResultsHub, package: str) -> None:
    many = 5
    begun = asyncio.Barrier(many)

    async def act(conversation: Conversation) -> PolicyResult:
        place = int(conversation.task.id.rpartition("/")[2])
        if conversation.turn == 1 and place < many:
            await begun.wait()
        if place == 0:
            while failed < SAME_FAILURES:
                await one_failed.wait()
                one_failed.clear()
            return Call("turn", {"number": 0})
        raise RuntimeError("no model today")

    failed, one_failed = 0, asyncio.Event()

    def count(played: PlayedEpisode) -> None:
        nonlocal failed
        failed += played.trajectory.failure is not None
        one_failed.set()

    params = RunParams(environment="locks", split="train", tasks=4, samples=4, declared=Declared(model="m"))
    async with ResultsClient(hub.url, hub.tokens["alice"]) as client:
        run = await client.register(package, "1.0.0", params)
        with pytest.raises(EveryAttemptFailed, match="no model today"):
            await play_run(client, run, act, concurrency=many, on_episode=count)
        assert (await client.open_episodes(run.key)).tickets == ()
        await client.end_run(run.key)
        rows = {row.place: row.end for row in (await client.rows(run.key)).episodes}
    assert rows[0] == "completed"
    assert list(rows.values()).count("not_begun") >= 16 - many - SAME_FAILURES
