"""A model behind an endpoint plays; what the endpoint does wrong is never the model's reward."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from aiohttp import web

from ludus.client import Conversation, Harness, OpenAIPolicy, RemoteEnvironment, Turn, rollout_all
from ludus.protocol.errors import NotFound, Unauthenticated
from ludus.protocol.trajectory import Trajectory
from ludus.server import Environment, ImageBlock, Private, Result, Task, tool

Remote = Callable[..., Awaitable[RemoteEnvironment]]
Completion = Callable[..., dict[str, Any]]


class Word(Task):
    word: Private[str]


class Guessing(Environment[Word]):
    """Say the word."""

    splits = {"train": [Word(id=f"w{index}", word="yes") for index in range(4)]}

    def prompt(self) -> str:
        return "Say the word."

    @tool
    def peek(self, title: str = "", depth: int = 0) -> Result:
        """Look."""
        return Result(f"peeked {title} {depth}", reward=0.25)

    @tool
    def picture(self) -> list[str | ImageBlock]:
        """Look at it."""
        return ["here", ImageBlock.of(b"\x89PNG")]

    def grade(self, answer: str) -> float:
        return float(answer == self.task.word)


def model(endpoint: Any, **options: Any) -> OpenAIPolicy:
    values: dict[str, Any] = {"first_pause": 0.01, "timeout": 5.0, **options}
    return OpenAIPolicy("m", endpoint.url, "key", **values)


async def play(remote: Remote, policy: OpenAIPolicy, **options: Any) -> Trajectory:
    values: dict[str, Any] = {"retries": 0, **options}
    async with policy:
        (found,) = await rollout_all(await remote(Guessing), policy, n=1, **values)
    return found


async def test_tools_are_called_and_the_final_message_is_graded(
    remote: Remote, endpoint: Any, completion: Completion
) -> None:
    endpoint.say(completion("Let me look.", ("peek", {"title": "a", "depth": 2})), completion("yes"))
    found = await play(remote, model(endpoint, options={"temperature": 0.5}))
    assert found.value == 1.25
    assert found.outcome == "submitted"
    assert found.policy == "m"
    assert found.usage is not None
    assert (found.usage.requests, found.usage.input_tokens, found.usage.output_tokens) == (2, 20, 10)
    first, second = endpoint.requests
    assert first["model"] == "m"
    assert first["temperature"] == 0.5
    assert [t["function"]["name"] for t in first["tools"]] == ["peek", "picture"]
    assert set(first["tools"][0]["function"]["parameters"]["properties"]) == {"title", "depth"}
    assert endpoint.headers[0]["Authorization"] == "Bearer key"
    assert [m["role"] for m in second["messages"]] == ["user", "assistant", "tool"]
    assert second["messages"][2] == {"role": "tool", "tool_call_id": "c0", "content": "peeked a 2"}


async def test_parallel_calls_are_answered_each_under_its_id(
    remote: Remote, endpoint: Any, completion: Completion
) -> None:
    calls = [("peek", {"depth": depth}) for depth in range(4)]
    endpoint.say(completion(None, *calls, ("picture", {})), completion("no"))
    found = await play(remote, model(endpoint))
    answers = [m for m in endpoint.requests[1]["messages"] if m["role"] == "tool"]
    assert [m["tool_call_id"] for m in answers] == ["c0", "c1", "c2", "c3", "c4"]
    assert [m["content"] for m in answers][:4] == [f"peeked  {depth}" for depth in range(4)]
    assert endpoint.requests[1]["messages"][-1]["content"][1]["type"] == "image_url"
    assert found.value == 1.0


async def test_ids_that_an_endpoint_uses_again_become_unique_in_the_trajectory(
    remote: Remote, endpoint: Any, completion: Completion
) -> None:
    looks = completion(None, ("peek", {"depth": 1}), ("peek", {"depth": 2}))
    endpoint.say(looks, looks, completion("yes"))
    found = await play(remote, model(endpoint))
    ids = [item["call_id"] for item in found.items if item["type"] == "function_call"]
    assert len(set(ids)) == 4
    assert [step.call_id for step in found.steps] == ids
    last = endpoint.requests[2]["messages"]
    assert [m["tool_call_id"] for m in last if m["role"] == "tool"] == ["c0", "c1"] * 2


async def test_arguments_that_are_no_json_are_shown_to_the_model_and_the_episode_goes_on(
    remote: Remote, endpoint: Any, completion: Completion
) -> None:
    endpoint.say(
        completion(None, ("peek", '{"depth": ')),
        completion(None, ("peek", {"depth": "deep"})),
        completion(None, ("peek", '{"title": "\\ud800"}')),
        completion("yes"),
    )
    found = await play(remote, model(endpoint))
    assert found.failure is None
    assert found.value == 1.0
    assert [step.error for step in found.steps] == ["invalid_arguments"] * 3
    assert "not valid JSON" in endpoint.requests[1]["messages"][-1]["content"]
    sent = [call["function"] for message in endpoint.requests[3]["messages"] for call in message.get("tool_calls", [])]
    assert [json.loads(function["arguments"]) for function in sent] == [
        {"malformed_arguments": '{"depth": '}, {"depth": "deep"}, {"malformed_arguments": '{"title": "\\ud800"}'},
    ]  # fmt: skip
    assert "depth" in endpoint.requests[2]["messages"][-1]["content"]


async def test_an_empty_message_is_an_empty_answer(remote: Remote, endpoint: Any, completion: Completion) -> None:
    endpoint.say(completion(None))
    found = await play(remote, model(endpoint))
    assert found.value == 0.0
    assert found.outcome == "submitted"


@pytest.mark.parametrize(
    "trouble",
    [
        lambda: web.Response(status=500, text="oops"),
        lambda: web.json_response({"error": {"message": "slow down"}}, status=429, headers={"Retry-After": "0.01"}),
        lambda: web.Response(status=200, text="<html>"),
        lambda: web.json_response({"error": {"message": "upstream"}}),
        lambda: web.json_response({"choices": []}),
        lambda: web.json_response([1]),
    ],
    ids=["500", "429", "no JSON", "error in 200", "no choices", "a list"],
)
async def test_trouble_that_passes_leaves_no_trace_in_the_reward(
    remote: Remote, endpoint: Any, completion: Completion, trouble: Callable[[], web.Response]
) -> None:
    endpoint.say(lambda _: trouble(), lambda _: trouble(), completion("yes"))
    found = await play(remote, model(endpoint))
    assert found.value == 1.0
    assert found.attempts == 1
    assert len(endpoint.requests) == 3


async def test_trouble_that_stays_is_an_infrastructure_failure_without_reward(remote: Remote, endpoint: Any) -> None:
    endpoint.say(lambda _: web.Response(status=503, text="down"))
    found = await play(remote, model(endpoint, attempts=3))
    assert len(endpoint.requests) == 3
    assert found.reward is None
    assert found.failure is not None
    assert (found.failure.kind, found.failure.error) == ("infrastructure", "InfrastructureFailed")
    assert "503: down" in found.failure.message


async def test_a_request_the_endpoint_refuses_is_not_repeated(remote: Remote, endpoint: Any) -> None:
    endpoint.say(lambda _: web.json_response({"error": {"message": "bad tools"}}, status=400))
    found = await play(remote, model(endpoint))
    assert len(endpoint.requests) == 1
    assert found.failure is not None
    assert "bad tools" in found.failure.message


async def test_an_endpoint_that_never_answers_is_a_failure(remote: Remote, endpoint: Any) -> None:
    async def never(_: Any) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    endpoint.say(never)
    found = await play(remote, model(endpoint, timeout=0.1, attempts=2))
    assert found.failure is not None
    assert found.failure.error == "DeadlineExceeded"


async def test_no_endpoint_at_all_is_a_failure(remote: Remote) -> None:
    policy = OpenAIPolicy("m", "http://127.0.0.1:9/v1", attempts=2, first_pause=0.01)
    found = await play(remote, policy)
    assert found.failure is not None
    assert found.failure.error == "ConnectionFailed"


@pytest.mark.parametrize(("status", "error"), [(401, Unauthenticated), (404, NotFound)])
async def test_a_refused_key_or_model_ends_the_rollout(
    remote: Remote, endpoint: Any, status: int, error: type[Exception]
) -> None:
    endpoint.say(lambda _: web.json_response({"error": {"message": "no such thing"}}, status=status))
    with pytest.raises(error, match="no such thing"):
        await play(remote, model(endpoint))


async def test_a_full_context_stops_the_episode_with_what_it_earned(
    remote: Remote, endpoint: Any, completion: Completion
) -> None:
    full = {"error": {"message": "This model's maximum context length is 4096 tokens."}}
    endpoint.say(completion(None, ("peek", {})), lambda _: web.json_response(full, status=400))
    found = await play(remote, model(endpoint))
    assert found.outcome == "closed (context_limit)"
    assert found.value == 0.25


async def test_a_proxy_of_the_environment_variables_is_used_unless_the_host_is_excepted(
    remote: Remote, endpoint: Any, completion: Completion, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.say(completion("yes"))
    monkeypatch.setenv("HTTP_PROXY", endpoint.url.removesuffix("/v1"))
    policy = OpenAIPolicy("m", "http://model.invalid/v1", attempts=1)
    found = await play(remote, policy)
    assert found.value == 1.0
    assert endpoint.headers[-1]["Host"] == "model.invalid"
    monkeypatch.setenv("NO_PROXY", "model.invalid")
    assert (await play(remote, OpenAIPolicy("m", "http://model.invalid/v1", attempts=1))).failure is not None


@pytest.mark.parametrize("options", [{"api_key": "key\n"}, {"headers": {"X-Team": "a\r\nb"}}])
def test_a_header_with_a_line_break_is_refused_without_its_value(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="line break") as refused:
        OpenAIPolicy("m", **options)
    assert "key" not in str(refused.value)


async def test_many_episodes_share_one_endpoint(remote: Remote, endpoint: Any, completion: Completion) -> None:
    def answer(body: dict[str, Any]) -> dict[str, Any]:
        return completion("yes") if len(body["messages"]) > 1 else completion(None, ("peek", {}))

    endpoint.say(answer)
    async with model(endpoint) as policy:
        found = await rollout_all(await remote(Guessing), policy, samples=8, harness=Harness(max_turns=5))
    assert len(found) == 32
    assert {t.value for t in found} == {1.25}


# ── a client of the caller's own ───────────────────────────────────────────────────────────────────────────────────


def sending(client: httpx.AsyncClient, url: str) -> Callable[[dict[str, Any]], Awaitable[object]]:
    async def send(body: dict[str, Any]) -> object:
        response = await client.post(f"{url}/chat/completions", json=body)
        response.raise_for_status()
        return response.json()

    return send


async def test_a_client_of_the_callers_own_makes_the_requests(
    remote: Remote, endpoint: Any, completion: Completion
) -> None:
    endpoint.say(completion(None, ("peek", {"title": "a"})), completion("yes"))
    async with httpx.AsyncClient() as client:
        played = await play(remote, OpenAIPolicy("m", options={"top_k": 5}, send=sending(client, endpoint.url)))
    assert played.value == 1.25
    assert [request["top_k"] for request in endpoint.requests] == [5, 5]


async def test_the_whole_reply_is_kept_with_the_turn_as_the_given_client_returned_it(remote: Remote) -> None:
    class Completion:
        """As an object of `openai`: fields that are not set are None."""

        def model_dump(self) -> dict[str, Any]:
            message = {"role": "assistant", "content": "yes", "tool_calls": None, "refusal": None}
            return {"choices": [{"message": message, "logprobs": {"content": [1]}}], "usage": None, "error": None}

    given = Completion()

    async def send(body: dict[str, Any]) -> object:
        return given

    policy, turns = OpenAIPolicy("m", send=send), []

    async def keeping(conversation: Conversation) -> Turn:
        turns.append(await policy(conversation))
        return turns[-1]

    (played,) = await rollout_all(await remote(Guessing), keeping, n=1)
    assert played.value == 1.0
    assert [turn.raw for turn in turns] == [given]


async def test_a_given_client_may_change_the_request_it_gets(remote: Remote) -> None:
    seen: list[str] = []

    async def send(body: dict[str, Any]) -> object:
        seen.extend(tool["function"].pop("name") for tool in body["tools"])
        return {"choices": [{"message": {"role": "assistant", "content": "yes"}}]}

    policy = OpenAIPolicy("m", send=send)
    played = await rollout_all(await remote(Guessing), policy, tasks=[0], samples=3)
    assert [one.failure for one in played] == [None] * 3
    assert len(seen) == 3 * len(set(seen))


async def test_a_given_clients_error_with_a_status_means_what_the_status_means(remote: Remote, endpoint: Any) -> None:
    endpoint.say(web.json_response({"error": {"message": "who are you?"}}, status=401))
    async with httpx.AsyncClient() as client:
        with pytest.raises(Unauthenticated, match="who are you"):
            await play(remote, OpenAIPolicy("m", send=sending(client, endpoint.url)))


async def test_a_given_client_that_fails_is_an_infrastructure_failure_after_the_attempts(remote: Remote) -> None:
    asked = 0

    async def send(body: dict[str, Any]) -> object:
        nonlocal asked
        asked += 1
        raise httpx.ConnectError("all wires are down")

    played = await play(remote, OpenAIPolicy("m", attempts=3, first_pause=0.001, send=send))
    assert asked == 3
    assert played.value is None
    assert played.failure is not None
    assert played.failure.kind == "infrastructure"
    assert "ConnectError: all wires are down" in played.failure.message
