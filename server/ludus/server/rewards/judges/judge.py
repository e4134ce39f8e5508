"""LLM judges as checks: one question, one or several models, an opinion or none, and no 0 for a failure of theirs."""

from __future__ import annotations

import asyncio
import json
import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final, Literal

from ludus.protocol.errors import AuthoringError
from ludus.server.rewards.attempt import Attempt, Of, TakenStep, answer_of, resolve
from ludus.server.rewards.judges.endpoint import Endpoint, JudgeFailed
from ludus.server.rewards.judges.families import shared_families
from ludus.server.rewards.judges.query import Question, query_judge
from ludus.server.rewards.judges.verdict import (
    JudgeVerdict,
    Scale,
    Shown,
    ask,
    ask_to_compare,
    comparison_schema,
    cut,
    opinion_schema,
    read_comparison,
    read_opinion,
)
from ludus.server.rewards.nodes import Check
from ludus.server.rewards.verdict import Verdict

_STEP_BYTES: Final = 20_000
"""Of a step's longer arguments or text, the middle is left out of what judges see."""


@dataclass(frozen=True)
class Panel:
    """One or several judges, how their opinions are put together, and whose work they may not judge."""

    endpoints: Sequence[Endpoint]
    samples: int = 1
    """Opinions of each endpoint. More than one needs a temperature above 0."""
    combine: Literal["mean", "median", "majority"] = "mean"
    """`majority` takes the score that most gave; without one there is no verdict."""
    quorum: int | None = None
    """Opinions needed for a verdict; more than half by default."""
    least_agreement: float = 0.0
    """Below this agreement (1: all the same; 0: as far apart as can be) there is no verdict."""
    allow: Collection[str] = ()
    """Families, or names of judges, that may judge a policy of their own family."""
    policy: str | None = None
    """The policy's model, where it is known beforehand; else `Attempt.policy` says it."""
    seconds: float = 50.0
    """For the whole verdict, all attempts included."""
    refused_loses: bool = True
    """Whether a text earns 0 that the judges refuse to read, though they read the question without it. Otherwise it is
    unscored: for tasks whose best answers may trip a content filter. A text that makes a judge answer with something
    else than a verdict, such as prose, earns 0 in any case."""

    def __post_init__(self) -> None:
        if not self.endpoints or self.samples < 1:
            raise AuthoringError("a judge needs at least one endpoint and one sample")
        if self.quorum is not None and not 1 <= self.quorum <= len(self.endpoints) * self.samples:
            raise AuthoringError(f"a quorum of {self.quorum} cannot be reached by these judges")
        if self.policy is not None and (why := self.refusal(self.policy)) is not None:
            raise AuthoringError(why)

    def refusal(self, policy: str | None) -> str | None:
        """Why the panel may not judge that policy; None when it may."""
        for endpoint in self.endpoints if policy is not None else ():
            assert policy is not None
            shared = shared_families(endpoint.model, policy) - set(self.allow)
            if shared and endpoint.model not in self.allow:
                family = ", ".join(sorted(shared))
                return (
                    f"the judge {endpoint.model} is of the family {family}, like the policy {policy}; take another "
                    f"judge, or allow it by name: allow=({sorted(shared)[0]!r},)"
                )
        return None

    async def decide(self, policies: Sequence[str | None], question: Question) -> Verdict:
        """Ask all, at the same time, and put their opinions together.

        Args:
            policies: the models of those who are judged, where they are known.
            question: what is asked.
        """
        for policy in policies:
            why = self.refusal(policy or self.policy)
            if why is not None:
                return Verdict.unscored(why)
        asked = [
            asyncio.wait_for(query_judge(endpoint, question, sample), self.seconds)
            for endpoint in self.endpoints
            for sample in range(self.samples)
        ]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, JudgeFailed | TimeoutError):
                raise outcome
        return self._combine([_told(outcome, self.seconds) for outcome in outcomes])

    def _combine(self, outcomes: Sequence[JudgeVerdict | str]) -> Verdict:
        given = [outcome for outcome in outcomes if isinstance(outcome, JudgeVerdict)]
        opinions = [opinion for opinion in given if not (opinion.refused or opinion.silenced)]
        quorum = self.quorum or len(outcomes) // 2 + 1
        failures = [outcome for outcome in outcomes if isinstance(outcome, str)]
        if len(opinions) < quorum:  # those that the text kept from a verdict count where too few others gave one
            opinions = [opinion for opinion in given if self.refused_loses or not opinion.refused]
        failures += [opinion.reason for opinion in given if opinion not in opinions]
        if len(opinions) < quorum:
            return Verdict.unscored("; ".join(failures))
        scores = [opinion.score for opinion in opinions]
        agreed = agreement(scores)
        said = [f"{opinion.model} gives {opinion.score:g}: {opinion.reason}" for opinion in opinions]
        said = [f"agreement {agreed:.2f}", *said] if len(opinions) > 1 else said
        evidence = "; ".join([*said, *failures])
        if agreed < self.least_agreement:
            return Verdict.unscored(f"the judges disagree: {evidence}")
        if self.combine == "majority":
            common = statistics.multimode(scores)
            if len(common) > 1:
                return Verdict.unscored(f"the judges have no majority: {evidence}")
            return Verdict(common[0], evidence)
        return Verdict(statistics.median(scores) if self.combine == "median" else statistics.fmean(scores), evidence)


