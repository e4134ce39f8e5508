"""Write a report on several entities of a generated encyclopedia, graded by a generated checklist."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from ludus.environments.research import equivalents, exploits
from ludus.environments.research.archive import archive_of, kept_library, open_library
from ludus.environments.research.briefs import brief_of
from ludus.environments.research.checklist import WEIGHTS, Grading
from ludus.environments.research.prompt import prompt_of
from ludus.environments.research.prose import SHARE, ProseFault, endpoint_from_settings
from ludus.environments.research.report import Unreadable, form_problems, read_report
from ludus.environments.research.sheet import Sheet
from ludus.environments.research.writer import perfect, title_of
from ludus.environments.search.reader import Reader
from ludus.protocol import Answer, Call, EpisodeLimits, StepResult
from ludus.server import Difficulty, Result, Task, TaskDraw, ToolError, tool
from ludus.server.rewards import Attempt, Endpoint, Node, Penalty, Verdict, WeightedSum
from ludus.server.rewards import check as check_of
from ludus.server.rewards.nodes import Offload, settle

TRAINING_BRIEFS: Final = 200
"""The briefs of a level about one training world."""
INTERLEAVED: Final = 4
"""The training worlds that take turns, until their briefs are used up."""
HELD_OUT_WORLDS: Final = 5
"""The worlds of validation, and those of test."""
PROBLEMS: Final = 8
"""The most problems that `check` lists."""


class ResearchTask(Task):
    """A report on a world. The brief, and all that is right, follow from these fields."""

    world: str
    """The name of the world."""
    difficulty: Difficulty
    number: int
    """The number of the brief among those of its level about the world."""


def sheet_of(task: ResearchTask) -> Sheet:
    """Return what a perfect report on a task says."""
    return Sheet.of(archive_of(task.world), brief_of(task.world, task.difficulty, task.number))


@dataclass(frozen=True)
class ReportScore(Node):
    """The checklist of the submitted report, and the judge of its prose if there is one."""

    def names(self) -> Iterator[str]:
        """Yield the parts."""
        yield from WEIGHTS

    async def evaluate(self, attempt: Attempt, offload: Offload) -> Verdict:
        """Evaluate the checklist that the episode has made of its report."""
        environment: Research | None = attempt.environment
        if environment is None:
            return Verdict.unscored("a report is graded by the episode that opened its pages; score it with a replay")
        tree = environment.checklist()
        if tree is None:
            return Verdict(0.0, "no report was submitted", "report")
        found = await settle(tree.evaluate(attempt, offload))
        # The parts are fractions of the whole, so that a perfect report may miss 1 by the last bit.
        return Verdict(None if found.value is None else round(found.value, 12), found.evidence, "", found.parts)


class Research(Reader[ResearchTask]):
    """Write a report on several entities of a generated encyclopedia, graded by a checklist of 100 to 200 items."""

    version = "0.2.0"
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=120)
    forkable = True
    blocking = False
    rubric = ReportScore()
    prose_judge: ClassVar[Endpoint | None] = endpoint_from_settings()
    """The model that judges the prose of summaries; None if the checklist alone grades."""

    summary: str = ""
    """The summary of the submitted report."""

    @classmethod
    def make_task(cls, draw: TaskDraw[Difficulty]) -> ResearchTask:
        """Return a brief; some worlds take turns."""
        if draw.split == "train":
            block, within = divmod(draw.place, INTERLEAVED * TRAINING_BRIEFS)
            world, place = INTERLEAVED * block + within % INTERLEAVED, within // INTERLEAVED
        else:
            place, world = divmod(draw.place, HELD_OUT_WORLDS)
        return ResearchTask(id=draw.id, world=f"{draw.prefix}-{world}", difficulty=draw.difficulty, number=place)

    async def setup(self) -> None:
        """Open the world; a thread makes it if this process has not."""
        kept = kept_library(self.task.world)
        self.begin_reading(await asyncio.to_thread(open_library, self.task.world) if kept is None else kept)
        self._sheet = sheet_of(self.task) if kept else await asyncio.to_thread(sheet_of, self.task)
        self._grading: Grading | None = None

    def prompt(self) -> str:
        """Return the brief and the rules."""
        return prompt_of(self._sheet, max_steps=self.limits.max_steps or 0)

    @tool(inline=True)
    def check(self, report: str) -> str:
        """Say what is wrong with the form of a draft: its sections, lines, citations and length, not its facts.

        Args:
            report: the whole draft.
        """
        codes = self._sheet.archive.codes
        try:
            found = read_report(report)
        except Unreadable as error:
            raise ToolError(str(error)) from None
        problems = form_problems(
            found, title_of(self._sheet), self._sheet.labels, len(self._sheet.answers),
            {codes[page] for page in self.opened},
        )  # fmt: skip
        said = f"{len(found.findings)} findings, {len(found.contradictions)} contradictions, {len(found.rows)} rows."
        if not problems:
            return f"The form is right. {said}"
        more = [f"… and {len(problems) - PROBLEMS} more."] if len(problems) > PROBLEMS else []
        return "\n".join([f"The form has problems. {said}", *problems[:PROBLEMS], *more])

    @tool(inline=True, ends=True)
    def submit(self, report: str) -> Result:
        """Hand in the report. This ends the episode.

        Args:
            report: the whole report, in the form that the task states.
        """
        try:
            found = read_report(report)
        except Unreadable as error:
            raise ToolError(str(error)) from None
        codes = {code: page for page, code in enumerate(self._sheet.archive.codes)}
        self._grading = Grading(self._sheet, found, title_of(self._sheet), self.opened, codes)
        self.summary = found.summary
        return Result("Your report is recorded.", finished=True)

    def checklist(self) -> Node | None:
        """Return the checks of the submitted report; None if there is none."""
        if self._grading is None:
            return None
        value = self._grading.value
        metrics = [
            check_of(lambda attempt: float(len(self.opened)), name="opened", weight=0.0),
            check_of(lambda attempt: float(self.searches), name="searches", weight=0.0),
        ]
        judged: list[Node] = []
        if self.prose_judge is not None and value > 0:
            judged = [Penalty(ProseFault(name="prose", endpoint=self.prose_judge), amount=SHARE * value)]
        return WeightedSum((self._grading.tree(), *metrics, *judged))

    @classmethod
    def oracle(cls, task: ResearchTask) -> Generator[Call | Answer, StepResult, None]:
        """Open each page that the report cites, and submit the perfect report."""
        sheet = sheet_of(task)
        yield Call("search", {"query": sheet.titles[0]})
        for page in sheet.needed:
            yield Call("open", {"page": sheet.archive.titles[page]})
        report = perfect(sheet).text()
        yield Call("check", {"report": report})
        yield Call("submit", {"report": report})

    @classmethod
    def exploits(cls, task: ResearchTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return the policies of `exploits.py`."""
        return exploits.policies(sheet_of(task))

    @classmethod
    def equivalents(cls, task: ResearchTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return the policies of `equivalents.py`."""
        return equivalents.policies(sheet_of(task))
