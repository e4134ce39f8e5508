"""Models behind each provider's wire form play, and what the provider does wrong is never the model's reward."""

from __future__ import annotations

import asyncio
import json
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import pytest
from adapter_world import Sums
from aiohttp import web
from peer_clients import peer_variables, python_of

from ludus.client import Policy, RemoteEnvironment, connect, rollout_all
from ludus.client.policies.providers import ProviderPolicy, ProviderWire
from ludus.evaluation.config import KEY_VARIABLES, ModelSpec, Wire
from ludus.evaluation.models import open_model
from ludus.protocol.errors import ConnectionFailed, InvalidParams, Unauthenticated
from ludus.protocol.trajectory import Trajectory

WIRES: tuple[Wire, ...] = get_args(Wire)
KEYS = {"KEY": "secret-key"}
CHECKER = Path(__file__).parent / "peers" / "check_wires.py"

TOKENS = {"openai": (20, 5), "openai-responses": (20, 5), "anthropic": (27, 5), "google": (20, 8)}
"""Input and output tokens of one request: with the cache for Anthropic, with thoughts for Gemini."""


@pytest.fixture
async def sums(serve: Callable[..., Awaitable[Any]]) -> AsyncIterator[RemoteEnvironment]:
    async with connect((await serve(Sums)).url) as client:
        yield client.environment("sums")


def spec(wire: str, provider: str, model: str = "solver", **more: Any) -> ModelSpec:
    base = f"{provider}/{'v1beta' if wire == 'google' else 'v1'}"
    return ModelSpec(model=f"{wire}:{model}@{base}", api_key_env="KEY", **more)


