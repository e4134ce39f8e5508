"""Check at startup that right answers earn 1: what rows expect, written in the form that the prompt asks for.

A grader may read something else than what the author of the data meant. A wrong reading would show only as rewards of 0
for right answers, which look like a weak policy; here it stops the server.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from ludus.formats.dataset.graders import Grader
from ludus.formats.dataset.tasks import DatasetTask
from ludus.protocol.errors import AuthoringError
from ludus.server import Attempt
from ludus.server.rewards import Check, Verdict

SAMPLE: Final = {"math": 256}
"""Sets with up to twice as many rows are checked whole, of larger ones so many rows or more, evenly spread. Comparing
mathematics takes about 10 ms."""
_SAMPLE: Final = 1_000
_CONCURRENT: Final = 32
_NAMED: Final = 50


@dataclass(frozen=True, slots=True)
class _Gold:
    """What a grader needs of a task; a whole task may be large."""

    place: str
    answer: Any
    choices: dict[str, str]


class GoldSample:
    """Rows of a dataset, evenly spread, whose right answers are graded once all rows are read.

    Args:
        grader: how answers are graded. Without a `check`, nothing is sampled.
        name: the grader's name.
    """

    def __init__(self, grader: Grader, name: str) -> None:
        self._grader = grader
        self._most = 2 * SAMPLE.get(name, _SAMPLE)
        self._rows: list[_Gold] = []
        self._stride, self._count = 1, 0

    def add(self, place: str, task: DatasetTask) -> None:
        """Add a row, named by its file and line."""
        if self._grader.check is None:
            return
        if self._count % self._stride == 0:
            self._rows.append(_Gold(place, task.answer, task.choices))
            if len(self._rows) > self._most:
                self._rows = self._rows[::2]
                self._stride *= 2
        self._count += 1

    def check(self) -> None:
        """Grade the right answers of the sample.

        Raises:
            AuthoringError: some earn less than 1; the message names their files and lines.
        """
        if self._grader.check is None or not self._rows:
            return
        attempts = [Attempt(answer=self._grader.best(gold.answer) or "", task=gold) for gold in self._rows]
        with ThreadPoolExecutor(1) as thread:  # the caller's thread may run an event loop
            verdicts = thread.submit(asyncio.run, grade(self._grader.check, attempts)).result()
        wrong = [
            (gold.place, attempt.answer, verdict)
            for gold, attempt, verdict in zip(self._rows, attempts, verdicts, strict=True)
            if verdict.value != 1
        ]
        if not wrong:
            return
        place, message, verdict = wrong[0]
        earned = "is unscored" if verdict.value is None else f"earns {verdict.value:g}"
        others = f". The same holds for {', '.join(place for place, _, _ in wrong[1:_NAMED])}" if wrong[1:] else ""
        raise AuthoringError(
            f"{place}: its right answer, written as the prompt asks, {earned}: {message[:200]!r} ({verdict.evidence}); "
            f"correct the row, leave it out, or choose another grader ({len(wrong)} of {len(attempts)} checked rows)"
            f"{others}"
        )


async def grade(check: Check, attempts: Sequence[Attempt]) -> list[Verdict]:
    """Return the verdicts of a check on attempts."""

    async def verdict_on(attempt: Attempt) -> Verdict:
        judged = check.check(attempt)
        judged = await judged if inspect.isawaitable(judged) else judged
        if not isinstance(judged, Verdict):
            raise TypeError(f"the grader returned {type(judged).__name__}")
        return judged

    verdicts: list[Verdict] = []
    for begin in range(0, len(attempts), _CONCURRENT):
        verdicts += await asyncio.gather(*map(verdict_on, attempts[begin : begin + _CONCURRENT]))
    return verdicts
