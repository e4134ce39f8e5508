"""Other people's clients play on our server: whole episodes, and texts of every kind, in processes of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from worlds import SECRET_ANSWER, Playground

from ludus.environments.countdown import Countdown
from ludus.environments.guess_number import GuessNumber
from ludus.environments.wordle import Wordle
from ludus.protocol import Answer, EndReason, StepResult, TextBlock
from ludus.protocol.methods import Scope
from ludus.server import Environment, Result, Task, tool
from ludus.server.auth.tokens import TokenFile, new_token

pytestmark = pytest.mark.timeout(300)  # importing a peer takes up to half a minute on a busy machine

Serve = Callable[..., Awaitable[Any]]
SitPeer = Callable[..., Awaitable[Any]]

GAMES: tuple[type[Environment[Any]], ...] = (GuessNumber, Countdown, Wordle)
SAMPLED = [GuessNumber, *(pytest.param(game, marks=pytest.mark.suite("peers")) for game in (Countdown, Wordle))]
CLIENTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("ors-sdk", {}),
    ("openreward", {}),
    ("openreward", {"by_variant": True}),
)


class Mirror(Environment[Task]):
    """Return the message."""

    splits = {"train": [Task(id="only")]}

    async def prompt(self) -> str:
        return "Speak."

    @tool
    async def say(self, text: str) -> Result:
        """Say it back."""
        return Result(text, reward=1)


def name_of(environment: type[Environment[Any]]) -> str:
    names: dict[type[Environment[Any]], str] = {
        GuessNumber: "guess_number", Countdown: "countdown", Wordle: "wordle",
    }  # fmt: skip
    return names[environment]


def step_of(number: int, answer: dict[str, Any]) -> StepResult:
    content = tuple(TextBlock(text=text) for text in answer["blocks"])
    reason = EndReason.COMPLETED if answer.get("finished") else None
    return StepResult(step=number, content=content, end_reason=reason)


async def play_oracle(environment: type[Environment[Any]], seat: Any, split: str, index: int) -> list[dict[str, Any]]:
    """Let the environment's oracle play through the peer's client."""
    task = environment.splits[split].get(index)  # type: ignore[union-attr]
    oracle = environment.oracle(task)
    answers: list[dict[str, Any]] = []
    action = next(oracle)
    for _ in range(100):
        if isinstance(action, Answer):
            answers.append(await seat.call("submit_answer", answer=action.text))
        else:
            answers.append(await seat.call(action.tool, **action.arguments))
        assert "raised" not in answers[-1], answers[-1]
        if answers[-1]["finished"]:
            break
        try:
            action = oracle.send(step_of(len(answers), answers[-1]))
        except StopIteration:
            break
    return answers


@pytest.mark.suite("peers", first=1)
@pytest.mark.parametrize("environment", SAMPLED)
@pytest.mark.parametrize(("peer", "job"), CLIENTS)
async def test_a_peers_client_plays_a_whole_episode(
    serve: Serve, sit_peer: SitPeer, peer: str, job: dict[str, Any], environment: type[Environment[Any]]
) -> None:
    server = await serve(*GAMES)
    name = name_of(environment)
    job = {"variant": name} if job else {}
    job["list"] = environment is Wordle  # the others make ten thousand tasks on demand, which takes its time
    seat = await sit_peer(peer, server.url, environment=name, split="train", index=4, use_task=True, **job)
    assert seat.seen["splits"] == ["train", "validation", "test"]
    task = environment.splits["train"].get(4)  # type: ignore[union-attr]
    assert (seat.seen["task"]["id"], seat.seen["task"]["split"]) == (task.id, "train")
    assert not set(seat.seen["task"]) & task.private_fields()
    answers = await play_oracle(environment, seat, "train", 4)
    assert answers[-1]["finished"]
    assert environment.reward_range is not None
    assert sum(answer["reward"] or 0 for answer in answers) == pytest.approx(environment.reward_range[1])
    await seat.leave()
    assert server.app.context.host.stats().running == 0


@pytest.mark.suite("peers")
@pytest.mark.parametrize("environment", SAMPLED)
async def test_trl_plays_a_whole_episode(serve: Serve, sit_peer: SitPeer, environment: type[Environment[Any]]) -> None:
    server = await serve(*GAMES)
    seat = await sit_peer("trl", server.url, environment=name_of(environment), split="train", index=1)
    assert seat.seen["task"]["task_index"] == 1
    assert seat.seen["prompt"]
    answers = await play_oracle(environment, seat, "train", 1)
    assert environment.reward_range is not None
    assert answers[-1]["reward"] == pytest.approx(environment.reward_range[1])


@pytest.mark.suite("peers", first=1)
@pytest.mark.parametrize(("peer", "job"), CLIENTS)
async def test_mistakes_final_answers_and_images_through_a_peers_client(
    serve: Serve, sit_peer: SitPeer, peer: str, job: dict[str, Any]
) -> None:
    server = await serve(Playground)
    job = {"variant": "playground"} if job else {}
    seat = await sit_peer(peer, server.url, environment="playground", index=1, **job)
    assert seat.seen["prompt"] == ["Say word 1."]
    assert set(seat.seen["tools"]) >= {"add", "say", "submit_answer"}
    assert SECRET_ANSWER not in str(seat.seen)
    unknown = await seat.call("nosuch")
    assert (unknown["raised"], "not a valid tool" in unknown["message"]) == ("ToolCallError", True)
    wrong = await seat.call("add", amount="x")
    assert (wrong["raised"], "input validation" in wrong["message"]) == ("ToolCallError", True)
    refused = await seat.call("refuse")
    assert (refused["blocks"], refused["finished"]) == (["you may not"], False)
    text, image = (await seat.call("look"))["blocks"]
    assert (text, image[0]) == ("a picture", "image/png")
    added = await seat.call("add", amount=2)
    assert (added["blocks"], added["reward"]) == (["count 2"], 0.25)
    assert added["metadata"]["reward"]["components"]["added"]["value"] == 2
    if peer == "openreward":
        assert seat.seen["terminal"] == "submit_answer"
        assert seat.seen["roles"] == ["user"]
        assert (await seat.ask({"score": ["a", "b"]}))["scores"] == [1.0, 1.0]
        last = await seat.ask({"terminal": f"{SECRET_ANSWER}-1"})
    else:
        last = await seat.call("submit_answer", answer=f"{SECRET_ANSWER}-1")
    assert (last["reward"], last["finished"]) == (1.0, True)
    late = await seat.call("add")
    assert (late["raised"], "finished" in late["message"]) == ("ToolCallError", True)


SPACES = " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2007\u2028\u2029\u202f\u205f\u3000"
TEXTS = st.one_of(
    st.text(max_size=300),
    st.builds(
        lambda unit, count, tail: unit * count + tail,
        st.text(alphabet=SPACES + 'a"\\é\U0001f600', min_size=1, max_size=7),
        st.integers(0, 28_000),
        st.text(max_size=20),
    ),
)


@pytest.mark.suite("peers", first=1)
@pytest.mark.requirement("ORS-12")
@pytest.mark.parametrize("peer", ["ors-sdk", "openreward"])
async def test_any_text_arrives_identical_through_a_peers_client(serve: Serve, sit_peer: SitPeer, peer: str) -> None:
    server = await serve(Mirror)
    seat = await sit_peer(peer, server.url, environment="mirror")

    async def check(text: str) -> None:
        assert (await seat.call("say", text=text))["blocks"] == [text]

    for text in [*(space * 5000 for space in SPACES), " " * 200_000, "\u3000" * 60_000, ("x" * 4095 + " ") * 12]:
        await check(text)
    for text in texts(60):
        await check(text)


def texts(count: int) -> list[str]:
    """Texts as hypothesis imagines them; collected first, since its tests cannot await in this loop."""
    found: list[str] = []

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    @given(TEXTS)
    def collect(text: str) -> None:
        found.append(text)

    collect()
    return found


class Telling(Environment[Task]):
    """Return its secrets."""

    splits = {"train": [Task(id="only")]}

    async def prompt(self) -> str:
        return "Look."

    @tool
    async def tell(self) -> str:
        """Tell the secrets."""
        return ",".join(f"{name}={value}" for name, value in sorted(self.secrets.items())) or "none"


@pytest.mark.suite("peers", first=1)
@pytest.mark.requirement("CRED-17")
@pytest.mark.parametrize("peer", ["ors-sdk", "openreward", "trl"])
async def test_the_token_that_a_peers_client_adds_to_the_secrets_reaches_no_environment(
    serve: Serve, sit_peer: SitPeer, peer: str
) -> None:
    token, record = new_token("trainer", [Scope.TASKS_READ, Scope.EPISODES_RUN, Scope.REWARDS_READ])
    server = await serve(Telling, variables={"LUDUS_TOKENS": TokenFile(tokens=(record,)).model_dump_json()})
    secrets = {"HF_TOKEN": "hf", "hf_token": token} if peer != "trl" else {}
    seat = await sit_peer(peer, server.url, environment="telling", api_key=token, secrets=secrets)
    assert (await seat.call("tell"))["blocks"] == ["HF_TOKEN=hf" if secrets else "none"]
