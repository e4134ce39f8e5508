"""Work for an employee of a generated company, with the tools of its applications."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from functools import cache, partial
from itertools import count
from typing import Any, Final

from ludus.environments._partition import FreshTests, SplitName, digest, fresh_tests
from ludus.environments.workplace import equivalents, exploits
from ludus.environments.workplace.apps.analytics import AnalyticsApp
from ludus.environments.workplace.apps.calendar import CalendarApp
from ludus.environments.workplace.apps.contacts import ContactsApp
from ludus.environments.workplace.apps.crm import CrmApp
from ludus.environments.workplace.apps.desk import Desk
from ludus.environments.workplace.apps.files import FilesApp
from ludus.environments.workplace.apps.hr import HrApp
from ludus.environments.workplace.apps.mail import MailApp
from ludus.environments.workplace.apps.projects import ProjectsApp
from ludus.environments.workplace.backward import changes, describe, goal_from, write_goal
from ludus.environments.workplace.briefing import briefing
from ludus.environments.workplace.drafts import Case, make, names_of
from ludus.environments.workplace.goals import LEVELS, Goal, Level
from ludus.environments.workplace.grading import Outcome, evaluate
from ludus.environments.workplace.world.companies import company, names
from ludus.environments.workplace.world.company import Company
from ludus.environments.workplace.world.store import Store
from ludus.protocol import Answer, Call, Component, EpisodeLimits, Reward, StepResult, text_of
from ludus.server import Environment, Private, Split, Task

COUNTS: Final[Mapping[SplitName, int]] = {"validation": 300, "test": 300}
"""The number of tasks of the splits that end. Training never does."""


class WorkplaceTask(Task):
    """A request of an employee."""

    difficulty: Level
    company: str
    """The name of the company, which determines the split."""
    template: Private[str]
    """The kind of the task."""
    draw: Private[int]
    """The seed of the request."""
    origin: Private[str] = ""
    """The secret from which a fresh company for tests is drawn; empty for others."""
    goal: Private[str] = ""
    """A goal of `backward` that replaces the drawn one; empty for none."""


def company_of(task: WorkplaceTask) -> Company:
    """Return the company of a task."""
    return company(task.company, task.origin)


def goal_of(task: WorkplaceTask) -> tuple[Goal, Case]:
    """Return what a task wants, and the rows that it adds to the company."""
    goal, case = make(task.template, company_of(task), task.draw)
    return (goal_from(goal, task.goal), case) if task.goal else (goal, case)


def make_task(
    split: SplitName, levels: Sequence[Level], index: int, fresh: FreshTests | None = None, id: str = ""
) -> WorkplaceTask:
    """Return the task at an index; levels take turns, then templates, then companies."""
    which, level = divmod(index, len(levels))
    kinds = names_of(levels[level])
    turn, kind = divmod(which, len(kinds))
    secret = fresh.secret if fresh else ""
    known = names(split, secret)
    return WorkplaceTask(
        id=id or f"{split}-{index}",
        difficulty=levels[level],
        company=known[(turn + kind) % len(known)],
        template=kinds[kind],
        draw=digest(f"workplace:{split}:{kinds[kind]}:{turn}:{secret}") >> 11,
        origin=secret,
    )


def held_out_tasks(split: SplitName, levels: Sequence[Level]) -> Sequence[WorkplaceTask]:
    """Return all tasks of the split for validation or test, none of them twice."""
    return _made_once(split, tuple(levels), fresh_tests() if split == "test" else None)


@cache
def _made_once(split: SplitName, levels: tuple[Level, ...], fresh: FreshTests | None) -> Sequence[WorkplaceTask]:
    prefix = f"{split}-{fresh.name}" if fresh else split
    seen: set[str] = set()
    tasks: list[WorkplaceTask] = []
    for index in count():
        if len(tasks) == COUNTS[split]:
            break
        task = make_task(split, levels, index, fresh, f"{prefix}-{len(tasks)}")
        content = content_of(task)
        if content not in seen:
            seen.add(content)
            tasks.append(task)
    return tasks


def content_of(task: WorkplaceTask) -> str:
    """Return what makes a task the problem that it is: the company, who asks for what, and what it takes."""
    goal, case = goal_of(task)
    return f"{task.company}|{goal.me.id}|{goal.request}|{goal.answer}|{goal.changes}|{case.rows}"


def _held_out_task(split: SplitName, levels: Sequence[Level], index: int) -> WorkplaceTask:
    return held_out_tasks(split, levels)[index]


def _splits(*levels: Level) -> dict[str, Split[WorkplaceTask]]:
    held_out: dict[str, Split[WorkplaceTask]] = {
        split: Split.lazy(partial(_held_out_task, split, levels), count) for split, count in COUNTS.items()
    }
    return {"train": Split.generated(partial(make_task, "train", levels)), **held_out}


class Workplace(Environment[WorkplaceTask]):
    """Do the work of an employee of a generated company, with its mail, calendar, CRM, files and other applications."""

    version = "0.3.0"
    splits = _splits(*LEVELS)
    variants = {level: {"splits": _splits(level)} for level in LEVELS}
    toolsets = (MailApp, CalendarApp, ContactsApp, CrmApp, ProjectsApp, FilesApp, HrApp, AnalyticsApp)
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=60)
    forkable = True
    blocking = False

    desk: Desk
    """What the tools work on."""

    def setup(self) -> None:
        """Copy the company, and add what the task needs."""
        self._goal, case = goal_of(self.task)
        self._company = case.company
        store = Store(case.company.image)
        store.add_all(case.rows)
        me = store.get("employees", self._goal.me.id)
        assert me is not None
        self.desk = Desk(store, me, case.company.today, case.company.domain)

    def teardown(self) -> None:
        """Free the copy."""
        if "desk" in self.__dict__:
            self.desk.store.close()

    def prompt(self) -> str:
        """Return who the agent works for, the rules, the request and the form of the answer."""
        return briefing(self._goal.me, self._company.name, self._company.today.isoformat(), self._goal.request)

    def grade(self, answer: str) -> Reward:
        """Compare the changes and the answer with what the task wants."""
        return reward_of(evaluate(self._goal, self.desk.store, answer, self.desk.today, self.desk.domain))

    @classmethod
    def oracle(cls, task: WorkplaceTask) -> Generator[Call | Answer, StepResult, None]:
        """Look up what the task needs, make the wanted changes, and answer.

        Raises:
            RuntimeError: a call was refused, or did not show what the agent has to learn from it.
        """
        goal, _ = goal_of(task)
        for step in goal.steps:
            result = yield Call(step.tool, step.arguments)
            text = text_of(result.content)
            lacking = [one for one in step.shows if one not in text]
            if result.error is not None or lacking:
                raise RuntimeError(f"{task.template} ({task.id}): {step} does not show {lacking}: {text}")
        yield Answer(f"Answer: {goal.answer}")

    def final_state(self) -> list[dict[str, Any]] | None:
        """Return the rows that differ from those at the beginning."""
        return changes(self.desk.store)

    @classmethod
    def describe_state(cls, task: WorkplaceTask, state: list[dict[str, Any]]) -> str:
        """Return what each of these rows must become.

        Raises:
            ValueError: it cannot be put into a few words.
        """
        return describe(state)

    @classmethod
    def task_from_state(
        cls, id: str, task: WorkplaceTask, state: list[dict[str, Any]], calls: Sequence[Call], instruction: str
    ) -> WorkplaceTask:
        """Return the task to make the same changes for the employee of another task."""
        return task.model_copy(update={"id": id, "goal": write_goal(instruction, calls, state)})

    @classmethod
    def exploits(cls, task: WorkplaceTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return the policies of `exploits.py`."""
        goal, case = goal_of(task)
        return exploits.policies(goal, case)

    @classmethod
    def equivalents(cls, task: WorkplaceTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return the policies of `equivalents.py`."""
        goal, _ = goal_of(task)
        return equivalents.policies(goal)


def reward_of(outcome: Outcome, least_items: int = 0, void: str = "") -> Reward:
    """Return the reward for a checklist.

    Args:
        outcome: the checklist.
        least_items: how many items it counts as at least, so that a shorter one earns less than 1.
        void: why it earns nothing, if there is a reason besides what is unexpected.
    """
    spoiled = bool(outcome.unexpected or void)
    total = max(outcome.items, least_items)
    met = 0 if spoiled else outcome.met

    def share(items: Sequence[bool]) -> float:
        return 0.0 if spoiled or not items else sum(items) / len(items)

    lacking = [one.name for one in (*outcome.changes, *outcome.rules) if not one.met]
    parts = {
        "changes": Component(
            value=share([one.met for one in outcome.changes]), weight=len(outcome.changes) / total,
            evidence=f"not met: {', '.join(lacking)}"[:500] if lacking else None,
        ),
        "answer": Component(value=float(outcome.answer and not spoiled), weight=outcome.answer_weight / total),
        "rules": Component(value=share([one.met for one in outcome.rules]), weight=len(outcome.rules) / total),
        "unexpected": Component(
            value=float(len(outcome.unexpected)), weight=0.0, evidence="; ".join(outcome.unexpected)[:500] or None
        ),
        "items": Component(value=float(total), weight=0.0),
        "solved": Component(value=float(met == total), weight=0.0),
    }  # fmt: skip
    value = 1.0 if met == total else sum(one.value * one.weight for one in parts.values())
    return Reward(value=value, components=parts, reason=void or f"{met}/{total} met")
