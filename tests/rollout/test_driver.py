"""Code that owns its own loop drives an episode with a provider's messages, and never counts a failure as a reward."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from ludus.client import RemoteEnvironment
from ludus.client.formats import FormatName
from ludus.protocol.errors import EnvironmentFailed, InvalidParams
from ludus.protocol.items import CallItem, OutputItem
from ludus.server import Environment, Private, Result, Reward, Task, tool

Remote = Callable[..., Awaitable[RemoteEnvironment]]
Made = tuple[str, str, dict[str, Any]]
"""The id, tool and arguments of a call."""


class Number(Task):
    answer: Private[int] = 42


class Guessing(Environment[Number]):
    """Guess the number."""

    splits = {"train": [Number(id="only")]}

    def prompt(self) -> str:
        return "Guess."

    @tool
    def ask(self, number: int) -> Result:
        """Ask whether a number is smaller."""
        return Result("smaller" if number < self.task.answer else "not smaller", reward=0.25, components={"asked": 1.0})

    @tool
    def guess(self, number: int) -> Result:
        """Guess, which ends the episode."""
        return Result("right" if number == self.task.answer else "wrong", reward=float(number == 42), finished=True)

    @tool
    def crash(self) -> str:
        """Break."""
        raise RuntimeError("boom")

    @tool
    def unjudged(self) -> Result:
        """End without a reward."""
        return Result("", reward=Reward.unscored("no verdict"), finished=True)

    def grade(self, answer: str) -> float:
        return float(answer == "42")


@dataclass(frozen=True)
class Provider:
    """How a provider writes a reply, and where its requests hold the conversation."""

    form: FormatName
    write: Callable[[str, list[Made]], dict[str, Any]]
    outputs: Callable[[list[dict[str, Any]]], list[str]]
    """The texts of the tools' outputs in some entries of a request."""


def write_chat(text: str, calls: list[Made]) -> dict[str, Any]:
    made = [
        {"id": i, "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        for i, name, given in calls
    ]
    message = {"role": "assistant", "content": text or None, "reasoning_content": "hm"}
    return {"choices": [{"message": message | ({"tool_calls": made} if made else {})}]}


def write_responses(text: str, calls: list[Made]) -> dict[str, Any]:
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    made = [
        {"type": "function_call", "call_id": i, "name": name, "arguments": json.dumps(given)}
        for i, name, given in calls
    ]
    return {"output": [{"type": "reasoning", "id": "r", "summary": []}, *([said] if text else []), *made]}


def write_anthropic(text: str, calls: list[Made]) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = [{"type": "thinking", "thinking": "hm", "signature": "s"}]
    blocks += [{"type": "text", "text": text}] if text else []
    blocks += [{"type": "tool_use", "id": i, "name": name, "input": given} for i, name, given in calls]
    return {"role": "assistant", "content": blocks}


def write_google(text: str, calls: list[Made]) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [{"text": "hm", "thought": True, "thoughtSignature": "s"}]
    parts += [{"text": text}] if text else []
    parts += [{"functionCall": {"id": i, "name": name, "args": given}} for i, name, given in calls]
    return {"candidates": [{"content": {"role": "model", "parts": parts}}]}


PROVIDERS = [
    Provider("openai-chat", write_chat, lambda new: [one["content"] for one in new if one["role"] == "tool"]),
    Provider("openai-responses", write_responses, lambda new: [one["output"] for one in new]),
    Provider(
        "anthropic", write_anthropic, lambda new: [part["content"][0]["text"] for one in new for part in one["content"]]
    ),
    Provider(
        "google",
        write_google,
        lambda new: [next(iter(p["functionResponse"]["response"].values())) for one in new for p in one["parts"]],
    ),
]

provider_forms = pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.form)


@provider_forms
async def test_an_episode_is_driven_with_the_messages_of_each_provider(remote: Remote, provider: Provider) -> None:
    environment = await remote(Guessing)
    async with environment.drive(form=provider.form) as driver:
        assert len(driver.messages) == 1
        reply = provider.write("Two at once.", [("a", "ask", {"number": 7}), ("b", "ask", {"number": 50})])
        observations, done = await driver.act(reply)
        assert not done
        assert provider.outputs(observations) == ["smaller", "not smaller"]
        observations, done = await driver.act(provider.write("", [("a", "guess", {"number": 42})]))
        assert done
        assert provider.outputs(observations) == ["right"]
        outcome = await driver.finish()
    assert (outcome.value, outcome.reason, outcome.stopped) == (1.5, "", None)
    assert outcome.components["asked"] == 2.0
    outcome.raise_for_failure()


