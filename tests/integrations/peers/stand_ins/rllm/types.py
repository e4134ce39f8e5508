"""Types of rLLM 0.3 with the fields that agent flows read and write."""

from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, Field


@dataclass
class Task:
    """A row of a dataset."""

    id: str
    instruction: str
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass
class AgentConfig:
    """The endpoint of one rollout."""

    base_url: str
    model: str
    session_uid: str
    metadata: dict = field(default_factory=dict)
    is_validation: bool = False
    sampling_params: dict = field(default_factory=dict)


class Trajectory(BaseModel):
    """What an agent did; its steps come from the gateway."""

    name: str = "default_traj_name"
    steps: list[Any] = Field(default_factory=list)
    reward: float | None = None


class Episode(BaseModel):
    """The trajectories of one rollout."""

    is_correct: bool = False
    trajectories: list[Trajectory] = Field(default_factory=list)
    artifacts: dict[str, Any] = Field(default_factory=dict)
    metadata: dict = Field(default_factory=dict)
