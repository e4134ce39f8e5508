"""An OpenEnv environment whose actions are MCP tools: read the labels of parcels and deliver them.

ludus serve 'openenv:examples/formats/openenv/parcels.py:app#python=PATH,deterministic=true'
"""

from typing import Any, Optional

from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State

ROUNDS = [
    {"red": "Ada", "blue": "Bo"},
    {"red": "Bo", "blue": "Cleo"},
    {"green": "Ada", "gray": "Ada"},
    {"white": "Dan", "black": "Ada"},
    {"red": "Cleo", "green": "Bo", "blue": "Ada"},
    {"pink": "Eve", "gray": "Dan", "teal": "Cleo"},
    {"red": "Ada", "blue": "Ada", "teal": "Ada"},
    {"black": "Bo", "white": "Bo", "gray": "Eve"},
    {"red": "Dan", "green": "Cleo", "blue": "Bo", "gray": "Ada"},
    {"pink": "Eve", "teal": "Dan", "white": "Cleo", "black": "Bo"},
]
"""The parcels of each task by color, and who gets them."""


class Parcels(MCPEnvironment):
    """Deliver each parcel to the person on its label. A right delivery earns 1, a wrong one loses half a point."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        server = FastMCP("parcels")
        self._labels: dict[str, str] = {}
        self._earned = 0.0
        self._state = State()

        @server.tool
        def look() -> list[str]:
            """List the colors of the parcels that are left."""
            return sorted(self._labels)

        @server.tool
        def read_label(color: str) -> str:
            """Read who gets the parcel of a color."""
            if color not in self._labels:
                raise ValueError(f"there is no {color} parcel")
            return f"To {self._labels[color]}"

        @server.tool
        def deliver(color: str, person: str) -> str:
            """Give the parcel of a color to a person."""
            if color not in self._labels:
                raise ValueError(f"there is no {color} parcel")
            right = self._labels.pop(color) == person
            self._earned = 1.0 if right else -0.5
            return "Thank you!" if right else "This is not mine."

        super().__init__(server)

    def list_splits(self) -> list[dict[str, str]]:
        return [{"name": "rounds", "type": "train"}]

    def num_tasks(self, split: str) -> int:
        return len(ROUNDS)

    def reset(
        self, seed: Optional[int] = None, episode_id: Optional[str] = None, index: int = 0, **kwargs: Any
    ) -> Observation:
        self._labels = dict(ROUNDS[index])
        self._state = State(episode_id=episode_id)
        return Observation(metadata={"parcels": len(self._labels)})

    async def step_async(self, action: Action, timeout_s: Optional[float] = None, **kwargs: Any) -> Observation:
        self._state.step_count += 1
        self._earned = 0.0
        observation = await super().step_async(action, timeout_s=timeout_s, **kwargs)
        observation.reward = self._earned
        observation.done = not self._labels
        return observation

    def _step_impl(self, action: Action, timeout_s: Optional[float] = None, **kwargs: Any) -> Observation:
        raise ValueError(f"{type(action).__name__} is no tool call")

    @property
    def state(self) -> State:
        return self._state


app = create_app(Parcels, CallToolAction, CallToolObservation, env_name="parcels", max_concurrent_envs=64)
