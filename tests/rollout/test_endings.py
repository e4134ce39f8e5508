"""How outputs end at model endpoints: a failure that an endpoint reports with status 200 is never graded."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, get_args

import pytest
from aiohttp import web

from ludus.client import Harness, OpenAIPolicy, RemoteEnvironment, rollout_all
from ludus.client.policies import endpoint as endpoint_module
from ludus.client.policies.providers import ProviderPolicy
from ludus.forms.endings import ENDINGS, Ending, error_details, read_ending
from ludus.forms.tool_calls import spoken_text
from ludus.protocol.trajectory import Trajectory
from ludus.server import Environment, Private, Result, Task, tool

Remote = Callable[..., Awaitable[RemoteEnvironment]]
WIRES = ("openai", "openai-responses", "anthropic", "google")


class Word(Task):
    word: Private[str]


class Saying(Environment[Word]):
    """Say the word."""

    splits = {"train": [Word(id="w", word="yes")]}

    def prompt(self) -> str:
        return "Say the word."

    @tool
    def peek(self) -> Result:
        """Look."""
        return Result("peeked", reward=0.25)

    def grade(self, answer: str) -> float:
        return float(answer.strip() == self.task.word)


def reply(wire: str, text: str | None, ending: str | None, **more: Any) -> dict[str, Any]:
    """Return a reply with a text and an ending, in the form of a wire."""
    if wire == "openai":
        return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": ending, **more}]}
    if wire == "anthropic":
        return {"role": "assistant", "content": [{"type": "text", "text": text or ""}], "stop_reason": ending, **more}
    if wire == "google":
        parts = [{"text": text}] if text else []
        return {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": ending}], **more}
    content = [{"type": "output_text", "text": text or "", "annotations": []}]
    message = {"type": "message", "role": "assistant", "content": content}
    words = {"stop": "completed", "end_turn": "completed", None: None}
    state: dict[str, Any] = {"status": words.get(ending, ending)}
    if ending in ("max_output_tokens", "content_filter", "half"):
        state = {"status": "incomplete", "incomplete_details": {"reason": ending}}
    return {"output": [message], **state, **more}


@asynccontextmanager
async def answering(*replies: Any) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """Serve replies one after another, the last one again and again, at any path."""
    waiting, requests = list(replies), []

    async def answer(request: web.Request) -> web.StreamResponse:
        requests.append(await request.json())
        value: Any = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        reply: Any = value() if callable(value) else web.json_response(value)
        assert isinstance(reply, web.StreamResponse)
        return reply

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1", requests
    finally:
        await runner.cleanup()


def policy(wire: str, url: str, **options: Any) -> OpenAIPolicy | ProviderPolicy:
    values: dict[str, Any] = {"first_pause": 0.001, "timeout": 5.0, "attempts": 2, **options}
    if wire == "openai":
        return OpenAIPolicy("m", url, "key", **values)
    return ProviderPolicy(wire, "m", url, "key", **values)  # type: ignore[arg-type]


async def play(remote: Remote, wire: str, *replies: Any, **options: Any) -> tuple[Trajectory, list[dict[str, Any]]]:
    async with answering(*replies) as (url, requests), policy(wire, url, **options) as chosen:
        (trajectory,) = await rollout_all(await remote(Saying), chosen, n=1, retries=0, harness=Harness())
    return trajectory, requests


FAILURES = {
    "openai": ("error", "abort", "network_error", "insufficient_system_resource", "a_new_word"),
    "openai-responses": ("failed", "cancelled", "in_progress", "queued", "half", "a_new_word"),
    "anthropic": ("error", "pause_turn", "a_new_word"),
    "google": ("OTHER", "MALFORMED_RESPONSE", "FINISH_REASON_UNSPECIFIED", "A_NEW_WORD"),
}


@pytest.mark.parametrize("text", ["", "ye", "yes"])
@pytest.mark.parametrize(("wire", "ending"), [(wire, word) for wire, words in FAILURES.items() for word in words])
async def test_an_output_that_the_endpoint_ended_is_unscored_whatever_it_holds(
    wire: str, ending: str, text: str, remote: Remote
) -> None:
    trajectory, _ = await play(remote, wire, reply(wire, text, ending))
    assert trajectory.value is None
    assert trajectory.failure is not None
    assert trajectory.failure.kind == "infrastructure"
    assert ending in trajectory.failure.message


@pytest.mark.parametrize("wire", WIRES)
async def test_a_failure_that_passes_leaves_no_trace(wire: str, remote: Remote) -> None:
    failure = FAILURES[wire][0]
    trajectory, requests = await play(remote, wire, reply(wire, "y", failure), reply(wire, "yes", "stop"))
    assert trajectory.value == 1.0
    assert len(requests) == 2


@pytest.mark.parametrize(
    "choice",
    [
        {"error": {"code": 502, "message": "the provider is gone"}, "finish_reason": None},
        {"error": {"code": 502, "message": "the provider is gone"}, "finish_reason": "stop"},
        {"error": "the provider is gone", "finish_reason": "error"},
        {"message": {"role": "assistant", "content": "", "error": {"message": "the provider is gone"}}},
        {"message": None, "finish_reason": "error", "error": {"message": "the provider is gone"}},
    ],
)
async def test_an_error_in_the_first_choice_is_a_failure_with_its_message(
    choice: dict[str, Any], remote: Remote
) -> None:
    body = {"choices": [{"message": {"role": "assistant", "content": "ye"}, **choice}]}
    trajectory, _ = await play(remote, "openai", body)
    assert trajectory.value is None
    assert trajectory.failure is not None
    assert "the provider is gone" in trajectory.failure.message


@pytest.mark.parametrize(
    ("wire", "ending", "value"),
    [
        ("openai", "length", 1.0), ("openai", "content_filter", 1.0), ("openai", "stop", 1.0), ("openai", None, 1.0),
        ("openai", "STOP", 1.0), ("openai", "eos", 1.0), ("openai-responses", "max_output_tokens", 1.0),
        ("openai-responses", "content_filter", 1.0), ("anthropic", "max_tokens", 1.0), ("anthropic", "refusal", 1.0),
        ("google", "SAFETY", 1.0), ("google", "MAX_TOKENS", 1.0), ("google", "MALFORMED_FUNCTION_CALL", 1.0),
    ],
)  # fmt: skip
async def test_an_output_that_the_model_or_a_limit_ended_is_graded_as_it_is(
    wire: str, ending: str | None, value: float, remote: Remote
) -> None:
    right, _ = await play(remote, wire, reply(wire, "yes", ending))
    wrong, _ = await play(remote, wire, reply(wire, "no", ending))
    assert (right.value, wrong.value) == (value, 0.0)


@pytest.mark.parametrize(
    ("wire", "ending"), [("openai", "model_length"), ("anthropic", "model_context_window_exceeded")]
)
async def test_an_output_that_the_models_context_ended_stops_the_episode(
    wire: str, ending: str, remote: Remote
) -> None:
    trajectory, _ = await play(remote, wire, reply(wire, "ye", ending))
    assert (trajectory.stopped, trajectory.failure) == ("context_limit", None)


async def test_nothing_and_no_ending_is_no_output(remote: Remote) -> None:
    trajectory, _ = await play(remote, "openai", reply("openai", None, None))
    assert trajectory.failure is not None
    empty, _ = await play(remote, "openai", reply("openai", "", "stop"))
    assert empty.value == 0.0


def test_the_words_of_the_table_are_in_lower_case_and_mean_one_thing_each() -> None:
    assert set(ENDINGS.values()) == {*get_args(Ending)} - {"unknown"}
    assert all(word == word.lower() for word in ENDINGS)
    assert read_ending({"choices": [{"finish_reason": "stop"}]}).problem is None


# ── what the next request repeats ─────────────────────────────────────────────────────────────────────────────────


CALL = {"id": "c0", "type": "function", "function": {"name": "peek", "arguments": "{}"}}


@pytest.mark.parametrize(
    "extra",
    [
        {"reasoning_content": "I look."},
        {
            "reasoning": "I look.",
            "reasoning_details": [{"type": "reasoning.text", "text": "I look.", "signature": "s"}],
        },
        {"thinking_blocks": [{"type": "thinking", "thinking": "I look.", "signature": "s"}]},
        {"provider_specific_fields": {"thought_signature": "s"}},
    ],
)
async def test_the_next_request_repeats_what_the_endpoint_gave_with_a_call(
    extra: dict[str, Any], remote: Remote
) -> None:
    call = {**CALL, "extra_content": {"google": {"thought_signature": "t"}}}
    message = {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None, "audio": None, **extra}
    first = {"choices": [{"message": message, "finish_reason": "tool_calls"}]}
    trajectory, requests = await play(remote, "openai", first, reply("openai", "yes", "stop"))
    assert trajectory.value == 1.25
    assert requests[1]["messages"][1] == {"role": "assistant", "content": None, "tool_calls": [call], **extra}
    assert requests[1]["messages"][2] == {"role": "tool", "tool_call_id": "c0", "content": "peeked"}


async def test_calls_without_ids_get_ids_and_broken_texts_are_replaced(remote: Remote) -> None:
    call = {"type": "function", "function": {"name": "peek", "arguments": ""}}
    message = {"role": "assistant", "content": "\ud800", "tool_calls": [call]}
    body = json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}]})
    first = lambda: web.Response(text=body, content_type="application/json")  # noqa: E731
    trajectory, requests = await play(remote, "openai", first, reply("openai", "yes", "stop"))
    assert trajectory.value == 1.25
    assert requests[1]["messages"][1]["tool_calls"] == [
        {"type": "function", "id": "call_0", "function": {"name": "peek", "arguments": "{}"}}
    ]
    assert requests[1]["messages"][1]["content"] == "\ufffd"
    assert requests[1]["messages"][2]["tool_call_id"] == "call_0"


async def test_an_empty_list_of_calls_is_not_repeated(remote: Remote) -> None:
    message = {"role": "assistant", "content": "yes", "tool_calls": []}
    trajectory, _ = await play(remote, "openai", {"choices": [{"message": message, "finish_reason": "stop"}]})
    assert trajectory.value == 1.0


# ── a full context ────────────────────────────────────────────────────────────────────────────────────────────────

FULL = (
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "Unable to submit request because the input token count is 1200000 but model only supports up to 1048576.",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "max_tokens must be at least 1, got -500.",
    "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
    "the request exceeds the available context size, try increasing it",
    "input is too large to process. increase the physical batch size",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens",
    "Input validation error: `inputs` must have less than 1000 tokens. Given: 2000",
    "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "Please reduce the length of the messages or completion.",
    "too many tokens: total number of tokens in the prompt exceeds the limit of 4081",
    "Input is too long for requested model.",
    "This model's maximum prompt length is 131072 but the request contains 150000 tokens.",
    "However, the model is loaded with context length of only 4096 tokens, which is not enough.",
    "The number of tokens to keep from the initial prompt is greater than the context length.",
    "Range of input length should be [1, 30720]",
    "Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)",
    "invalid params, context window exceeds limit (2013)",
    "prompt token count of 140000 exceeds the limit of 128000",
    "Prompt length (5000) exceeds maximum input length (4096)",
    "Prompt length 5000 is greater than max_seq_len 4096",
    "litellm.ContextWindowExceededError: litellm.BadRequestError: this model cannot take it",
    "Request body too large for gpt-4o model. Max size: 8000 tokens.",
)
NOT_FULL = (
    "Rate limit reached for m in organization o on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.",
    "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 9000, please reduce it",
    "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, you gave 100000.",
    "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for m",
    "Invalid value for 'temperature': must be at most 2",
    "Invalid 'messages[3].tool_calls': empty array. Expected an array with minimum length 1",
    "CUDA out of memory",
    'Post "http://x": context deadline exceeded',
    "Too many images in request: maximum 50",
    "upstream connect error or disconnect/reset before headers",
)


@pytest.mark.parametrize("message", FULL)
async def test_a_full_context_is_known_in_the_words_of_many_endpoints(message: str) -> None:
    error = {"error": {"message": message}}
    for body in (error, [error], {"error": message}, {"message": message}, {"detail": message}, message):
        assert error_details(body).says_context_full


@pytest.mark.parametrize("message", NOT_FULL)
async def test_other_errors_are_no_full_context(message: str) -> None:
    assert not error_details({"error": {"message": message}}).says_context_full


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, {"message": "no", "code": "context_length_exceeded"}),
        (400, {"message": "no", "type": "exceed_context_size_error"}),
        (413, {"message": "Request Entity Too Large"}),
        (500, {"message": FULL[9]}),
        (400, {"message": "Provider returned error", "metadata": {"raw": FULL[2]}}),
        (200, {"message": FULL[0]}),
    ],
)
async def test_a_full_context_stops_the_episode_at_any_status(
    status: int, error: dict[str, Any], remote: Remote
) -> None:
    first = {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [CALL]}}]}
    trajectory, requests = await play(
        remote, "openai", first, lambda: web.json_response({"error": error}, status=status)
    )
    assert (trajectory.stopped, trajectory.failure, trajectory.value) == ("context_limit", None, 0.25)
    assert len(requests) == 2


# ── limits of requests ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between attempts, in seconds, none of which is made."""
    taken: list[float] = []

    async def pause(seconds: float) -> None:
        taken.append(seconds)

    monkeypatch.setattr(endpoint_module, "_sleep", pause)
    return taken


