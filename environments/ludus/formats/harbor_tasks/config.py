"""The file `task.toml` of a Harbor task, as far as it matters here. Other entries are ignored, as Harbor does."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, Field, field_validator, model_validator

NetworkMode = Literal["no-network", "public", "allowlist"]
VerifierMode = Literal["shared", "separate"]

_TEMPLATE: Final = re.compile(r"\$\{([^}:]+)(?::-(.*))?\}")
_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMG])\s*", re.IGNORECASE)
_MEBIBYTES: Final = {"K": 1 / 1024, "M": 1.0, "G": 1024.0}


class NetworkConfig(BaseModel):
    """A network policy."""

    network_mode: NetworkMode | None = None
    allowed_hosts: list[str] | None = None
    allow_internet: bool | None = None
    """The older form of `network_mode`."""

    @property
    def mode(self) -> NetworkMode | None:
        """The mode; None if nothing is said."""
        if self.network_mode is None and self.allowed_hosts is None and self.allow_internet is not None:
            return "public" if self.allow_internet else "no-network"
        return self.network_mode


class EnvironmentConfig(NetworkConfig):
    """The section `[environment]`, and `[verifier.environment]`."""

    docker_image: str | None = None
    os: str = "linux"
    memory_mb: int | None = Field(default=None, ge=1)
    storage_mb: int | None = Field(default=None, ge=1)
    gpus: int | None = None
    tpu: dict[str, Any] | None = None
    mcp_servers: list[Any] = []
    env: dict[str, str] = {}
    skills_dir: str | None = None
    healthcheck: dict[str, Any] | None = None
    workdir: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_sizes(cls, data: Any) -> Any:
        """Accept `memory = "2G"` and `storage = "10G"` of older files."""
        if isinstance(data, dict):
            for old in ("memory", "storage"):
                text = data.get(old)
                if isinstance(text, str) and (found := _SIZE.fullmatch(text)):
                    data = {**data, f"{old}_mb": int(float(found[1]) * _MEBIBYTES[found[2].upper()])}
        return data


class CollectConfig(BaseModel):
    """A command that runs before artifacts are collected."""

    command: str
    service: str = "main"
    timeout_sec: float = Field(default=60.0, gt=0)


class VerifierConfig(NetworkConfig):
    """The section `[verifier]`."""

    timeout_sec: float = Field(default=600.0, gt=0)
    env: dict[str, str] = {}
    user: str | int | None = None
    environment_mode: VerifierMode | None = None
    environment: EnvironmentConfig | None = None
    collect: list[CollectConfig] = []

    @model_validator(mode="after")
    def _check_mode(self) -> VerifierConfig:
        if self.environment_mode == "shared" and self.environment is not None:
            raise ValueError("environment_mode = 'shared' and [verifier.environment] exclude each other")
        return self


class AgentConfig(NetworkConfig):
    """The section `[agent]`."""

    timeout_sec: float | None = Field(default=None, gt=0)
    user: str | int | None = None


class SolutionConfig(BaseModel):
    """The section `[solution]`."""

    env: dict[str, str] = {}


class ArtifactConfig(BaseModel):
    """A file or a directory that a separate verifier gets."""

    source: str
    service: str | None = None

    @field_validator("source")
    @classmethod
    def _check_source(cls, source: str) -> str:
        if ".." in source.split("/"):
            raise ValueError("an artifact's source must not contain '..'")
        return source


class TaskConfig(BaseModel):
    """The file `task.toml`."""

    verifier: VerifierConfig = VerifierConfig()
    agent: AgentConfig = AgentConfig()
    environment: EnvironmentConfig = EnvironmentConfig()
    solution: SolutionConfig = SolutionConfig()
    steps: list[Any] | None = None
    artifacts: list[str | ArtifactConfig] = []

    @property
    def verifier_mode(self) -> VerifierMode:
        """Where the verifier runs: in the agent's sandbox unless the file says otherwise."""
        if self.verifier.environment_mode is not None:
            return self.verifier.environment_mode
        return "shared" if self.verifier.environment is None else "separate"

    @property
    def network(self) -> tuple[NetworkMode, tuple[str, ...]]:
        """The network policy of the agent: its own, or else the environment's; public by default."""
        for policy in (self.agent, self.environment):
            if (mode := policy.mode) is not None:
                return mode, tuple(policy.allowed_hosts or ())
        return "public", ()

    @property
    def artifact_paths(self) -> tuple[str, ...]:
        """The paths that a separate verifier gets: `/logs/artifacts`, and those of the file."""
        named = [artifact if isinstance(artifact, str) else artifact.source for artifact in self.artifacts]
        return tuple(dict.fromkeys(["/logs/artifacts", *(path.rstrip("/") or "/" for path in named)]))

    @property
    def services(self) -> set[str]:
        """The containers that the file names, other than the agent's own."""
        named = [artifact.service for artifact in self.artifacts if isinstance(artifact, ArtifactConfig)]
        return {name for name in [*named, *(hook.service for hook in self.verifier.collect)] if name} - {"main"}


def resolve_variables(variables: Mapping[str, str], host: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return environment variables with `${NAME}` and `${NAME:-default}` replaced by those of this machine.

    Raises:
        ValueError: this machine has no such variable, and there is no default.
    """
    resolved = {}
    for name, value in variables.items():
        found = _TEMPLATE.fullmatch(value)
        if found is not None:
            given = host.get(found[1], found[2])
            if given is None:
                raise ValueError(f"the environment variable {found[1]} is not set; set it for the server")
            value = given
        resolved[name] = value
    return resolved
