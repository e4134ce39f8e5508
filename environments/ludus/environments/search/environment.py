"""Answer a multi-hop question about a generated encyclopedia, and cite the pages that prove the answer."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Generator, Mapping
from typing import Final

from ludus.environments.search import equivalents, exploits
from ludus.environments.search.answers import LONGEST, same_answer, supported
from ludus.environments.search.questions import (
    HOPS,
    AnswerForm,
    Question,
    QuestionMaker,
    questions_of,
)
from ludus.environments.search.reader import Reader, code_of
from ludus.environments.search.world import graph_of, layout_of, open_world
from ludus.environments.search.world.library import kept_world
from ludus.protocol import Answer, Call, Component, EpisodeLimits, Reward, StepResult, text_of
from ludus.server import Difficulty, Private, Result, Task, TaskDraw, ToolError, tool

TRAINING_QUESTIONS: Final = 300
"""The questions of a level about one training world."""
INTERLEAVED: Final = 4
"""The training worlds that take turns, until their questions are used up."""
HELD_OUT_WORLDS: Final = 5
"""The worlds of validation, and those of test."""

GENERATED_WORLDS: Final = range(1_000_000, 1_000_032)
"""The training worlds of `task_from_hops`, which the training split never reaches."""

CITATIONS: Final = 10
"""The most pages that an answer may cite."""

_TRIES: Final = 20
_BETWEEN_NEEDS, _BETWEEN_PAGES = " | ", " / "
_FORMS: Final[Mapping[AnswerForm, str]] = {
    "name": "a name, written as the title of its page without a word in parentheses",
    "year": "a year, such as 1893",
    "number": "a whole number in digits, without words",
    "date": "a date, such as 14 March 1893",
}


class SearchTask(Task):
    """A question about a world."""

    world: str
    """The name of the world."""
    question: str
    form: AnswerForm
    """What the answer is: a name, a year, a number or a date."""
    hops: int
    """The least number of pages that prove the answer."""
    difficulty: Difficulty
    solution: Private[str]
    """The answer."""
    evidence: Private[str]
    """The titles of the pages that state each needed fact, such as `A | B / C`: A, and B or C. The last states the
    answer."""
    deciding: Private[str] = ""
    """Which of these facts decide, such as `fact 3, fact 4`: the values that a question compares, the conditions that
    it has, or else the answer."""


def _task(id: str, world: str, difficulty: Difficulty, question: Question) -> SearchTask:
    titles = layout_of(world).titles
    evidence = _BETWEEN_NEEDS.join(
        _BETWEEN_PAGES.join(titles[page] for page in sorted(need)) for need in question.needs
    )
    deciding = ", ".join(f"fact {place + 1}" for place in question.deciding or (question.hops - 1,))
    return SearchTask(
        id=id, world=world, question=question.text, form=question.form, hops=question.hops, difficulty=difficulty,
        solution=question.answers[0], evidence=evidence, deciding=deciding,
    )  # fmt: skip


def evidence_of(task: SearchTask) -> list[list[str]]:
    """Return the titles of the pages that state each needed fact."""
    return [need.split(_BETWEEN_PAGES) for need in task.evidence.split(_BETWEEN_NEEDS)]


def deciding_of(task: SearchTask) -> list[int]:
    """Return the places in the evidence of the facts that decide."""
    return [int(place) - 1 for place in re.findall(r"\d+", task.deciding)]


class Search(Reader[SearchTask]):
    """Answer a question that takes several pages of a generated encyclopedia, and cite the pages that prove it."""

    version = "0.3.0"
    reward_range = (0.0, 1.0)
    discoverable_fields = ("solution", "evidence")
    limits = EpisodeLimits(max_steps=40)
    forkable = True
    blocking = False

    @classmethod
    def make_task(cls, draw: TaskDraw[Difficulty]) -> SearchTask:
        """Return a question; some worlds take turns."""
        if draw.split == "train":
            block, within = divmod(draw.place, INTERLEAVED * TRAINING_QUESTIONS)
            number, place = INTERLEAVED * block + within % INTERLEAVED, within // INTERLEAVED
            count = TRAINING_QUESTIONS
        else:
            place, number = divmod(draw.place, HELD_OUT_WORLDS)
            count = cls.counts[draw.split] // HELD_OUT_WORLDS
        world = f"{draw.prefix}-{number}"
        return _task(draw.id, world, draw.difficulty, questions_of(world, draw.difficulty, count)[place])

    async def setup(self) -> None:
        """Open the world; a thread makes it if this process has not."""
        kept = kept_world(self.task.world)
        self.begin_reading(await asyncio.to_thread(open_world, self.task.world) if kept is None else kept)

    def prompt(self) -> str:
        """Return the question and how to answer it."""
        return (
            "Answer the question below from an encyclopedia. It describes an invented country in 1990, so nothing that "
            "you know from elsewhere helps.\n"
            "Call `search` to find pages by words, and `open` to read a page. [[Words in brackets]] are links to "
            "pages. Some statements are out of date or mention an error: read carefully.\n"
            "When you know the answer, call `submit` once, with the answer and the ids of the pages that prove it: one "
            "page for each fact that leads to the answer, each of which you have opened. Your score is the share of "
            "these facts that your pages prove; a page that proves nothing lowers it, and a wrong answer scores 0. If "
            "the question compares two things, cite the values of both, and if it has two conditions, pages for both: "
            "nothing counts without them. That call ends the episode.\n\n"
            f"Question: {self.task.question}\n"
            f"The answer is {_FORMS[self.task.form]}."
        )

    @tool(inline=True, ends=True)
    def submit(self, answer: str, citations: list[str]) -> Result:
        """Give your answer and the pages that prove it. This ends the episode.

        Args:
            answer: the answer alone: one name, number, year or date.
            citations: the ids (or titles) of the pages that prove it, at most 10, each opened before.
        """
        if not answer.strip() or len(answer) > LONGEST:
            raise ToolError(f"The answer must have 1 to {LONGEST} characters.")
        if not 1 <= len(citations) <= CITATIONS:
            raise ToolError(f"Cite 1 to {CITATIONS} pages that prove the answer.")
        cited = {self.find_page(citation).number for citation in citations}
        if unopened := sorted(cited - self.opened):
            code = self.world.pages[unopened[0]].code
            raise ToolError(f"You have not opened the page {code}. Cite only pages that you have opened.")
        return Result("Your answer is recorded.", self._scored(answer, cited), finished=True)

    def _scored(self, answer: str, cited: set[int]) -> Reward:
        """Return the reward: citations count only with the right answer, and that only as far as it is proved.

        Nothing counts without a page for each fact that decides, so that choosing one of two candidates is worth 0.
        """
        task, numbers = self.task, self.world.by_name
        needs = [[numbers[title.lower()] for title in need] for need in evidence_of(task)]
        right = same_answer(answer, self.world.names.get(task.solution, (task.solution,)), task.form)
        support = supported(cited, needs)
        decided = all(cited.intersection(needs[place]) for place in deciding_of(task))
        counts = float(right and support.stated and decided)
        components = {
            "recall": Component(value=counts * support.recall, weight=0.75),
            "precision": Component(value=counts * support.recall * support.precision, weight=0.25),
            "answer": Component(value=counts, weight=0.0),
            "right": Component(value=float(right), weight=0.0),
            "opened": Component(value=float(len(self.opened)), weight=0.0),
            "searches": Component(value=float(self.searches), weight=0.0),
        }
        value = counts * support.recall * (0.75 + 0.25 * support.precision)
        return Reward.of(value, components)

    @classmethod
    def oracle(cls, task: SearchTask) -> Generator[Call | Answer, StepResult, None]:
        """Find and open one page for each fact, and answer."""
        citations = []
        for need in evidence_of(task):
            result = yield Call("search", {"query": need[0]})
            code = code_of(text_of(result.content), need[0])
            yield Call("open", {"page": code})
            citations.append(code)
        yield Call("submit", {"answer": task.solution, "citations": citations})

    @classmethod
    def task_from_hops(cls, id: str, rng: random.Random, hops: int) -> SearchTask | None:
        """Return a task of a walk through the graph of a training world.

        Raises:
            ValueError: no level has questions of so many hops.
        """
        levels: list[Difficulty] = [level for level, numbers in HOPS.items() if hops in numbers]
        if not levels:
            known = sorted(number for numbers in HOPS.values() for number in numbers)
            raise ValueError(f"its questions take {known[0]} to {known[-1]} hops")
        [level] = levels
        world = f"train-{rng.choice(GENERATED_WORLDS)}"
        maker = QuestionMaker(graph_of(world), layout_of(world), rng)
        drawn = (maker.make(level) for _ in range(_TRIES))
        question = next((one for one in drawn if one.hops == hops), None)
        return None if question is None else _task(id, world, level, question)

    @classmethod
    def exploits(cls, task: SearchTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return the policies of `exploits.py`."""
        return exploits.policies(task.question, task.solution, task.form, evidence_of(task))

    @classmethod
    def equivalents(cls, task: SearchTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return the policies of `equivalents.py`."""
        return equivalents.policies(task.solution, task.form, evidence_of(task))
