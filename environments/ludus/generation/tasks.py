"""The loop of `ludus generate tasks`: make candidates, judge them, keep those that pass, until there are enough."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from pydantic import BaseModel, ConfigDict

from ludus.evaluation.config import ModelSpec
from ludus.generation.candidates import Candidate, Kept, Reason, Rejected, Rejection, content_digest
from ludus.generation.duplicates import Duplicates, known_tasks
from ludus.generation.journal import Journal
from ludus.generation.model import Budget, BudgetSpent, MeteredPolicy, Writer, count_earlier, open_writer, output_option
from ludus.generation.playing import VALIDATED, Band, Judge, judged_kind
from ludus.generation.propose import provenance_of
from ludus.generation.report import RunReport, counts_of, examples_of, figures_of, spending_of
from ludus.generation.task_folder import Calibrated, Manifest, Mode, portable, replace_private, write_tasks
from ludus.generation.task_folder import TaskRecord as Row
from ludus.protocol.episodes import SplitType
from ludus.protocol.errors import InvalidParams
from ludus.protocol.tasks import Task
from ludus.server.authoring.generation import read_task, whole_fields
from ludus.server.tasks.catalog import Published
from ludus.validation.core.local_environments import LocalEnvironments, source_of

JOURNAL: Final = "journal.jsonl"
REPORT: Final = "report.json"
REJECTED: Final = "rejected.jsonl"
_LEAST: Final = 4
_MOST: Final = 100
"""The most candidates that are judged together."""
_EMPTY_BATCHES: Final = 8


class Source(Protocol):
    """Makes candidates."""

    mode: Mode
    per_request: int
    whole: bool
    """Whether private fields define a task, too, so that duplicates are looked for in all fields."""
    spent: BudgetSpent | None

    async def make(self, numbers: Sequence[int], kept: Sequence[Task]) -> list[Candidate | Rejected]:
        """Return the candidates with some numbers, in order."""
        ...


MakeSource = Callable[[Published, Writer | None], Source]
"""Opens the source of a run, with the model that writes, if there is one."""


@dataclass(frozen=True)
class Calibration:
    """Whose pass rate must lie in a band.

    Attributes:
        model: the model; it must name an endpoint.
        samples: the episodes of each task.
        low, high: the band, both included.
    """

    model: ModelSpec
    samples: int = 4
    low: float = 0.1
    high: float = 0.9


@dataclass(frozen=True)
class TaskRun:
    """The settings of a run.

    Attributes:
        target: what `ludus serve` takes, or the name of a variant of an installed environment.
        out: the folder for the tasks, the journal and the report.
        mode: how tasks are made.
        count: how many tasks are wanted.
        make_source: opens the source of candidates.
        identity: what else decides which candidates are made, for the journal.
        environment: the published name, if the target has several.
        split, split_type: the split of the tasks.
        seed: the seed of the run.
        model: the model that writes; None for none.
        output_tokens: the most tokens of one reply.
        budget: the limits.
        concurrency: the most requests, and episodes, at the same time.
        most: the most candidates and replies without one.
        similarity: from which Jaccard similarity tasks are nearly the same; above 1 only equal ones count.
        margin: how far above the random baseline a policy that solves nothing may score.
        checks, waivers: of `ludus validate`.
        calibration: the calibration; None for none.
        resume: whether `out` may hold a part of this run.
        keep_rejected: whether to write what was rejected, with the reasons.
        on_batch: called after each batch with the numbers of kept, wanted and proposed tasks.
    """

    target: str
    out: Path
    mode: Mode
    count: int
    make_source: MakeSource
    identity: dict[str, Any] = field(default_factory=dict)
    environment: str | None = None
    split: str = "train"
    split_type: SplitType | None = None
    seed: int = 0
    model: ModelSpec | None = None
    output_tokens: int = 4096
    budget: Budget = field(default_factory=Budget)
    concurrency: int = 4
    most: int | None = None
    similarity: float = 0.8
    margin: float = 0.25
    checks: Sequence[str] = VALIDATED
    waivers: dict[str, str] = field(default_factory=dict)
    calibration: Calibration | None = None
    resume: bool = False
    keep_rejected: bool = False
    on_batch: Callable[[int, int, int], None] | None = None


async def generate_tasks(run: TaskRun) -> RunReport:
    """Make, judge and write tasks, and return the report. What is kept is written also if the budget is spent first.

    Raises:
        InvalidParams: a setting is invalid, or `out` holds another run.
        EnvironmentNotFound, AuthoringError: the environment cannot be loaded.
        Unsupported: the environment lacks what the mode or the checks need.
        LudusError: the model's endpoint refuses or keeps failing.
    """
    began = time.monotonic()
    if run.count < 1 or run.concurrency < 1:
        raise InvalidParams("the number of tasks and of requests at once must be 1 or more")
    published, source = find_environment(run.target, run.environment)
    async with AsyncExitStack() as stack:
        journal = stack.enter_context(Journal(run.out / JOURNAL, _identity(run, published), resume=run.resume))
        count_earlier(journal, run.budget)
        writer = None
        if run.model is not None:
            writer = await stack.enter_async_context(
                open_writer(
                    run.model, journal, run.budget, concurrency=run.concurrency, output_tokens=run.output_tokens,
                    seed=run.seed,
                )
            )  # fmt: skip
        band = None if run.calibration is None else await _open_band(run, run.calibration, journal, stack)
        kind = judged_kind(run.split, run.split_type)
        manifest = Manifest(
            source=portable(source, run.out), environment=published.name, version=published.cls.version,
            splits={run.split: kind},
        )  # fmt: skip
        judge = Judge(
            source, manifest, run.split, (run.out / ".staging").absolute(), run.seed, run.margin, run.concurrency,
            run.checks, run.waivers, band,
        )  # fmt: skip
        loop = _Loop(run, published, journal, judge, run.make_source(published, writer))
        stopped = await loop.until_enough()
        report = loop.report(stopped, began, None if writer is None else writer.name)
        loop.write(manifest, report)
        return report


def find_environment(target: str, name: str | None) -> tuple[Published, str]:
    """Return an environment whose code is here, and what `ludus serve` takes for it.

    Raises:
        EnvironmentNotFound, AuthoringError: it cannot be loaded.
        InvalidParams: the target has several, and no name says which.
    """
    source = source_of(target)
    local = LocalEnvironments(source)
    names = list(local.names())
    wanted = name or (target if target in names else names[0])
    return local.published(wanted), source


def _identity(run: TaskRun, published: Published) -> dict[str, Any]:
    calibration = run.calibration
    return {
        "command": "tasks", "environment": published.name, "version": published.cls.version, "mode": run.mode,
        "split": run.split, "seed": run.seed, "model": None if run.model is None else run.model.model,
        "options": {} if run.model is None else run.model.options, "similarity": run.similarity, "margin": run.margin,
        "checks": list(run.checks),
        "calibration": None if calibration is None else [calibration.model.model, calibration.samples, calibration.low,
                                                         calibration.high],
        **run.identity,
    }  # fmt: skip


async def _open_band(run: TaskRun, given: Calibration, journal: Journal, stack: AsyncExitStack) -> Band:
    from ludus.evaluation.models import open_model

    if not 0 <= given.low <= given.high <= 1:
        raise InvalidParams(f"the band {given.low:g},{given.high:g} must be two pass rates, the lower one first")
    spec = given.model
    limited = spec.model_copy(update={"options": {**output_option(spec, run.output_tokens), **spec.options}})
    policy = await stack.enter_async_context(open_model(limited))
    return Band(MeteredPolicy(policy, journal, run.budget, run.output_tokens), given.samples, given.low, given.high)


class _Loop:
    def __init__(self, run: TaskRun, published: Published, journal: Journal, judge: Judge, source: Source) -> None:
        self.run = run
        self.published = published
        self.journal = journal
        self.judge = judge
        self.source = source
        self.kept: list[Kept] = []
        self.rejected: list[Rejected] = []
        self.proposed = 0
        self._next = 0
        self._known: Duplicates = known_tasks(published, run.similarity, whole=source.whole)
        self._most = run.most if run.most is not None else max(50, 10 * run.count)

    async def until_enough(self) -> str | None:
        """Make and judge batches; return why it stopped before there were enough, or None."""
        empty = 0
        while len(self.kept) < self.run.count:
            if self.proposed + sum(counts_of(self.rejected)[1].values()) >= self._most:
                return f"{self._most} proposals are made, the limit (--most)"
            numbers = self._numbers()
            made = await self.source.make(numbers, [one.candidate.task for one in self.kept])
            empty = empty + 1 if not made else 0
            try:
                await self._take(made)
            except BudgetSpent as error:
                return error.message
            if self.run.on_batch is not None:
                self.run.on_batch(len(self.kept), self.run.count, self.proposed)
            if self.source.spent is not None:
                return self.source.spent.message
            if empty >= _EMPTY_BATCHES:
                return f"{_EMPTY_BATCHES} batches in a row gave no candidate"
        return None

    def _numbers(self) -> range:
        missing = self.run.count - len(self.kept)
        candidates = min(_MOST, max(_LEAST, math.ceil(missing * 1.25)))
        requests = math.ceil(candidates / self.source.per_request)
        first, self._next = self._next, self._next + requests
        return range(first, self._next)

    async def _take(self, made: Sequence[Candidate | Rejected]) -> None:
        """Judge a batch, and keep what passes, as far as it is wanted.

        Raises:
            BudgetSpent: the calibration is not complete. Nothing of the batch is kept.
        """
        candidates: list[Candidate] = []
        fresh = Duplicates(self.run.similarity, whole=self._known.whole)
        for one in made:
            self.proposed += isinstance(one, Candidate) or one.rejection.reason in ("schema", "held_out")
            if isinstance(one, Rejected):
                self.rejected.append(one)
            elif (fault := self._fault(one.task) or fresh.find(one.task)) is not None:
                self._reject(one, fault)
            else:
                fresh.add(one.task, "generated", one.task.id)
                candidates.append(one)
        verdicts = await self._judged(candidates)
        for candidate in candidates:
            verdict = verdicts[candidate.task.id]
            if isinstance(verdict, Rejection):
                self._reject(candidate, verdict)
            elif len(self.kept) < self.run.count:
                self.kept.append(candidate.with_calibration(verdict))
                self._known.add(candidate.task, "generated", candidate.task.id)
            else:
                self.proposed -= 1  # it is not needed

    def _fault(self, task: Task) -> Rejection | None:
        try:
            fields = whole_fields(task)
            again = read_task(type(task), task.id, json.loads(json.dumps(fields, allow_nan=False)))
        except (ValueError, RecursionError) as error:
            return Rejection("schema", f"it cannot be written as JSON: {error}"[:300])
        if again != task or whole_fields(again) != fields:
            return Rejection("schema", "it is another task when it is read back from JSON")
        return self._known.find(task)

    def _reject(self, one: Candidate, rejection: Rejection) -> None:
        self.rejected.append(Rejected(one.number, rejection, whole_fields(one.task)))

    async def _judged(self, candidates: Sequence[Candidate]) -> dict[str, Rejection | Calibrated | None]:
        """Return the verdicts on candidates, from the journal where it has them."""
        found: dict[str, Rejection | Calibrated | None] = {}
        keys = {
            candidate.task.id: f"{candidate.task.id}:{content_digest(whole_fields(candidate.task))}"
            for candidate in candidates
        }
        for candidate in candidates:
            if (known := self.journal.get("verdict", keys[candidate.task.id])) is not None:
                found[candidate.task.id] = _read_verdict(self.journal, known)
        left = [candidate for candidate in candidates if candidate.task.id not in found]
        for start in range(0, len(left), _MOST):
            judged = await self.judge.judge(left[start : start + _MOST])
            band = self.judge.band
            if band is not None and isinstance(band.policy, MeteredPolicy) and band.policy.spent is not None:
                raise band.policy.spent
            for id, verdict in judged.items():
                self.journal.put("verdict", keys[id], _write_verdict(verdict))
            found |= judged
        return found

    def report(self, stopped: str | None, began: float, model: str | None) -> RunReport:
        """Return the report."""
        rejected, replies = counts_of(self.rejected)
        return RunReport(
            environment=self.published.name, version=self.published.cls.version, mode=self.run.mode, seed=self.run.seed,
            split=self.run.split, wanted=self.run.count, proposed=self.proposed, replies_without_task=replies,
            kept=len(self.kept), rejected=rejected,
            filters=figures_of(self.proposed, self.rejected, self.run.calibration is not None),
            spending=spending_of(self.run.budget, model), seconds=round(time.monotonic() - began, 3), stopped=stopped,
            examples=examples_of(self.rejected),
        )  # fmt: skip

    def write(self, manifest: Manifest, report: RunReport) -> None:
        """Write the tasks, if any are kept, the report, and what was rejected if that is wanted."""
        rows = [
            Row(
                id=one.candidate.task.id, fields=whole_fields(one.candidate.task),
                provenance=provenance_of(
                    self.run.mode, one.candidate, self.run.seed, self.judge.passed, one.calibration
                ),
            )
            for one in self.kept
        ]  # fmt: skip
        if rows:
            write_tasks(self.run.out, manifest, {self.run.split: rows})
        replace_private(self.run.out / REPORT, json.dumps(report.as_json(), indent=2) + "\n")
        if self.run.keep_rejected:
            lines = [
                json.dumps({"number": one.number, "reason": one.rejection.reason, "detail": one.rejection.detail,
                            "proposal": one.content}, ensure_ascii=False, default=str)
                for one in self.rejected
            ]  # fmt: skip
            replace_private(self.run.out / REJECTED, "".join(f"{line}\n" for line in lines))


class _Verdict(BaseModel):
    """A verdict as the journal keeps it: a rejection, or a calibration of a kept task, if there was one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: Reason | None = None
    detail: str = ""
    kept: Calibrated | None = None


def _write_verdict(verdict: Rejection | Calibrated | None) -> dict[str, Any]:
    if isinstance(verdict, Rejection):
        return _Verdict(reason=verdict.reason, detail=verdict.detail).model_dump(mode="json")
    return _Verdict(kept=verdict).model_dump(mode="json")


def _read_verdict(journal: Journal, value: Any) -> Rejection | Calibrated | None:
    read = journal.read(_Verdict, value)
    return read.kept if read.reason is None else Rejection(read.reason, read.detail)
