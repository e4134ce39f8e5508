"""Ask one judge one question until its reply is a verdict, and find the cause if there is none.

If the endpoint cannot be reached, rejects the client or does not answer in time, nothing is known about the policy, and
the item is unscored. If the answer is not a verdict (prose, a refusal, nothing, too much), the policy's text may have
asked for that. The same question is then asked with that text withheld. If the judge now gives a verdict, the text is
the cause, and it earns 0 if it has prevented a verdict at least twice. If the judge still gives none, the judge is the
cause, and the item is unscored.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final

from ludus.server.rewards.judges.endpoint import (
    LONGEST_PAUSE,
    CutOff,
    Endpoint,
    JudgeFailed,
    NoVerdict,
    Refused,
    Retriable,
    TooLong,
)
from ludus.server.rewards.judges.verdict import SHOWN_BYTES, Fences, JudgeVerdict, Unreadable, visible

_SHORTER: Final = 4
"""The factor by which texts that do not fit are shortened; by the third attempt they fit into the smallest contexts."""


@dataclass(frozen=True, slots=True)
class Question:
    """The question that all judges of a panel are asked."""

    key: Sequence[object]
    """The question's part of the cache key."""
    messages: Callable[[Fences], list[dict[str, str]]]
    """Makes the messages of the request, given fences."""
    read: Callable[[str, str], JudgeVerdict]
    """Reads the verdict in a reply, given the case number."""
    schema: Mapping[str, Any]
    """The reply's JSON Schema."""
    written: Sequence[Collection[str]]
    """The titles of the texts that each policy wrote: of one policy that is judged, or of two that are compared."""


async def query_judge(endpoint: Endpoint, question: Question, sample: int) -> JudgeVerdict:
    """Return a judge's verdict, from the cache if it is there.

    Raises:
        JudgeFailed: there is no verdict, for a reason that says nothing about the policy.
    """
    cache = endpoint.cache
    key = endpoint.key(*question.key, sample)
    # Callers with the same question wait for the first one's verdict. A failure is not shared: the next one asks.
    async with endpoint.asking(key) if cache is not None else nullcontext():
        cached = cache.get(key) if cache is not None else None
        if cached is not None:
            endpoint.ledger.cached += 1
            return JudgeVerdict(**json.loads(cached))
        fences = Fences()
        failures: list[NoVerdict] = []
        try:
            verdict = await _query_until_parsed(endpoint, question, fences, failures)
        except NoVerdict as failure:
            verdict = await _attribute(endpoint, question, failure, fences.limit, certain=len(failures) > 1)
            if verdict.refused or verdict.silenced:
                return verdict
        if cache is not None:
            fields = {"reason": verdict.reason, "score": verdict.score, "model": verdict.model}
            cache[key] = json.dumps(fields)
        return verdict


async def _query_until_parsed(
    endpoint: Endpoint, question: Question, fences: Fences, failures: list[NoVerdict]
) -> JudgeVerdict:
    messages = question.messages(fences)
    backoff = endpoint.backoff()
    attempt = 1
    while True:
        failure: Retriable
        answer = ""
        try:
            completion = await endpoint.complete(messages, question.schema)
            answer = completion.text
            verdict = replace(question.read(completion.text, fences.number), model=completion.model)
        except Unreadable as error:
            failure = NoVerdict(f"the judge {endpoint.model} gave no verdict: {error}")
            correction = f"That is no verdict: {error}. Reply with the JSON object alone."
            messages = _corrected(messages, answer, correction)
        except (TooLong, CutOff) as error:
            # If this left the item unscored, a policy could keep its failures out of the training by writing a lot.
            failure = error
            fences.limit //= _SHORTER
            messages = question.messages(fences)
            if isinstance(error, CutOff):
                brief = "That was cut off. Reply with the JSON object alone, its reason in one sentence."
                messages = _corrected(messages, error.said, brief)
        except Retriable as error:
            failure = error
        else:
            if fences.limit == SHOWN_BYTES:
                return verdict
            return replace(verdict, reason=f"{verdict.reason} [it was shown at most {fences.limit} bytes of each text]")
        if isinstance(failure, NoVerdict):
            failures.append(failure)
        attempt += 1
        if attempt > endpoint.attempts:
            raise failure
        await asyncio.sleep(backoff.next() if failure.after is None else min(failure.after, LONGEST_PAUSE))


def _corrected(messages: list[dict[str, str]], answer: str, correction: str) -> list[dict[str, str]]:
    reply = {"role": "assistant", "content": visible(answer[:4000]) or "…"}
    return [*messages[:2], reply, {"role": "user", "content": correction}]


async def _attribute(
    endpoint: Endpoint, question: Question, failure: NoVerdict, limit: int, *, certain: bool
) -> JudgeVerdict:
    """Find whose text keeps a judge from a verdict, by asking without it.

    Args:
        endpoint: the judge.
        question: what it was asked.
        failure: its last failure.
        limit: bytes shown of each text.
        certain: whether it failed more than once. If not, it is asked once more, and a verdict then counts.

    Raises:
        JudgeFailed: the judge gives no verdict without the texts either, so no policy is the cause.
    """
    if not certain:
        shortest = min(limit, SHOWN_BYTES // _SHORTER**2) if isinstance(failure, TooLong | CutOff) else limit
        verdict = await _once(endpoint, question, Fences(limit=shortest))
        if isinstance(verdict, JudgeVerdict):
            return verdict
        failure = verdict
    refusal = isinstance(failure, Refused)

    async def reads(withheld: Collection[str]) -> bool:
        answer = await _once(endpoint, question, Fences(withheld, limit))
        return isinstance(answer, JudgeVerdict) or (refusal and not isinstance(answer, Refused))

    everything = {title for titles in question.written for title in titles}
    blamed = list(question.written)
    if len(blamed) > 1:
        blamed = [titles for titles in question.written if not await reads(everything - set(titles))]
    if len(blamed) in (0, len(question.written)) and not await reads(everything):
        raise JudgeFailed(f"{failure}, also without what the policy wrote")
    together = not blamed
    blamed = blamed or list(question.written)
    score = 0.0 if len(question.written) == 1 else 0.5
    if len(blamed) < len(question.written):
        score = float(blamed[0] is not question.written[0])
    whose = "what the policy wrote"
    if len(question.written) > 1:
        whose = "the " + " and the ".join(title for titles in blamed for title in titles)
    without = f"{'and reads it' if refusal else 'but gives one'} without {whose}{' together' if together else ''}"
    return JudgeVerdict(f"{failure}, {without}", score, endpoint.model, refused=refusal, silenced=not refusal)


async def _once(endpoint: Endpoint, question: Question, fences: Fences) -> JudgeVerdict | NoVerdict:
    """Send one request and return its verdict, or why its answer is not one.

    Raises:
        JudgeFailed: there was no answer, which says nothing about any text.
    """
    try:
        completion = await endpoint.complete(question.messages(fences), question.schema)
        return replace(question.read(completion.text, fences.number), model=completion.model)
    except Unreadable as error:
        return NoVerdict(f"the judge {endpoint.model} gave no verdict: {error}")
    except NoVerdict as failure:
        return failure
