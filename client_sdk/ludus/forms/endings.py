"""What the answers of model endpoints mean: how an output ended, and whether an error says that the context is full.

One table for policies and judges, on all four wires (OpenAI's chat completions and responses, Anthropic's messages,
Google's Gemini), because endpoints that speak one provider's wire use the words of another.

An output may end in a failure although the answer has status 200: the server ran out of memory, was stopped, or lost
its backend. Such an output is empty or half written and says nothing about the model, so it is never graded. The table
is closed: a word that is not in it is `unknown`, and its output is not graded either.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Ending = Literal["complete", "limit", "context", "refused", "invalid", "failed", "unknown"]
"""How an output ended.

* `complete`: the model ended it, or a stop sequence did.
* `limit`: it reached the limit of tokens.
* `context`: it reached the end of the model's context.
* `refused`: the model, or a filter of its content, ended it.
* `invalid`: the model wrote what its server could not read, such as a broken call.
* `failed`: the server ended it. This says nothing about the model.
* `unknown`: a word that is not known here.
"""

_WORDS: Final[Mapping[Ending, str]] = {
    "complete": "stop stop_sequence end_turn end eos eos_token eos_found stop_token complete completed done finished "
    "tool_calls tool_call tool_use tool-calls tool-use function_call",
    "limit": "length max_tokens max_output_tokens max_length max_new_tokens max-tokens token_limit error_limit",
    "context": "model_length model_context_window_exceeded context_length_exceeded context_window_exceeded "
    "context_length context_limit",
    "refused": "content_filter content_filtered content-filter content-filtered refusal refused safety recitation "
    "language blocklist prohibited_content spii sensitive guardrail_intervened error_toxic image_safety "
    "image_prohibited_content image_recitation model_armor",
    "invalid": "malformed_function_call malformed_tool_call malformed_model_output malformed_tool_use "
    "unexpected_tool_call too_many_tool_calls invalid_tool_call",
    "failed": "error abort aborted cancel cancelled canceled failed failure timeout network_error internal_error "
    "server_error user_cancel interrupted insufficient_system_resource overloaded other finish_reason_unspecified "
    "malformed_response missing_thought_signature image_other no_image unknown in_progress queued pause_turn load "
    "preempted rate_limit service_unavailable user_aborted",
}  # fmt: skip
ENDINGS: Final[Mapping[str, Ending]] = {word: ending for ending, words in _WORDS.items() for word in words.split()}
"""The words of all wires, in lower case, and what they mean."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How an output ended."""

    ending: Ending
    word: str = ""
    """The endpoint's own word or message; empty if it said nothing."""

    @property
    def problem(self) -> str | None:
        """Why the output says nothing about the model; None if it does."""
        if self.ending == "failed":
            return f"the endpoint reports that it failed: {self.word}"
        if self.ending == "unknown":
            return f"the output ended with {self.word!r}, which is none of the known endings"
        return None


def read_ending(reply: Mapping[str, Any]) -> Ended:
    """Return how the first output of a reply ended, on any of the four wires.

    A reply that does not say how it ended is `complete`, with an empty word. An error in the reply or in
    its first choice is `failed`, or `context` if it says so.
    """
    output = next((_first(reply.get(name)) for name in ("choices", "candidates") if name in reply), reply)
    message = output.get("message")
    for holder in (reply, output, message if isinstance(message, Mapping) else {}):
        if error := holder.get("error"):
            details = error_details({"error": error})
            return Ended("context" if details.says_context_full else "failed", details.message)
    words = list(_words(reply, output))
    if not words:
        return Ended("complete")
    endings: dict[str, Ending] = {word: ENDINGS.get(word.lower(), "unknown") for word in words}
    return min((Ended(ending, word) for word, ending in endings.items()), key=lambda ended: _SEVERITY[ended.ending])


_SEVERITY: Final[Mapping[Ending, int]] = {
    "failed": 0, "unknown": 1, "context": 2, "refused": 3, "invalid": 4, "limit": 5, "complete": 6,
}  # fmt: skip
"""Which of several endings counts: the one with the lowest number."""


def _first(outputs: Any) -> Mapping[str, Any]:
    first = outputs[0] if isinstance(outputs, list) and outputs else {}
    return first if isinstance(first, Mapping) else {}


def _words(reply: Mapping[str, Any], output: Mapping[str, Any]) -> Iterator[str]:
    details = reply.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, Mapping) else None
    status = reply.get("status")
    if status == "incomplete":
        yield reason if isinstance(reason, str) and reason else "incomplete"
    elif isinstance(status, str) and isinstance(reply.get("output"), list):
        yield status
    for value in (output.get("finish_reason"), output.get("finishReason"), output.get("stop_reason")):
        if isinstance(value, str) and value:
            yield value
        elif isinstance(value, Mapping) and isinstance(value.get("type"), str):  # SGLang's own form
            yield value["type"]


@dataclass(frozen=True, slots=True)
class ErrorDetails:
    """An error as an endpoint reports it, in any of the usual forms."""

    message: str
    """What it says, at most 2,000 characters; empty if it says nothing."""
    codes: frozenset[str] = frozenset()
    """Its codes and types, in lower case."""

    @property
    def says_context_full(self) -> bool:
        """Whether it says that the request does not fit into the model's context.

        Codes decide first; then the text, in the words of about forty endpoints.
        """
        if self.says_too_many_requests:
            return False
        return bool(self.codes & _CONTEXT_CODES) or _CONTEXT_FULL.search(self.message) is not None

    @property
    def says_too_many_requests(self) -> bool:
        """Whether it is about a rate, such as tokens per minute."""
        return bool(self.codes & _RATE_CODES) or _RATE.search(self.message) is not None

    @property
    def says_quota_used_up(self) -> bool:
        """Whether it says that there is no more money or quota, so that waiting does not help."""
        return bool(self.codes & _QUOTA_CODES)


