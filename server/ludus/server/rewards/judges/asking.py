"""One judge, one question: asked again until the reply is a verdict, and what it means when there is none."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final

from ludus.server.rewards.judges.endpoint import CutOff, Endpoint, JudgeFailed, Refused, Retriable, TooLong
from ludus.server.rewards.judges.opinion import SHOWN_BYTES, Fences, Opinion, Unreadable, visible

_SHORTER: Final = 4
"""By what texts are shortened that do not fit: by the third attempt, they fit into the smallest contexts there are."""


@dataclass(frozen=True, slots=True)
class Question:
    """What all judges of a panel are asked."""

    key: Sequence[object]
    """What caches know it by."""
    messages: Callable[[Fences], list[dict[str, str]]]
    """What is asked, given fences."""
    read: Callable[[str, str], Opinion]
    """The opinion in a reply, given the case."""
    schema: Mapping[str, Any]
    """The reply's JSON Schema."""
    written: Sequence[Collection[str]]
    """The titles of what is shown of each policy: of one that is judged, or of two that are compared."""


async def opinion_of(endpoint: Endpoint, question: Question, sample: int) -> Opinion:
    """A judge's opinion, from the cache where it is known.

    Raises:
        JudgeFailed: there is none, and it says nothing about the policy.
    """
    cache = endpoint.cache
    key = endpoint.key(*question.key, sample)
    # Whoever has the same question waits for the first one's verdict; a failure is nobody's, so the next one asks.
    async with endpoint.asking(key) if cache is not None else nullcontext():
        held = cache.get(key) if cache is not None else None
        if held is not None:
            endpoint.ledger.cached += 1
            return Opinion(**json.loads(held))
        fences = Fences()
        try:
            opinion = await _asked_until_read(endpoint, question, fences)
        except Refused as refusal:
            return await _blamed(endpoint, question, refusal, fences.limit)
        if cache is not None:
            fields = {"reason": opinion.reason, "score": opinion.score, "model": opinion.model}
            cache[key] = json.dumps(fields)
        return opinion


async def _asked_until_read(endpoint: Endpoint, question: Question, fences: Fences) -> Opinion:
    asked = question.messages(fences)
    attempt = 1
    while True:
        failure: Retriable
        said = ""
        try:
            completion = await endpoint.complete(asked, question.schema)
            said = completion.text
            opinion = replace(question.read(completion.text, fences.number), model=completion.model)
        except Unreadable as error:
            failure = Retriable(f"the judge {endpoint.model} gave no verdict: {error}", after=0.0)
            correction = f"That is no verdict: {error}. Reply with the JSON object alone."
            asked = _corrected(asked, said, correction)
        except (TooLong, CutOff) as error:
            # A policy that could bring this about by writing much would have its failures left out of the training.
            failure = error
            fences.limit //= _SHORTER
            asked = question.messages(fences)
            if isinstance(error, CutOff):
                brief = "That was cut off. Reply with the JSON object alone, its reason in one sentence."
                asked = _corrected(asked, error.said, brief)
        except Retriable as error:
            failure = error
        else:
            if fences.limit == SHOWN_BYTES:
                return opinion
            return replace(opinion, reason=f"{opinion.reason} [it was shown at most {fences.limit} bytes of each text]")
        attempt += 1
        if attempt > endpoint.attempts:
            raise failure
        await endpoint.pause(attempt, failure)


def _corrected(asked: list[dict[str, str]], said: str, correction: str) -> list[dict[str, str]]:
    reply = {"role": "assistant", "content": visible(said[:4000]) or "…"}
    return [*asked[:2], reply, {"role": "user", "content": correction}]


async def _blamed(endpoint: Endpoint, question: Question, refusal: Refused, limit: int) -> Opinion:
    """Whose text it is that a judge refuses to read: found by asking without it.

    Raises:
        JudgeFailed: nobody's; the judge refuses the rest too, or only all of it together.
    """

    async def reads(withheld: Collection[str]) -> bool:
        try:
            await endpoint.complete(question.messages(Fences(withheld, limit)), question.schema)
        except Refused:
            return False
        except CutOff:
            pass
        return True

    everything = {title for titles in question.written for title in titles}
    blamed = list(question.written)
    if len(blamed) > 1:
        blamed = [titles for titles in question.written if not await reads(everything - set(titles))]
    if not blamed:
        raise JudgeFailed(f"{refusal}, though it reads either text without the other")
    if len(blamed) == len(question.written) and not await reads(everything):
        raise JudgeFailed(f"{refusal}, also without what the policy wrote")
    score = 0.0 if len(question.written) == 1 else 0.5
    if len(blamed) < len(question.written):
        score = float(blamed[0] is not question.written[0])
    whose = "what the policy wrote"
    if len(question.written) > 1:
        whose = "the " + " and the ".join(title for titles in blamed for title in titles)
    return Opinion(f"{refusal}, and reads it without {whose}", score, endpoint.model, refused=True)
