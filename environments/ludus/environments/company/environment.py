"""Five days of work in a generated company that remembers what was done."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count as count_up
from typing import Final

from ludus.environments.company.chains import (
    DAYS,
    Chain,
    cast_of,
    goal_of,
    history,
    judged,
    least_items,
    spoils,
    today_of,
)
from ludus.environments.company.office import APPS, desk_of
from ludus.environments.company.story import stories
from ludus.environments.workplace import equivalents, exploits
from ludus.environments.workplace.apps.desk import Desk
from ludus.environments.workplace.briefing import briefing
from ludus.environments.workplace.drafts import Case
from ludus.environments.workplace.environment import reward_of
from ludus.environments.workplace.goals import DONE, Goal
from ludus.environments.workplace.grading import Outcome
from ludus.environments.workplace.world.companies import names
from ludus.environments.workplace.world.store import Store
from ludus.protocol import Answer, Call, EpisodeLimits, Reward, StepResult, text_of
from ludus.server import Difficulty, Private, ProceduralEnvironment, Task, TaskDraw, WorldEnvironment
from ludus.server.authoring.partition import digest

_NOTHING_LEFT: Final = (
    "What I wanted to ask for today needs the records that we worked on in the days before, and they are not there any "
    "more. Change nothing, and tell me that there is nothing to do."
)
_STAYS: Final = (
    "The company goes on: what you did on earlier days is there, and what you change today stays. A change that was "
    "not asked for also makes the work of the days after worthless. "
)


class CompanyTask(Task):
    """The request of a day."""

    difficulty: Difficulty
    company: str
    """The name of the company, which determines the split."""
    day: int
    """The day of the chain, from 1 to 5."""
    story: Private[str]
    """The story of the chain."""
    draw: Private[int]
    """The seed of the story."""
    origin: Private[str] = ""
    """The secret from which a fresh company for tests is drawn; empty for others."""


@dataclass(slots=True)
class World:
    """A company that remembers.

    Attributes:
        store: its database.
        spoiled: whether a day has left a change that was not asked for.
    """

    store: Store
    spoiled: bool = False


def chain_of(task: CompanyTask) -> Chain:
    """Return the chain of a task."""
    return Chain(task.company, task.origin, task.difficulty, task.story, task.draw)


def make_chain(draw: TaskDraw[Difficulty], number: int) -> Chain:
    """Return the chain of a split with a number; difficulties take turns, then stories, then companies."""
    which, level = divmod(number, len(draw.difficulties))
    kinds = list(stories())
    turn, kind = divmod(which, len(kinds))
    known = names(draw.split, draw.secret)
    seed = digest(f"company:{draw.split}:{draw.difficulties[level]}:{kinds[kind]}:{turn}:{draw.secret}") >> 11
    return Chain(known[(turn + kind) % len(known)], draw.secret, draw.difficulties[level], kinds[kind], seed)


def _task(chain: Chain, draw: TaskDraw[Difficulty]) -> CompanyTask:
    return CompanyTask(
        id=draw.id, difficulty=chain.level, company=chain.company, day=draw.index % DAYS + 1, story=chain.story,
        draw=chain.draw, origin=chain.origin,
    )  # fmt: skip


class Company(ProceduralEnvironment[CompanyTask], WorldEnvironment[CompanyTask, World]):
    """Work five days in a generated company that remembers: each day goes on with what the earlier ones have left."""

    version = "0.2.0"
    counts = {"validation": 200 * DAYS, "test": 200 * DAYS}
    toolsets = APPS
    chain_length = DAYS
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=60)
    forkable = True
    blocking = False

    desk: Desk
    """What the tools work on."""

    @classmethod
    def make_task(cls, draw: TaskDraw[Difficulty]) -> CompanyTask:
        """Return a day of a chain for training."""
        return _task(make_chain(draw, draw.index // DAYS), draw)

    @classmethod
    def make_held_out_tasks(cls, draw: TaskDraw[Difficulty], count: int, taken: set[str]) -> Sequence[CompanyTask]:
        """Return the days of different chains."""
        chains: dict[str, Chain] = {}
        for number in count_up():
            if len(chains) * DAYS == count:
                break
            chain = make_chain(draw, number)
            chains.setdefault(f"{chain.company}|{chain.story}|{cast_of(chain)}", chain)
        days = [chain for chain in chains.values() for _ in range(DAYS)]
        return [_task(chain, draw.at(index)) for index, chain in enumerate(days)]

    @classmethod
    def world_of(cls, task: CompanyTask) -> str:
        """Return the chain: no other one shares its world."""
        return chain_of(task).text

    def new_world(self) -> World:
        """Return the company as it is if all days before were done."""
        return World(Store(history(chain_of(self.task), self.task.day - 1)))

    def save_world(self) -> bytes:
        """Return the database, and whether it is spoiled, also by this day."""
        spoiled = self.world.spoiled or spoils(self._outcome(""))
        return json.dumps({"spoiled": spoiled}).encode() + b"\n" + self.world.store.image()

    def load_world(self, saved: bytes) -> World:
        """Return a company as it was saved."""
        head, _, image = saved.partition(b"\n")
        return World(Store(image), json.loads(head)["spoiled"])

    def setup(self) -> None:
        """Find out what is wanted, given the company as it is, and add what the day brings."""
        chain, day, store = chain_of(self.task), self.task.day - 1, self.world.store
        goal, case = goal_of(chain, day, store)
        self._nothing_left = goal is None
        if goal is None:
            me = case.company.person.get(cast_of(chain).get("me", ""), case.company.employees[0])
            goal = Goal(_NOTHING_LEFT, me, ())
        self._goal = goal
        self._today = today_of(chain, day)
        self.desk = desk_of(goal, case, store)

    def teardown(self) -> None:
        """Free the database."""
        if "world" in self.__dict__:
            self.world.store.close()

    def prompt(self) -> str:
        """Return who the agent works for, the rules, the request and the form of the answer."""
        return briefing(self._goal.me, self.task.company, self._today.isoformat(), self._goal.request, _STAYS)

    def grade(self, answer: str) -> Reward:
        """Compare the changes of the day and the answer with what was wanted, given the company as it was."""
        void = ""
        if self.world.spoiled:
            void = "an earlier day left a change that was not asked for"
        elif self._nothing_left or (not self._goal.changes and self._goal.answer == DONE):
            void = "earlier days have not left what this day is about"
        return reward_of(self._outcome(answer), least_items(chain_of(self.task), self.task.day - 1), void)

    def _outcome(self, answer: str) -> Outcome:
        if "desk" not in self.__dict__:  # a new world, before the episode
            return Outcome()
        return judged(self._goal, self.world.store, answer, self.desk.today, self.desk.domain)

    @classmethod
    def oracle(cls, task: CompanyTask) -> Generator[Call | Answer, StepResult, None]:
        """Do the day in a company in which all days before were done.

        Raises:
            RuntimeError: a call was refused, or did not show what the agent has to learn from it.
        """
        goal, _ = _goal_in_order(task)
        for step in goal.steps:
            result = yield Call(step.tool, step.arguments)
            text = text_of(result.content)
            lacking = [show for show in step.shows if show not in text]
            if result.error is not None or lacking:
                raise RuntimeError(f"{task.story} day {task.day} ({task.id}): {step} does not show {lacking}: {text}")
        yield Answer(f"Answer: {goal.answer}")

    @classmethod
    def exploits(cls, task: CompanyTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return the policies of `workplace`, on the day of the task."""
        goal, case = _goal_in_order(task)
        return exploits.policies(goal, case)

    @classmethod
    def equivalents(cls, task: CompanyTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return the policies of `workplace`, on the day of the task."""
        goal, _ = _goal_in_order(task)
        return equivalents.policies(goal)


def _goal_in_order(task: CompanyTask) -> tuple[Goal, Case]:
    """Return what a task wants if all days before were done. The objects of the case stay usable."""
    chain = chain_of(task)
    goal, case = goal_of(chain, task.day - 1, Store(history(chain, task.day - 1)))
    assert goal is not None
    return goal, case