def busy(headers: dict[str, str] | None = None, message: str = "slow down", **error: str) -> Callable[[], web.Response]:
    return lambda: web.json_response({"error": {"message": message, **error}}, status=429, headers=headers)


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (busy({"Retry-After": "45"}), 45.0), (busy({"retry-after-ms": "1500"}), 1.5),
        (busy(message="Please try again in 7.66s."), 7.66), (busy(message="Please try again in 1m2s."), 62.0),
        (busy({"x-ratelimit-reset": "20"}), 20.0),
        (lambda: web.json_response({"error": {"message": "no", "details": [{"retryDelay": "34s"}]}}, status=429), 34.0),
    ],
)  # fmt: skip
async def test_a_busy_endpoint_is_asked_again_when_it_says(
    answer: Callable[[], web.Response], seconds: float, remote: Remote, pauses: list[float]
) -> None:
    trajectory, _ = await play(remote, "openai", *[answer] * 5, reply("openai", "yes", "stop"), attempts=2)
    assert trajectory.value == 1.0
    assert pauses == [seconds] * 5


@pytest.mark.parametrize("after", ["0", "Fri, 01 Jan 2021 00:00:00 GMT"])
async def test_a_busy_endpoint_that_asks_for_no_pause_is_asked_a_bounded_number_of_times(
    after: str, remote: Remote, pauses: list[float]
) -> None:
    answer = busy({"Retry-After": after})
    trajectory, requests = await play(remote, "openai", answer, first_pause=0.5, patience=20)
    assert trajectory.failure is not None
    assert "gave up" in trajectory.failure.message
    assert pauses[-1] == 1.0
    assert 20 <= len(requests) == len(pauses) + 1 <= 41