_QUOTA_CODES: Final = frozenset((
    "insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "insufficient_balance",
    "access_terminated",
))  # fmt: skip
_RATE_CODES: Final = frozenset(("rate_limit_exceeded", "rate_limit_error", "resource_exhausted", "tokens"))
_RATE: Final = re.compile(r"\brate.?limit|\bper (?:minute|min|day|hour|second)\b|\b[TR]P[MD]\b", re.IGNORECASE)
_CONTEXT_CODES: Final = frozenset((
    "context_length_exceeded", "context_window_exceeded", "model_context_window_exceeded", "exceed_context_size_error",
    "contextwindowexceedederror", "context_too_large", "context_length_error", "context_limit_exceeded",
    "prompt_too_long", "input_too_long", "model_max_prompt_tokens_exceeded", "max_context_length_exceeded",
    "tokens_limit_reached", "string_above_max_length", "request_too_large", "1261",
))  # fmt: skip
_CONTEXT_FULL: Final = re.compile(
    "|".join((
        r"(?:maximum|max(?:imum)? allowed|available|model(?:'s)?|allowed) (?:model )?"
        r"(?:context|prompt|input|sequence)[ _-]?(?:length|window|size)",
        r"(?:context|sequence)[ _-]?(?:length|window|size|limit)[^.\n]{0,80}"
        r"\b(?:exceed|of only|overflow|smaller|full|reached|is \d|\(\d)",
        r"(?:exceed|longer|larger|greater|bigger|above|beyond|over)\w*[^.\n]{0,80}"
        r"\b(?:context|max_?(?:seq_?len|model_?len|position|num_tokens|session))",
        r"maximum (?:context|model|prompt|sequence|input) length",
        r"exceeds?[^.\n]{0,40}\bcontext\b",
        r"context (?:window )?(?:shift is disabled|overflow|is full|exceeded)",
        r"\b(?:prompt|input|request|message|conversation|text)s? (?:is|are|was|has|contains?|have) (?:far |much )?"
        r"too (?:long|many tokens)",
        r"\btoo many (?:input |prompt |total )?tokens\b",
        r"\btoo large for model with\b",
        r"\b(?:input|prompt|request) (?:token count|tokens? count|length|tokens?)\b[^\n]{0,80}"
        r"\b(?:exceed|greater than|longer than|more than|maximum|limit)",
        r"\bnumber of (?:input |prompt )?tokens\b[^\n]{0,60}\b(?:exceed|limit|maximum)",
        r"\bexceed\w* (?:the )?(?:model(?:'s)? )?(?:maximum |max )?(?:number of |input |prompt |model )?"
        r"tokens? (?:limit|allowed|count)",
        r"`?inputs`? (?:tokens \+ `?max_new_tokens`? must be|must have less than)",
        r"\brange of input length should be\b",
        r"\binput is too (?:large|long) (?:to process|for)",
        r"\bplease reduce the length of the (?:messages|prompt|input)",
        r"\bmax_tokens must be (?:at least 1|greater than 0)[^\n]{0,20}-\d",
        r"\bnumber of tokens to keep from the initial prompt\b",
        r"\btokens?\b[^\n]{0,60}\bonly supports?\b",
        r"\bonly supports? (?:up to )?\d+ tokens",
        r"\b(?:prompt|input|request|messages?)\b[^\n]{0,60}\b(?:more|longer) than (?:the )?"
        r"(?:maximum|\d+ tokens|[^\n]{0,20}\btokens)",
        r"\bprompt exceeds\b",
        r"\btoo (?:large|long|big) for the context\b",
        r"\bmax size: \d+ tokens",
        r"contextwindowexceeded|context_length_exceeded",
        r"\bprompt (?:超长|过长)",
    )),
    re.IGNORECASE,
)  # fmt: skip
_MESSAGE_CHARS: Final = 2_000


def error_details(body: Any) -> ErrorDetails:
    """Return the error that the body of an answer reports.

    Args:
        body: the body: a text, or a JSON value. Known are `{error: {message, code, type}}`, `{error: text}`, a list
            that holds one of these, and `message` or `detail` at the top.
    """
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except (ValueError, RecursionError):
            return ErrorDetails(body[:_MESSAGE_CHARS])
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, Mapping):
        return ErrorDetails(str(body)[:_MESSAGE_CHARS])
    error = body.get("error")
    holders = [error, body] if isinstance(error, Mapping) else [body]
    texts = [error] if isinstance(error, str) else []
    codes: set[str] = set()
    for holder in holders:
        for name in ("message", "detail", "error_description"):
            value = holder.get(name)
            if value:
                texts.append(value if isinstance(value, str) else json.dumps(value, default=str))
        metadata = holder.get("metadata")
        if isinstance(metadata, Mapping) and isinstance(metadata.get("raw"), str):  # what OpenRouter's provider said
            texts.append(metadata["raw"])
        codes |= {
            str(holder[name]).lower()
            for name in ("code", "type", "status", "error_type", "error_code")
            if isinstance(holder.get(name), str | int)
        }
    return ErrorDetails("; ".join(dict.fromkeys(texts))[:_MESSAGE_CHARS], frozenset(codes))