@provider_forms
async def test_the_next_request_repeats_the_reply_with_the_providers_own_fields(
    remote: Remote, provider: Provider
) -> None:
    environment = await remote(Guessing)
    async with environment.drive(form=provider.form) as driver:
        reply = provider.write("", [("a", "ask", {"number": 7})])
        before = len(driver.messages)
        observations, _ = await driver.act(reply)
        new = driver.messages[before:]
        assert new[-len(observations) :] == observations
        written = json.dumps(reply)
        for entry in new[: -len(observations)]:
            own = {name: value for name, value in entry.items() if name != "role"}
            assert all(json.dumps(value) in written for value in own.values())
        assert any(word in json.dumps(new[0]) for word in ("hm", "reasoning"))
        assert driver.request["tools"] == driver.tools


@pytest.mark.parametrize(
    ("form", "call", "wrong"),
    [
        (
            "hermes",
            '<tool_call>{"name": "ask", "arguments": {"number": 7}}</tool_call>',
            "<tool_call>ask 7</tool_call>",
        ),
        ("llama", '{"name": "ask", "parameters": {"number": 7}}', '<|python_tag|>{"name": "ask", "parameters": {'),
        ("pythonic", "[ask(number=7)]", "[ask(7)]"),
    ],
)
async def test_sampled_text_with_calls_drives_an_episode(
    remote: Remote, form: FormatName, call: str, wrong: str
) -> None:
    environment = await remote(Guessing)
    async with environment.drive(form=form) as driver:
        observations, done = await driver.act(f"<think>{call}</think>\n{call}")
        assert [one["content"] for one in observations] == ["smaller"]
        assert driver.messages[1] == {"role": "assistant", "content": f"<think>{call}</think>\n{call}"}
        observations, done = await driver.act(wrong)
        assert not done
        assert observations[0]["content"].startswith("Error: ")
        assert (await driver.act("<think>hm</think>42")).done
        assert (await driver.finish()).value == 1.25


async def test_call_ids_that_repeat_are_unique_in_the_record_and_unchanged_for_the_provider(remote: Remote) -> None:
    environment = await remote(Guessing)
    async with environment.drive() as driver:
        for _ in range(2):
            observations, _ = await driver.act(write_chat("", [("same", "ask", {"number": 7})]))
            assert [one["tool_call_id"] for one in observations] == ["same"]
        await driver.finish()
        recorded = [item.call_id for item in driver.items if isinstance(item, CallItem)]
        answered = [item.call_id for item in driver.items if isinstance(item, OutputItem)]
    assert recorded == answered
    assert len(set(recorded)) == 2


async def test_a_message_without_calls_is_graded(remote: Remote) -> None:
    environment = await remote(Guessing)
    async with environment.drive() as driver:
        observations, done = await driver.act("42")
        assert (observations, done) == ([], True)
        assert driver.messages[-1] == {"role": "assistant", "content": "42"}
        assert (await driver.finish()).value == 1.0
        assert (await driver.finish()).value == 1.0


async def test_an_object_of_a_providers_package_is_a_reply(remote: Remote) -> None:
    class Completion(BaseModel):
        role: str = "assistant"
        content: str | None = "42"
        refusal: str | None = None

    environment = await remote(Guessing)
    async with environment.drive() as driver:
        assert (await driver.act(Completion())).done
        assert (await driver.finish()).value == 1.0


async def test_an_episode_that_its_caller_stops_keeps_what_it_has_earned(remote: Remote) -> None:
    environment = await remote(Guessing)
    async with environment.drive() as driver:
        await driver.act(write_chat("", [("a", "ask", {"number": 7})]))
        outcome = await driver.finish("context_limit")
        trajectory = driver.trajectory("mine")
    assert (outcome.value, outcome.stopped, str(outcome.end_reason)) == (0.25, "context_limit", "closed")
    assert (trajectory.value, trajectory.policy, trajectory.status) == (0.25, "mine", "truncated")