@dataclass(frozen=True)
class Judge(Check):
    """What an LLM answers to a question about the attempt, from 0 to 1.

    No verdict (the endpoint fails, the reply cannot be read, the budget is used up, the judge is of the policy's own
    family) leaves the item unscored. What the judge refuses to read for what the policy wrote earns 0; see
    `Panel.refused_loses`.
    """

    question: str
    panel: Panel | Endpoint
    scale: Scale = Scale()
    show: Sequence[Literal["prompt", "answer", "steps"]] = ("prompt", "answer")
    """What of the attempt the judge is shown."""
    of: Of[str] = answer_of
    """The answer that is shown."""
    reference: Of[str] | None = None
    """A good answer to compare with."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.question.strip():
            raise AuthoringError("a judge needs a question")
        if isinstance(self.panel, Endpoint):
            object.__setattr__(self, "panel", Panel((self.panel,)))

    async def check(self, attempt: Attempt) -> Verdict:
        """Ask."""
        assert isinstance(self.panel, Panel)
        shown = self._shown(attempt)
        texts = [(one.title, one.text) for one in shown]
        question = Question(
            ("opinion", self.question, self.scale.words, texts),
            lambda fences: ask(self.question, self.scale, shown, fences),
            lambda text, case: read_opinion(text, self.scale, case),
            opinion_schema(self.scale),
            (("steps", "candidate"),),
        )
        return await self.panel.decide([attempt.policy], question)

    def _shown(self, attempt: Attempt) -> list[Shown]:
        shown = [Shown("task", attempt.prompt)] if "prompt" in self.show and attempt.prompt else []
        if self.reference is not None:
            shown.append(Shown("reference", str(resolve(self.reference, attempt))))
        if "steps" in self.show:
            shown.append(Shown("steps", transcript(attempt), by_lines=True))
        if "answer" in self.show:
            shown.append(Shown("candidate", resolve(self.of, attempt)))
        return shown


@dataclass(frozen=True)
class ReferenceJudge(Judge):
    """Whether the answer agrees with a reference, in the eyes of an LLM."""

    question: str = (
        "Does the candidate say the same in substance as the reference? Other words are fine; a missing or added "
        "claim that changes the substance is not."
    )
    panel: Panel | Endpoint = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.panel is None or self.reference is None:
            raise AuthoringError("a ReferenceJudge needs panel=… and reference=…")
        super().__post_init__()


@dataclass(frozen=True)
class PairwiseJudge:
    """Compares two attempts at one task, in both orders: a preference that turns with the order is a tie."""

    question: str
    panel: Panel | Endpoint
    of: Of[str] = answer_of
    both_orders: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.panel, Endpoint):
            object.__setattr__(self, "panel", Panel((self.panel,)))

    async def compare(self, first: Attempt, second: Attempt) -> Verdict:
        """1 when the first is better, 0 when the second is, between for a tie; unscored without a verdict."""
        forth, back = await asyncio.gather(
            self._once(first, second), self._once(second, first) if self.both_orders else _nothing()
        )
        if back is None or forth.value is None:
            return forth
        if back.value is None:
            return back
        turned = 1.0 - back.value
        said = f"in this order: {forth.evidence}; turned round: {back.evidence}"
        if (forth.value - 0.5) * (turned - 0.5) < 0:
            return Verdict(0.5, f"the preference turns with the order; {said}")
        return Verdict((forth.value + turned) / 2, said)

    async def _once(self, first: Attempt, second: Attempt) -> Verdict:
        assert isinstance(self.panel, Panel)
        shown = [Shown("first", resolve(self.of, first)), Shown("second", resolve(self.of, second))]
        if first.prompt:
            shown.insert(0, Shown("task", first.prompt))
        question = Question(
            ("comparison", self.question, [(one.title, one.text) for one in shown]),
            lambda fences: ask_to_compare(self.question, shown, fences),
            read_comparison,
            comparison_schema(),
            (("first",), ("second",)),
        )
        return await self.panel.decide([first.policy, second.policy], question)


def judged_by(panel: Panel | Endpoint, **options: Any) -> Callable[[str, str], Judge]:
    """Makes the checks of a checklist's judged items; `options` are those of `Judge`."""
    shared = Panel((panel,)) if isinstance(panel, Endpoint) else panel
    return lambda id, prompt: Judge(prompt, shared, name=id, **options)


def agreement(scores: Sequence[float]) -> float:
    """How near opinions are to each other: 1 less the mean distance of all pairs; 1 for a single one."""
    pairs = list(combinations(scores, 2))
    return 1.0 - statistics.fmean(abs(a - b) for a, b in pairs) if pairs else 1.0


def transcript(attempt: Attempt) -> str:
    """The tool calls and their outcomes, each on one line as JSON: what they hold can look like no other step."""
    return "\n".join(map(_line, attempt.steps)) or "(no steps)"


def _line(step: TakenStep) -> str:
    try:
        arguments: Any = dict(step.arguments)
        if len(written := json.dumps(arguments, ensure_ascii=False, default=str)) > _STEP_BYTES:
            arguments = cut(written, _STEP_BYTES)
    except RecursionError:
        arguments = "(nested too deeply to be shown)"
    fields = {
        "step": step.number, "tool": cut(step.tool, _STEP_BYTES), "arguments": arguments,
        "outcome": step.error or "ok", "text": cut(step.text, _STEP_BYTES),
    }  # fmt: skip
    # JSON lets two further line breaks stand as they are.
    return json.dumps(fields, ensure_ascii=False, default=str).translate({0x2028: "\\u2028", 0x2029: "\\u2029"})


def _told(outcome: JudgeVerdict | BaseException, seconds: float) -> JudgeVerdict | str:
    if isinstance(outcome, JudgeVerdict):
        return outcome
    return str(outcome) if isinstance(outcome, JudgeFailed) else f"there was no verdict within {seconds:g} s"


async def _nothing() -> None:
    return None