async def test_a_busy_endpoint_that_says_nothing_is_asked_again_for_minutes(
    remote: Remote, pauses: list[float]
) -> None:
    answers = [busy()] * 12
    trajectory, _ = await play(remote, "openai", *answers, reply("openai", "yes", "stop"), attempts=2, first_pause=0.5)
    assert trajectory.value == 1.0
    assert 150 < sum(pauses) < 600


async def test_patience_ends_and_says_so(remote: Remote, pauses: list[float]) -> None:
    trajectory, requests = await play(remote, "openai", busy({"Retry-After": "40"}), patience=100)
    assert trajectory.failure is not None
    assert "slow down; gave up, since the pauses would exceed 100 s" in trajectory.failure.message
    assert (pauses, len(requests)) == ([40.0, 40.0], 3)


async def test_a_used_up_quota_is_not_waited_for(remote: Remote, pauses: list[float]) -> None:
    trajectory, requests = await play(remote, "openai", busy(message="no more money", code="insufficient_quota"))
    assert trajectory.failure is not None
    assert (pauses, len(requests)) == ([], 1)


async def test_failures_between_two_limits_count_as_attempts(remote: Remote, pauses: list[float]) -> None:
    broken = lambda: web.Response(status=500)  # noqa: E731
    trajectory, requests = await play(remote, "openai", busy(), broken, busy(), broken, attempts=2)
    assert trajectory.failure is not None
    assert len(requests) == 4


