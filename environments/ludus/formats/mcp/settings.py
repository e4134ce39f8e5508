"""The options of `mcp:` and `docker:`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Json, field_validator

from ludus.sandbox import Limits, SandboxSettings

_MIB = 1024 * 1024


def _words(value: Any) -> Any:
    return value.replace(",", " ").split() if isinstance(value, str) else value


def _shown(path: str) -> tuple[str, str]:
    outside, _, inside = path.partition(":")
    return outside, inside or outside


Words = Annotated[tuple[str, ...], BeforeValidator(_words)]
"""Several values, with spaces or commas (`%2C`) between them."""


class McpSettings(BaseModel):
    """How to run MCP servers, and what to ask of the agent."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    tasks: str | None = None
    """The file with the tasks: one JSON object a line."""
    verifier: str | None = None
    """`FILE.py:FUNCTION`, a checklist (`FILE.json` or `FILE.toml`), `state` or `answer`; by default the fields `answer`
    and `expect` of each task."""
    name: str | None = Field(default=None, max_length=100)
    """The published name; by default from the file with the tasks."""
    version: str = "0"
    """The published version."""
    warm: int = Field(default=1, ge=0, le=256)
    """How many servers are kept ready for the next episodes."""
    reset: str | None = None
    """A tool that puts the server back into its first state, so that episodes use one server one after the other."""
    resources: Words = ()
    """URIs of resources that are shown after each prompt."""
    prompt: str | None = None
    """A prompt of the server, shown before that of the task."""
    instructions: bool = False
    """Whether the agent sees the server's instructions."""
    tools: Words = ()
    """The tools that the agent gets; all by default. A verifier may call the others."""
    prefix: str = ""
    """Text in front of the names of all tools."""
    sandbox: str = "none"
    """The provider of sandboxes that commands run in, such as `bubblewrap`; `none` runs them as the server's user."""
    readonly: Words = ()
    """Paths of this machine that a sandbox shows, under the same names or as `PATH:PATH-INSIDE`."""
    network: Words = ()
    """Hosts that a sandbox may reach."""
    env: Json[dict[str, str]] | None = None
    """Environment variables of the commands, as JSON."""
    cwd: str | None = None
    """The directory in which commands start; by default that of `ludus serve`, and in a sandbox the work directory."""
    memory: int = Field(default=2048, ge=16)
    """Memory of one server with all its processes, in MiB."""
    processes: int = Field(default=512, ge=1)
    """How many processes one server may have."""
    disk: int = Field(default=1024, ge=1)
    """What one server may write to its directory, in MiB; its largest file may take half of it."""
    most_tools: int = Field(default=256, ge=1, le=10_000)
    """How many tools one server may list."""
    answer_mib: int = Field(default=8, ge=1, le=1024)
    """How long one answer of a server may be, in MiB; a longer one is an error of its call."""
    revision: Literal["auto", "legacy", "2026-07-28"] | None = None
    """How to agree on a revision of MCP: by default "legacy" over HTTP, which has sessions, and "auto" otherwise."""
    call_seconds: float = Field(default=30.0, gt=0)
    """How long a call may take."""
    start_seconds: float = Field(default=60.0, gt=0)
    """How long a server may take to start and to list its tools."""
    deterministic: bool = False
    """Whether the same calls always lead to the same state, as you promise: episodes may then be forked, by repeating
    their calls, and started with a given seed."""

    @property
    def is_isolated(self) -> bool:
        """Whether commands run in a sandbox that isolates them."""
        return self.sandbox not in ("none", "unsafe-local")

    @property
    def answer_bytes(self) -> int:
        """The longest answer of a server that is read."""
        return self.answer_mib * _MIB

    def sandbox_settings(self, image: str | None = None) -> SandboxSettings:
        """Return the settings of the place where a command runs."""
        limits = Limits(
            memory=self.memory * _MIB, processes=self.processes, disk=self.disk * _MIB,
            file_size=max(self.disk // 2, 1) * _MIB, spawned_seconds=1e8, spawned_cpu_seconds=1e7, spawned_output=2**40,
        )  # fmt: skip
        return SandboxSettings(
            provider="unsafe-local" if self.sandbox == "none" else self.sandbox, limits=limits, image=image,
            readonly=tuple(map(_shown, self.readonly)), network=self.network, warm=0,
        )  # fmt: skip


class DockerSettings(McpSettings):
    """The options of `docker:`, which are those of `mcp:`."""

    sandbox: str = "docker"

    @field_validator("sandbox")
    @classmethod
    def _check_sandbox(cls, sandbox: str) -> str:
        if sandbox != "docker":
            raise ValueError("an image runs in `docker`; for another program, use the format `mcp`")
        return sandbox