async def play(sums: RemoteEnvironment, given: ModelSpec, **options: Any) -> list[Trajectory]:
    settings: dict[str, Any] = {"n": 2, "retries": 0, **options}
    async with open_model(given, KEYS) as policy:
        return await rollout_all(sums, policy, **settings)


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize("wire", WIRES)
def test_ludus_run_plays_with_a_model_in_each_form(
    wire: Wire, provider: str, url: str, ludus_process: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    base = f"{provider}/{'v1beta' if wire == 'google' else 'v1'}"
    warm = () if wire == "anthropic" else ("--temperature", "0.5")  # the newest types of Anthropic have none
    options = ("--policy", wire, "--model", "solver", "--base-url", base, "--max-tokens", "64", *warm)
    elsewhere = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    done = ludus_process(
        "run", url, "sums", "-n", 2, *options, "--json", variables={KEY_VARIABLES[wire]: "secret-key", **elsewhere}
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["mean"] == 1.0
    with urllib.request.urlopen(f"{provider}/requests") as reply:
        sent = json.loads(reply.read())[wire][-1]["request"]
    fields = sent["generationConfig"] if wire == "google" else sent
    assert fields.get("temperature") == (None if wire == "anthropic" else 0.5)
    assert 64 in (fields.get(name) for name in ("max_tokens", "max_output_tokens", "maxOutputTokens"))


@pytest.mark.parametrize("wire", WIRES)
def test_ludus_eval_says_how_to_name_the_model_of_a_wire(
    wire: Wire, url: str, ludus: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = ludus("eval", "--model", wire, "--env", f"sums@{url}", "-n", 1, "--out", "out")
    assert done.returncode == 2, done.stderr
    assert f"{wire}:NAME" in " ".join(done.stderr.replace("│", " ").split())


def test_ludus_run_names_the_variable_of_a_provider_whose_key_is_missing(
    url: str, ludus: Callable[..., subprocess.CompletedProcess[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    done = ludus("run", url, "sums", "--policy", "anthropic", "--model", "m")
    assert done.returncode == 2, done.stderr
    assert "ANTHROPIC_API_KEY" in done.stderr


@pytest.mark.parametrize("wire", WIRES)
async def test_a_model_calls_tools_in_each_form_and_its_tokens_are_counted(
    wire: str, provider: str, sums: RemoteEnvironment
) -> None:
    found = await play(sums, spec(wire, provider, name="the model"))
    assert [one.value for one in found] == [1.0, 1.0]
    for one in found:
        assert one.policy == "the model"
        assert [step.error for step in one.steps] == [None, None]
        assert one.usage is not None
        given, written = TOKENS[wire]
        assert (one.usage.requests, one.usage.input_tokens, one.usage.output_tokens) == (2, 2 * given, 2 * written)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_final_message_is_graded_in_each_form(wire: str, provider: str, sums: RemoteEnvironment) -> None:
    (found,) = await play(sums, spec(wire, provider, "talker"), n=1)
    assert (found.value, found.outcome, len(found.steps)) == (1.0, "submitted", 0)


@pytest.mark.parametrize("wire", WIRES)
async def test_missing_token_counts_are_unknown_and_not_zero(wire: str, provider: str, sums: RemoteEnvironment) -> None:
    (found,) = await play(sums, spec(wire, provider, "uncounted"), n=1)
    assert found.usage is None


@pytest.mark.parametrize("wire", ["openai-responses", "anthropic", "google"])
async def test_an_overloaded_provider_is_asked_again(
    wire: ProviderWire, provider: str, sums: RemoteEnvironment
) -> None:
    base = f"{provider}/{'v1beta' if wire == 'google' else 'v1'}"
    async with ProviderPolicy(wire, "busy", base, "secret-key", first_pause=0.01) as policy:
        (found,) = await rollout_all(sums, policy, n=1, retries=0)
    assert found.failure is None


@pytest.mark.parametrize("wire", ["openai-responses", "anthropic", "google"])
async def test_a_broken_provider_leaves_the_episode_unscored(
    wire: ProviderWire, provider: str, sums: RemoteEnvironment
) -> None:
    base = f"{provider}/{'v1beta' if wire == 'google' else 'v1'}"
    async with ProviderPolicy(wire, "broken", base, "secret-key", attempts=2, first_pause=0.01) as policy:
        (found,) = await rollout_all(sums, policy, n=1, retries=0)
    assert found.failure is not None
    assert (found.failure.kind, found.value) == ("infrastructure", None)
    assert "out of order" in found.failure.message


@pytest.mark.parametrize("wire", ["openai-responses", "anthropic", "google"])
async def test_a_request_that_the_provider_refuses_is_named(
    wire: ProviderWire, provider: str, sums: RemoteEnvironment
) -> None:
    """The stand-in does check: an unknown field or a missing key is refused."""
    base = f"{provider}/{'v1beta' if wire == 'google' else 'v1'}"
    for key, options, message in (("secret-key", {"nonsense": 1}, "nonsense"), ("", {}, "the key is missing")):
        async with ProviderPolicy(wire, "solver", base, key, options=options) as policy:
            (found,) = await rollout_all(sums, policy, n=1, retries=0)
        assert found.failure is not None
        assert message in found.failure.message


@asynccontextmanager
async def answering(*replies: Any) -> AsyncIterator[str]:
    """The address of an endpoint that gives these replies, the last one again and again; `(status, value)`."""
    left = list(replies)

    async def reply(request: web.Request) -> web.Response:
        status, value = left.pop(0) if len(left) > 1 else left[0]
        return web.Response(status=status, text=value if isinstance(value, str) else json.dumps(value))

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", reply)
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


async def play_replies(sums: RemoteEnvironment, wire: ProviderWire, *replies: Any) -> Trajectory:
    async with answering(*replies) as url:
        async with ProviderPolicy(wire, "m", url, "k", attempts=2, first_pause=0.01) as policy:
            (found,) = await rollout_all(sums, policy, n=1, retries=0)
    return found


BLOCKED = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 9}}
MALFORMED = {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "index": 0}]}


async def test_a_prompt_that_gemini_blocks_is_unscored_and_an_output_without_content_is_the_models_own(
    sums: RemoteEnvironment,
) -> None:
    blocked = await play_replies(sums, "google", (200, BLOCKED))
    assert blocked.failure is not None
    assert "the prompt was blocked: SAFETY" in blocked.failure.message
    empty = await play_replies(sums, "google", (200, MALFORMED))
    assert (empty.failure, empty.value) == (None, 0.0)


@pytest.mark.parametrize(
    ("wire", "error"),
    [
        ("anthropic", {"type": "error", "error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}}),
        ("openai-responses", {"error": {"message": "Your input exceeds the context window of this model."}}),
        ("google", {"error": {"code": 400, "message": "The input token count (1100000) exceeds the maximum"}}),
    ],
)
async def test_a_full_context_ends_the_episode_with_what_it_earned(
    wire: ProviderWire, error: Any, sums: RemoteEnvironment
) -> None:
    found = await play_replies(sums, wire, (400, error))
    assert (found.failure, found.stopped, found.value) == (None, "context_limit", 0.0)


@pytest.mark.parametrize("wire", get_args(ProviderWire))
@pytest.mark.parametrize(
    "reply", [[], "text", {}, {"output": 3}, {"content": [{}]}, {"candidates": [3]}, {"candidates": [{}]}, "{", "<p>",
              {"output": [{"type": "function_call"}]}, {"content": "a"}, {"usage": 3}],
)  # fmt: skip
async def test_replies_of_any_shape_are_the_endpoints_failure(
    wire: ProviderWire, reply: Any, sums: RemoteEnvironment
) -> None:
    found = await play_replies(sums, wire, (200, reply))
    assert found.failure is not None
    assert found.failure.kind == "infrastructure"


@pytest.mark.parametrize("wire", get_args(ProviderWire))
async def test_a_refused_key_stops_the_run(wire: ProviderWire, sums: RemoteEnvironment) -> None:
    async with answering((401, {"error": {"message": "bad key"}})) as url:
        async with ProviderPolicy(wire, "m", url, "k") as policy:
            with pytest.raises(Unauthenticated, match="bad key"):
                await rollout_all(sums, policy, n=1)


async def test_attempts_and_patience_of_a_model_reach_its_endpoint(sums: RemoteEnvironment) -> None:
    broken: Any = {"error": {"message": "gone"}}
    async with answering((500, broken)) as url:
        given = ModelSpec(model=f"openai:m@{url}", attempts=1, patience=0.5)
        async with open_model(given) as policy:
            (trajectory,) = await rollout_all(sums, policy, n=1, retries=0)
    assert trajectory.failure is not None
    assert "gone" in trajectory.failure.message
    assert (policy._endpoint._attempts, policy._endpoint._patience) == (1, 0.5)  # type: ignore[union-attr]


async def test_models_are_checked_before_the_first_episode() -> None:
    with pytest.raises(InvalidParams, match="set the environment variable ANTHROPIC_API_KEY"):
        async with open_model(ModelSpec(model="anthropic:claude"), {}):
            pass
    with pytest.raises(InvalidParams, match="set the environment variable MINE$"):
        async with open_model(ModelSpec(model="openai:m@http://localhost:1/v1", api_key_env="MINE"), {}):
            pass
    with pytest.raises(ConnectionFailed, match="is it running there"):
        async with open_model(ModelSpec(model="google:m@http://127.0.0.1:1/v1beta"), {}):
            pass


def checked(python: str, provider: str) -> dict[str, Any]:
    """Return the peer's verdict on everything that the stand-in has seen."""
    with urllib.request.urlopen(f"{provider}/requests", timeout=10) as reply:
        seen = reply.read()
    done = subprocess.run([python, str(CHECKER)], input=seen, capture_output=True, timeout=50, env=peer_variables())
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.suite("breadth")
async def test_the_providers_own_types_accept_the_requests_and_the_replies_of_the_stand_in(
    provider: str, sums: RemoteEnvironment
) -> None:
    python = python_of("openreward")
    for wire in WIRES:
        await play(sums, spec(wire, provider), n=3)
    report = await asyncio.to_thread(checked, python, provider)
    assert report["problems"] == []
    assert report["checked"] >= 6 * len(WIRES)
    assert report["planted"] == len(WIRES)


def test_policies_are_policies() -> None:
    policy: Policy = ProviderPolicy("anthropic", "m")
    assert policy is not None