# ── thoughts ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "text",
    [
        "<think>no</think>yes", "no</think>\n\nyes", "[THINK]no[/THINK]yes", "no[/THINK]yes",
        "<thinking>no</thinking>\nyes\n", "\u25c1think\u25b7no\u25c1/think\u25b7yes", "<seed:think>no</seed:think>yes",
        "<reasoning>no</reasoning><think>no</think>yes", "<|START_THINKING|>no<|END_THINKING|>yes",
        "<|channel|>analysis<|message|>no<|end|><|start|>assistant<|channel|>final<|message|>yes<|return|>",
    ],
)  # fmt: skip
async def test_thoughts_of_an_endpoint_are_not_graded(text: str, remote: Remote) -> None:
    trajectory, _ = await play(remote, "openai", reply("openai", text, "stop"))
    assert trajectory.value == 1.0
    assert text == trajectory.items[-1]["content"][0]["text"]


@pytest.mark.parametrize("text", ["<think>yes", "[THINK]yes", "<|channel|>analysis<|message|>yes"])
async def test_a_thought_that_does_not_end_says_nothing(text: str, remote: Remote) -> None:
    trajectory, _ = await play(remote, "openai", reply("openai", text, "stop"))
    assert trajectory.value == 0.0


@pytest.mark.parametrize(
    "text", ["Use <thinking>x</thinking> here.", "The mark is [THINK].", "a <reasoning> b", " yes ", "x <thought> y"]
)
def test_marks_in_the_middle_of_a_text_are_text(text: str) -> None:
    assert spoken_text(text) == text
