"""Work for an employee of a generated company, with the tools of its applications."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

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
from ludus.environments.workplace.goals import Goal
from ludus.environments.workplace.grading import Outcome, evaluate
from ludus.environments.workplace.world.companies import company, names
from ludus.environments.workplace.world.company import Company
from ludus.environments.workplace.world.store import Store
from ludus.protocol import Answer, Call, Component, EpisodeLimits, Reward, StepResult, text_of
from ludus.server import Difficulty, Private, ProceduralEnvironment, Task, TaskDraw
from ludus.server.authoring.partition import digest


class WorkplaceTask(Task):
    """A request of an employee."""

    difficulty: Difficulty
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


def content_of(task: WorkplaceTask) -> str:
    """Return what makes a task the problem that it is: the company, who asks for what, and what it takes."""
    goal, case = goal_of(task)
    return f"{task.company}|{goal.me.id}|{goal.request}|{goal.answer}|{goal.changes}|{case.rows}"


class Workplace(ProceduralEnvironment[WorkplaceTask]):
    """Do the work of an employee of a generated company, with its mail, calendar, CRM, files and other applications."""

    version = "0.3.0"
    toolsets = (MailApp, CalendarApp, ContactsApp, CrmApp, ProjectsApp, FilesApp, HrApp, AnalyticsApp)
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=60)
    forkable = True
    blocking = False

    desk: Desk
    """What the tools work on."""

    @classmethod
    def make_task(cls, draw: TaskDraw[Difficulty]) -> WorkplaceTask:
        """Draw a request; templates take turns, then companies."""
        number = draw.index if draw.split == "train" else draw.place
        which, level = divmod(number, len(draw.difficulties))
        kinds = names_of(draw.difficulties[level])
        turn, kind = divmod(which, len(kinds))
        known = names(draw.split, draw.secret)
        return WorkplaceTask(
            id=draw.id,
            difficulty=draw.difficulties[level],
            company=known[(turn + kind) % len(known)],
            template=kinds[kind],
            draw=digest(f"workplace:{draw.split}:{kinds[kind]}:{turn}:{draw.secret}") >> 11,
            origin=draw.secret,
        )

    @classmethod
    def task_identity(cls, task: WorkplaceTask, draw: TaskDraw[Difficulty]) -> str:
        """Return the company, who asks for what, and what it takes."""
        return content_of(task)

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
            lacking = [show for show in step.shows if show not in text]
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
            value=share([change.met for change in outcome.changes]), weight=len(outcome.changes) / total,
            evidence=f"not met: {', '.join(lacking)}"[:500] if lacking else None,
        ),
        "answer": Component(value=float(outcome.answer and not spoiled), weight=outcome.answer_weight / total),
        "rules": Component(value=share([rule.met for rule in outcome.rules]), weight=len(outcome.rules) / total),
        "unexpected": Component(
            value=float(len(outcome.unexpected)), weight=0.0, evidence="; ".join(outcome.unexpected)[:500] or None
        ),
        "items": Component(value=float(total), weight=0.0),
        "solved": Component(value=float(met == total), weight=0.0),
    }  # fmt: skip
    value = 1.0 if met == total else sum(part.value * part.weight for part in parts.values())
    return Reward(value=value, components=parts, reason=void or f"{met}/{total} met")