async def test_mistakes_of_the_policy_are_observations(remote: Remote) -> None:
    environment = await remote(Guessing)
    async with environment.drive() as driver:
        calls = write_chat("", [("a", "gess", {}), ("b", "ask", {"number": "many"})])
        calls["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = '{"number":'
        observations, done = await driver.act(calls)
        assert not done
        assert "not valid JSON" in observations[0]["content"]
        assert "Wrong arguments for ask" in observations[1]["content"]
        assert (await driver.finish()).value == 0.0


async def test_a_broken_environment_ends_the_drive_unscored_with_its_cause(remote: Remote) -> None:
    environment = await remote(Guessing)
    async with environment.drive() as driver:
        observations, done = await driver.act(write_chat("", [("a", "ask", {"number": 7}), ("b", "crash", {})]))
        assert done
        assert [one["tool_call_id"] for one in observations] == ["a"]
        outcome = await driver.finish()
    assert outcome.value is None
    assert outcome.failure is not None
    assert outcome.failure.kind == "environment"
    assert outcome.failure.incident
    assert outcome.failure.message in outcome.reason
    with pytest.raises(EnvironmentFailed, match="crash") as raised:
        outcome.raise_for_failure()
    assert raised.value.incident == outcome.failure.incident
    with pytest.raises(EnvironmentFailed):
        driver.trajectory("mine").raise_for_failure()


async def test_an_unscored_reward_is_no_failure_and_says_why(remote: Remote) -> None:
    environment = await remote(Guessing)
    async with environment.drive() as driver:
        await driver.act(write_chat("", [("a", "unjudged", {})]))
        outcome = await driver.finish()
    assert (outcome.value, outcome.reason, outcome.failure) == (None, "no verdict", None)


@pytest.mark.parametrize(
    "choice",
    [
        {"finish_reason": "error", "message": {"role": "assistant", "content": "42"}},
        {"finish_reason": "half", "message": {"role": "assistant", "content": "42"}},
        {"finish_reason": "stop", "error": {"message": "out of memory"}, "message": {"role": "assistant"}},
    ],
    ids=["failed", "unknown", "error"],
)
async def test_a_response_that_its_endpoint_did_not_end_well_is_refused_and_changes_nothing(
    choice: dict[str, Any], remote: Remote
) -> None:
    environment = await remote(Guessing)
    async with environment.drive() as driver:
        await driver.act(write_chat("", [("a", "ask", {"number": 7})]))
        with pytest.raises(InvalidParams, match="the endpoint answered, but .*; ask again"):
            await driver.act({"choices": [choice]})
        assert not driver.done
        assert (await driver.act("42")).done
        assert (await driver.finish()).value == 1.25


async def test_a_response_of_a_full_context_ends_the_episode_with_what_it_earned(remote: Remote) -> None:
    message = {"role": "assistant", "content": "42"}
    environment = await remote(Guessing)
    async with environment.drive() as driver:
        await driver.act(write_chat("", [("a", "ask", {"number": 7})]))
        choice = {"finish_reason": "model_context_window_exceeded", "message": message}
        assert (await driver.act({"choices": [choice]})).done
        outcome = await driver.finish()
    assert (outcome.value, outcome.stopped) == (0.25, "context_limit")


async def test_a_message_after_the_end_is_refused(remote: Remote) -> None:
    environment = await remote(Guessing)
    async with environment.drive() as driver:
        await driver.act("42")
        with pytest.raises(InvalidParams, match="call finish"):
            await driver.act("42")


@provider_forms
@pytest.mark.parametrize("reply", [{"error": "overloaded"}, {"choices": []}, 7, None], ids=repr)
async def test_something_else_than_a_reply_is_refused_and_changes_nothing(
    remote: Remote, provider: Provider, reply: Any
) -> None:
    environment = await remote(Guessing)
    async with environment.drive(form=provider.form) as driver:
        before = json.dumps(driver.request)
        with pytest.raises(InvalidParams, match="not a reply"):
            await driver.act(reply)
        assert json.dumps(driver.request) == before
        assert not driver.done


async def test_leaving_the_block_closes_the_episode(remote: Remote) -> None:
    environment = await remote(Guessing)
    opened = []

    async def break_off() -> None:
        async with environment.drive() as driver:
            opened.append(driver.episode)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await break_off()
    assert (await opened[0].info()).end_reason is not None
