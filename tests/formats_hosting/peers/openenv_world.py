"""OpenEnv environments for tests: seeded dice, and one with a fault for each action."""

import os
import random
import time
from typing import Any, Optional

from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field, field_validator


class Guess(Action):
    number: int = Field(ge=1, le=6)


class Roll(Observation):
    rolled: int
    rolls: int
    history: list[int] = []


class Dice(Environment[Guess, Roll, State]):
    """Guess dice; the seed of the reset decides them."""

    def __init__(self, sides: int = 6) -> None:
        super().__init__()
        self._sides = sides
        self._random = random.Random()
        self._rolls: list[int] = []

    def reset(self, seed: Optional[int] = None, episode_id: Optional[str] = None, **kwargs: Any) -> Roll:
        self._random = random.Random(seed)
        self._rolls = []
        return Roll(rolled=self._random.randint(1, self._sides), rolls=0)

    def step(self, action: Guess, timeout_s: Optional[float] = None, **kwargs: Any) -> Roll:
        rolled = self._random.randint(1, self._sides)
        self._rolls.append(rolled)
        count = len(self._rolls)
        reward = [None, 1, True, 0.25, -1.5][(rolled + count) % 5] if action.number != rolled else 1 / 3
        metadata = {"right": action.number == rolled}
        done = count >= 4 + self._sides % 4
        return Roll(rolled=rolled, rolls=count, history=self._rolls, reward=reward, done=done, metadata=metadata)

    @property
    def state(self) -> State:
        return State(step_count=len(self._rolls))


class Deed(Action):
    what: str

    @field_validator("what")
    @classmethod
    def known(cls, value: str) -> str:
        if value == "unknown":
            raise ValueError("no such deed")
        return value


class Told(Observation):
    text: str = ""
    number: float = 0.0


class Faults(Environment):
    """Does what the action says, also what it must not do."""

    opened = 0

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        Faults.opened += 1

    def reset(self) -> Told:
        return Told(text=f"instance {Faults.opened}", metadata={"secret": "s3cret"})

    def step(self, action: Deed) -> Told:
        self.steps += 1
        what = action.what
        if what == "raise":
            raise RuntimeError("this step is broken")
        if what == "hang":
            time.sleep(3600)
        if what == "exit":
            os._exit(3)
        if what == "print":
            print("printed on standard output", flush=True)
        if what == "nan":
            return Told(text="nan", number=float("nan"), reward=float("inf"))
        return Told(text=f"step {self.steps}", reward=0.5, done=what == "end", metadata={"secret": "s3cret"})

    @property
    def state(self) -> State:
        return State()


class Untyped(Environment):
    def reset(self, seed=None):
        return Told()

    def step(self, action):
        return Told()

    @property
    def state(self) -> State:
        return State()


class Unfinished(Environment):
    def reset(self, seed=None):
        return Told()


class Ended(Faults):
    """Ends with its reset."""

    def reset(self) -> Told:
        return Told(done=True)


not_an_environment = 7
app = create_app(Faults, Deed, Told, env_name="faults")
