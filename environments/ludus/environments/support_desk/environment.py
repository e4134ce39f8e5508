"""The help desk of a generated company: a dialogue with a user, a policy, and a database."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import lru_cache, partial
from typing import Any, ClassVar, Final

from ludus.environments.support_desk import equivalents, exploits, oracle
from ludus.environments.support_desk.cases import KINDS, Case, make_case
from ludus.environments.support_desk.desk import CommonTools, Desk, is_settled, open_store
from ludus.environments.support_desk.domain_tools import tools_of
from ludus.environments.support_desk.grading import grade
from ludus.environments.support_desk.kinds import OUTCOMES, Outcome
from ludus.environments.support_desk.model_user import endpoint_from_settings, phrase, understand
from ludus.environments.support_desk.people import Person, person
from ludus.environments.support_desk.prompts import prompt
from ludus.environments.support_desk.reading import read
from ludus.environments.support_desk.user import User
from ludus.protocol import Answer, Call, EpisodeLimits, Reward, StepResult
from ludus.server import Difficulty, Private, ProceduralEnvironment, Result, Task, TaskDraw, ToolError, tool
from ludus.server.authoring.partition import digest, draw_in_split
from ludus.server.rewards.judges.endpoint import Endpoint

LONGEST: Final = 2000
"""The most characters of a message to the user."""
_KINDS: Final = tuple(KINDS)


class SupportDeskTask(Task):
    """A user with one or two requests."""

    difficulty: Difficulty
    domain: str
    """The business: shop, airline, telecom or media."""
    kind: Private[str]
    """The kind of the first request."""
    outcome: Private[Outcome]
    """What the policy makes of it, unless the user is not who they claim to be, or the record is another's."""
    person: Private[str]
    """The user, who determines the split."""
    draw: Private[int]
    """The seed of all else."""


@lru_cache(maxsize=256)
def _case(difficulty: Difficulty, kind: str, outcome: Outcome, who: str, seed: int) -> Case:
    return make_case(difficulty, kind, outcome, Person(*who.split("|")), seed)


def case_of(task: SupportDeskTask) -> Case:
    """Return the case of a task."""
    return _case(task.difficulty, task.kind, task.outcome, task.person, task.draw)


class SupportDesk(ProceduralEnvironment[SupportDeskTask]):
    """Help a simulated user at the desk of a generated company, keep its policy, and leave its database right."""

    version = "0.2.0"
    toolsets = (CommonTools,)
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=60)
    blocking = False

    user_model: ClassVar[Endpoint | None] = endpoint_from_settings()
    """The model that gives the user its ears and words; None for a user of rules, which is the same for each seed."""
    seedable = user_model is None
    forkable = user_model is None
    durable = "replay" if user_model is None else "none"

    desk: Desk
    """What the tools work on."""

    @classmethod
    def make_task(cls, draw: TaskDraw[Difficulty]) -> SupportDeskTask:
        """Draw a user; kinds of requests take turns, then what the policy makes of them."""
        turn, at = divmod(draw.place, len(_KINDS))
        kind, outcome = _KINDS[at], OUTCOMES[(turn + at) % len(OUTCOMES)]
        stream = f"support_desk:{draw.split}:{draw.difficulty}:{draw.place}:{draw.secret}"
        who = draw_in_split(draw.split, stream, person, Person.text)
        return SupportDeskTask(
            id=draw.id, difficulty=draw.difficulty, domain=kind.partition("/")[0], kind=kind, outcome=outcome,
            person=who.text(), draw=digest(stream) >> 11,
        )  # fmt: skip

    def setup(self) -> None:
        """Open the database, and wake the user."""
        case = case_of(self.task)
        store = open_store(case)
        user = User(case, self.rng, partial(is_settled, store, case))
        self.desk = Desk(case, user, store)
        self._opening = user.opening()

    def teardown(self) -> None:
        """Free the database."""
        if "desk" in self.__dict__:
            self.desk.store.close()

    def prompt(self) -> str:
        """Return the policy, how the desk works, and the user's first message."""
        return prompt(self.desk.case, self._opening)

    def task_tools(self) -> list[Callable[..., Any]]:
        """Return the tools of the domain."""
        return tools_of(self.task.domain, self)

    @tool(inline=True)
    async def reply(self, message: str) -> Result:
        """Send a message to the user, and get the user's answer. The only way to talk with the user.

        Args:
            message: your words to the user, at most 2,000 characters.
        """
        if not message.strip() or len(message) > LONGEST:
            raise ToolError(f"A message has 1 to {LONGEST} characters, not {len(message)}. The user got nothing.")
        desk, model = self.desk, self.user_model
        reading = read(message, desk.case.policy.today)
        desk.conduct.heard(reading)
        if model is not None:
            reading = await understand(model, message, reading, tuple(desk.user.slots()))
        answer = desk.user.hear(reading)
        if model is not None:
            answer = await phrase(model, answer, message, desk.case)
        if desk.user.left:
            return Result(
                f"{answer}\n[The user has left. The conversation has ended.]", grade(self.desk), finished=True
            )
        return Result(answer)

    @tool(inline=True, ends=True)
    def end_conversation(self, message: str) -> Result:
        """Send the user a last message, and end the conversation. Do it only when nothing is left to do.

        Args:
            message: your last words to the user, at most 2,000 characters.
        """
        if len(message) > LONGEST:
            raise ToolError(f"A message has at most {LONGEST} characters, not {len(message)}. Nothing has ended.")
        return Result("The conversation has ended.", self._ended(message), finished=True)

    def grade(self, answer: str) -> Reward:
        """Take the final message as the last one to the user, and grade."""
        return self._ended(answer[:LONGEST])

    def _ended(self, message: str) -> Reward:
        reading = read(message, self.desk.case.policy.today)
        self.desk.conduct.heard(reading)
        self.desk.user.note(reading)
        return grade(self.desk)

    @classmethod
    def oracle(cls, task: SupportDeskTask) -> Generator[Call | Answer, StepResult, None]:
        """Work the case as a careful clerk does."""
        return oracle.solve(case_of(task))

    @classmethod
    def exploits(cls, task: SupportDeskTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return the policies of `exploits.py`."""
        return exploits.policies(case_of(task))

    @classmethod
    def equivalents(cls, task: SupportDeskTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return the policies of `equivalents.py`."""
        return equivalents.policies(case_of(task))
