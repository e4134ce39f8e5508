"""An echo environment on OpenEnv's own server, run by its own Python: `python openenv_server.py PORT`.

At its best: asynchronous `reset` and `step`, sessions as many as wanted, and uvloop where its installation has it.
"""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Say(Action):
    """What to echo."""

    text: str


class Heard(Observation):
    """The echo."""

    text: str = ""


class Echo(Environment[Say, Heard, State]):
    """Echoes."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Heard:
        self._state = State(episode_id=episode_id)
        return Heard(text="hi")

    async def reset_async(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> Heard:
        return self.reset(seed, episode_id, **options)

    def step(self, action: Say, timeout_s: float | None = None, **_: Any) -> Heard:
        return Heard(text=action.text)

    async def step_async(self, action: Say, timeout_s: float | None = None, **options: Any) -> Heard:
        return self.step(action, timeout_s, **options)

    @property
    def state(self) -> State:
        return self._state


if __name__ == "__main__":
    app = create_fastapi_app(Echo, Say, Heard, max_concurrent_envs=100_000)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
