"""LLM judges as checks: one question to one or several models. A judge's own failure leaves the item unscored."""

from __future__ import annotations

import asyncio
import json
import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final, Literal

from ludus.protocol.errors import AuthoringError
from ludus.server.rewards.attempt import Attempt, Selector, TakenStep, answer_of, resolve
from ludus.server.rewards.judges.endpoint import Endpoint, JudgeFailed
from ludus.server.rewards.judges.families import families_of
from ludus.server.rewards.judges.query import Question, query_judge
from ludus.server.rewards.judges.verdict import (
    JudgeVerdict,
    Scale,
    Shown,
    ask,
    ask_to_compare,
    comparison_schema,
    cut,
    read_comparison,
    read_score,
    score_schema,
)
from ludus.server.rewards.nodes import Check
from ludus.server.rewards.verdict import Verdict

_STEP_BYTES: Final = 20_000
"""The limit for a step's arguments or text; judges do not see the middle of a longer one."""


@dataclass(frozen=True)
class Panel:
    """One or several judges, how their verdicts are combined, and which policies they may judge."""

    endpoints: Sequence[Endpoint]
    samples: int = 1
    """Verdicts from each endpoint. More than one needs a temperature above 0."""
    combine: Literal["mean", "median", "majority"] = "mean"
    """`majority` takes the most frequent score; if several are equally frequent, there is no verdict."""
    quorum: int | None = None
    """Judges' verdicts needed for a verdict of the panel; more than half by default."""
    least_agreement: float = 0.0
    """Below this agreement (1: all scores equal; 0: as far apart as possible) there is no verdict."""
    allow: Collection[str] = ()
    """Families, or names of judges, that may judge a policy of their own family."""
    policy: str | None = None
    """The policy's model, if it is known beforehand; used where `Attempt.policy` is not set."""
    seconds: float = 50.0
    """The time limit for the whole verdict, all attempts included."""
    refused_loses: bool = True
    """Whether a text that the judges refuse to read earns 0, if they read the question without it. Set it to False for
    tasks whose best answers may trigger a content filter: such a text is then unscored. A text that makes a judge
    answer with anything other than a verdict, such as prose, always earns 0."""

    def __post_init__(self) -> None:
        if not self.endpoints or self.samples < 1:
            raise AuthoringError("a judge needs at least one endpoint and one sample")
        if self.quorum is not None and not 1 <= self.quorum <= len(self.endpoints) * self.samples:
            raise AuthoringError(f"a quorum of {self.quorum} cannot be reached by these judges")
        if self.policy is not None and (problem := self.refusal(self.policy)) is not None:
            raise AuthoringError(problem)

    def refusal(self, policy: str | None) -> str | None:
        """Return why the panel may not judge that policy; None if it may."""
        for endpoint in self.endpoints if policy is not None else ():
            assert policy is not None
            shared = (families_of(endpoint.model) & families_of(policy)) - set(self.allow)
            if shared and endpoint.model not in self.allow:
                family = ", ".join(sorted(shared))
                return (
                    f"the judge {endpoint.model} is of the family {family}, like the policy {policy}; take another "
                    f"judge, or allow it by name: allow=({sorted(shared)[0]!r},)"
                )
        return None

    async def decide(self, policies: Sequence[str | None], question: Question) -> Verdict:
        """Ask all judges concurrently, and combine their verdicts.

        Args:
            policies: the models of the judged policies, None where unknown.
            question: the question for all judges.
        """
        for policy in policies:
            problem = self.refusal(policy or self.policy)
            if problem is not None:
                return Verdict.unscored(problem)
        questions = [
            asyncio.wait_for(query_judge(endpoint, question, sample), self.seconds)
            for endpoint in self.endpoints
            for sample in range(self.samples)
        ]
        outcomes: list[JudgeVerdict | str] = []
        for outcome in await asyncio.gather(*questions, return_exceptions=True):
            if isinstance(outcome, TimeoutError):
                outcomes.append(f"there was no verdict within {self.seconds:g} s")
            elif isinstance(outcome, BaseException) and not isinstance(outcome, JudgeFailed):
                raise outcome
            else:
                outcomes.append(outcome if isinstance(outcome, JudgeVerdict) else str(outcome))
        return self._combine(outcomes)

    def _combine(self, outcomes: Sequence[JudgeVerdict | str]) -> Verdict:
        verdicts_given = [outcome for outcome in outcomes if isinstance(outcome, JudgeVerdict)]
        verdicts = [verdict for verdict in verdicts_given if not (verdict.refused or verdict.silenced)]
        quorum = self.quorum or len(outcomes) // 2 + 1
        failures = [outcome for outcome in outcomes if isinstance(outcome, str)]
        if len(verdicts) < quorum:  # too few verdicts: count also those that the text prevented
            verdicts = [verdict for verdict in verdicts_given if self.refused_loses or not verdict.refused]
        failures += [verdict.reason for verdict in verdicts_given if verdict not in verdicts]
        if len(verdicts) < quorum:
            return Verdict.unscored("; ".join(failures))
        scores = [verdict.score for verdict in verdicts]
        agreed = agreement(scores)
        sentences = [f"{verdict.model} gives {verdict.score:g}: {verdict.reason}" for verdict in verdicts]
        sentences = [f"agreement {agreed:.2f}", *sentences] if len(verdicts) > 1 else sentences
        evidence = "; ".join([*sentences, *failures])
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
    """The answer of an LLM to a question about the attempt, from 0 to 1.

    No verdict (the endpoint fails, the reply cannot be read, the budget is used up, the judge is of the policy's own
    family) leaves the item unscored. If the judge refuses to read what the policy wrote, the item earns 0; see
    `Panel.refused_loses`.
    """

    question: str
    panel: Panel | Endpoint
    scale: Scale = Scale()
    show: Sequence[Literal["prompt", "answer", "steps"]] = ("prompt", "answer")
    """The parts of the attempt that the judge is shown."""
    of: Selector[str] = answer_of
    """The answer that is shown."""
    reference: Selector[str] | None = None
    """A good answer to compare with."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.question.strip():
            raise AuthoringError("a judge needs a question")
        if isinstance(self.panel, Endpoint):
            object.__setattr__(self, "panel", Panel((self.panel,)))

    async def check(self, attempt: Attempt) -> Verdict:
        """Ask the panel."""
        assert isinstance(self.panel, Panel)
        texts_shown = self._shown(attempt)
        texts = [(text.title, text.text) for text in texts_shown]
        question = Question(
            ("opinion", self.question, self.scale.words, texts),
            lambda fences: ask(self.question, self.scale, texts_shown, fences),
            lambda text, case: read_score(text, self.scale, case),
            score_schema(self.scale),
            (("steps", "candidate"),),
        )
        return await self.panel.decide([attempt.policy], question)

    def _shown(self, attempt: Attempt) -> list[Shown]:
        texts = [Shown("task", attempt.prompt)] if "prompt" in self.show and attempt.prompt else []
        if self.reference is not None:
            texts.append(Shown("reference", str(resolve(self.reference, attempt))))
        if "steps" in self.show:
            texts.append(Shown("steps", transcript(attempt), by_lines=True))
        if "answer" in self.show:
            texts.append(Shown("candidate", resolve(self.of, attempt)))
        return texts


@dataclass(frozen=True)
class ReferenceJudge(Judge):
    """A check of whether the answer agrees with a reference, decided by an LLM."""

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
    """Compares two attempts at one task, in both orders: a preference that changes with the order is a tie."""

    question: str
    panel: Panel | Endpoint
    of: Selector[str] = answer_of
    both_orders: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.panel, Endpoint):
            object.__setattr__(self, "panel", Panel((self.panel,)))

    async def compare(self, first: Attempt, second: Attempt) -> Verdict:
        """Return 1 if the first is better, 0 if the second is, between for a tie; unscored without a verdict."""
        orders = [(first, second), (second, first)] if self.both_orders else [(first, second)]
        forth, *backward = await asyncio.gather(
            *(self._once(shown_first, shown_second) for shown_first, shown_second in orders)
        )
        back = backward[0] if backward else None
        if back is None or forth.value is None:
            return forth
        if back.value is None:
            return back
        turned = 1.0 - back.value
        evidence = f"in this order: {forth.evidence}; turned round: {back.evidence}"
        if (forth.value - 0.5) * (turned - 0.5) < 0:
            return Verdict(0.5, f"the preference turns with the order; {evidence}")
        return Verdict((forth.value + turned) / 2, evidence)

    async def _once(self, first: Attempt, second: Attempt) -> Verdict:
        assert isinstance(self.panel, Panel)
        texts = [Shown("first", resolve(self.of, first)), Shown("second", resolve(self.of, second))]
        if first.prompt:
            texts.insert(0, Shown("task", first.prompt))
        question = Question(
            ("comparison", self.question, [(text.title, text.text) for text in texts]),
            lambda fences: ask_to_compare(self.question, texts, fences),
            read_comparison,
            comparison_schema(),
            (("first",), ("second",)),
        )
        return await self.panel.decide([first.policy, second.policy], question)


def judged_by(panel: Panel | Endpoint, **options: Any) -> Callable[[str, str], Judge]:
    """Return a function that makes the checks of a checklist's judged items; `options` are those of `Judge`."""
    shared = Panel((panel,)) if isinstance(panel, Endpoint) else panel
    return lambda id, prompt: Judge(prompt, shared, name=id, **options)


def agreement(scores: Sequence[float]) -> float:
    """Return how close scores are to each other: 1 minus the mean distance of all pairs; 1 for a single score."""
    pairs = list(combinations(scores, 2))
    return 1.0 - statistics.fmean(abs(a - b) for a, b in pairs) if pairs else 1.0


def transcript(attempt: Attempt) -> str:
    """Return the tool calls and their outcomes, each as one line of JSON: no content can look like another step."""
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
    # JSON does not escape these two line separators.
    return json.dumps(fields, ensure_ascii=False, default=str).translate({0x2028: "\\u2028", 0x2029: "\\u2029"})
