"""Edit a workbook to a goal, graded by what its file holds and by what its formulas give for other data.

Decisions:

* The agent works with structured tools on a workbook in memory. They are cheap, run on every machine, and need no
  sandbox, since the agent runs no programs. The workbook is a bounded part of the .xlsx format (`engine/book.py`).
* At the end it is written as a real .xlsx file with openpyxl and read again; the reward is about that file.
* Formulas are computed by our own evaluator (`engine/`), with a bounded set of functions and a bounded amount of work.
  It gives the same values on every machine, in microseconds; LibreOffice takes seconds to start, and is not installed
  everywhere. LibreOffice is the reference: a suite lets it recalculate thousands of files, and compares.
  Python libraries for formulas were no choice: `formulas` and `pycel` bring numpy, scipy or networkx, take long to
  load, and bound neither time nor memory.
* A formula is graded by behavior: the inputs change, and the results must follow (`grading.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from typing import Final

from ludus.environments.spreadsheet import exploits
from ludus.environments.spreadsheet.desk import BookDesk
from ludus.environments.spreadsheet.domains import DOMAINS
from ludus.environments.spreadsheet.engine.functions import FUNCTIONS
from ludus.environments.spreadsheet.equivalents import equivalents
from ludus.environments.spreadsheet.grading import evaluate
from ludus.environments.spreadsheet.tasks import GOALS, SpreadsheetTask, build, pool
from ludus.environments.spreadsheet.tools import CellTools, FeatureTools, SheetTools
from ludus.protocol import Answer, Call, Component, EpisodeLimits, Reward, StepResult
from ludus.server import Difficulty, ProceduralEnvironment, TaskDraw
from ludus.server.authoring.dice import Dice
from ludus.server.authoring.partition import digest

RULES: Final = """\
- Where formulas are asked for, write formulas. They are tried with other data in the tables and inputs, so numbers \
that you compute yourself do not help.
- Change nothing else: other cells, formats, names and sheets stay as they are. Do not use helper cells.
- Formats of cells that you fill do not matter, unless a request is about them.
- Results are exact: do not round unless a request says so."""


class Spreadsheet(ProceduralEnvironment[SpreadsheetTask]):
    """Edit a workbook with spreadsheet tools until it holds what was asked for."""

    version = "0.2.0"
    counts = {"validation": 200, "test": 200}
    toolsets = (CellTools, SheetTools, FeatureTools)
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=60)
    forkable = True
    blocking = False

    desk: BookDesk
    """What the tools work on."""

    @classmethod
    def make_task(cls, draw: TaskDraw[Difficulty]) -> SpreadsheetTask:
        """Draw a workbook and goals."""
        seed = digest(f"spreadsheet:{draw.split}:{draw.difficulty}:{draw.place}:{draw.secret}") >> 11
        dice, known = Dice(seed), pool(draw.split)
        domain, names = dice.pick(tuple(DOMAINS)), list(known)
        chosen: list[str] = []
        for _ in range(min(dice.between(*GOALS[draw.difficulty]), len(names))):
            name = dice.pick(names)
            names.remove(name)
            chosen.append(f"{name}/{dice.pick(known[name])}")
        return SpreadsheetTask(id=draw.id, difficulty=draw.difficulty, domain=domain, goals=" ".join(chosen), draw=seed)

    def setup(self) -> None:
        """Open a copy of the workbook."""
        self._scene, self._goals = build(self.task)
        self.desk = BookDesk(self._scene.book)

    def prompt(self) -> str:
        """Return the sheets, the requests and the rules."""
        sheets = "\n".join(
            f"- {sheet.name}: {sheet.used()}" + (" (hidden)" if sheet.hidden else "") for sheet in self.desk.book.sheets
        )
        requests = "\n".join(f"{number}. {goal.request}" for number, goal in enumerate(self._goals, 1))
        return (
            f"You edit an .xlsx workbook with tools. It has these sheets:\n{sheets}\n\n"
            f"Do all of this:\n{requests}\n\nRules:\n{RULES}\n\n"
            f"Functions for formulas: {', '.join(sorted(FUNCTIONS))}.\n\n"
            "Look at the sheets first with read_range. When all is done, send a short final message. The workbook is "
            "then saved, and checked as it is."
        )

    async def grade(self, answer: str) -> Reward:
        """Save the workbook, and check what the file holds."""
        outcome = await asyncio.to_thread(evaluate, self.desk.book, self._scene, self._goals, self.task.draw)
        share = sum(outcome.reached) / len(outcome.reached)
        return Reward.of(
            share,
            {
                "reached": Component(value=share),
                "intact": Component(value=float(not outcome.damage), weight=0.0),
            },
        )

    @classmethod
    def oracle(cls, task: SpreadsheetTask) -> Generator[Call | Answer, StepResult, None]:
        """Make the calls of all goals."""
        _, goals = build(task)
        for goal in goals:
            yield from _each(goal.solution)
        yield Answer("Done.")

    @classmethod
    def exploits(cls, task: SpreadsheetTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return the policies of `exploits.py`."""
        return exploits.policies(*build(task))

    @classmethod
    def equivalents(cls, task: SpreadsheetTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return the policies of `equivalents.py`."""
        return equivalents(build(task)[1])


def _each(calls: list[Call]) -> Generator[Call | Answer, StepResult, None]:
    for call in calls:  # noqa: UP028
        yield call
