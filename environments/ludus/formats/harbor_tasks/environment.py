"""The environment of Harbor's task folders."""

from __future__ import annotations

import asyncio
import base64
import io
import tarfile
import time
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import asynccontextmanager
from typing import ClassVar, Final

from ludus.formats.harbor_tasks.folder import HarborFolder, HarborSettings, files_of
from ludus.formats.harbor_tasks.verifier import (
    AgentMisuse,
    NoReward,
    collect,
    copy_artifacts,
    prepare,
    reward_of,
    verify,
)
from ludus.protocol.actions import Answer, Call
from ludus.sandbox import RunResult, Sandbox, SandboxSettings
from ludus.sandbox.core.errors import SandboxFileError
from ludus.server import Environment, EpisodeLimits, Result, Reward, StepResult, Task, ToolError, tool
from ludus.server.execution.clock import current_clock

_CHUNK: Final = 60_000
"""Characters of one command that the oracle uses to write its files."""
_UNPACK: Final = "base64 -d /tmp/solution.b64 | tar x -C /solution && chmod -R u+rwX /solution && rm /tmp/solution.b64"
_SOLVE: Final = "(/solution/solve.sh) > /logs/agent/oracle.txt 2>&1"


class HarborTask(Task):
    """A task: its instruction. Everything else is read from its folder, on the server."""

    instruction: str


class HarborEnvironment(Environment[HarborTask]):
    """Tasks in sandboxes, each checked by the tests in its folder after the agent has ended."""

    seedable = False
    blocking = False
    folders: ClassVar[Mapping[str, HarborFolder]] = {}
    """The task folders, by the task's id."""
    settings: ClassVar[HarborSettings] = HarborSettings()
    limits = EpisodeLimits()

    _folder: HarborFolder
    _env: dict[str, str]
    _cwd: str
    _deadline: float | None = None

    @classmethod
    def sandbox_for(cls, task: HarborTask) -> SandboxSettings:
        """Return the sandbox of a task."""
        return cls.folders[task.id].sandbox

    async def setup(self) -> None:
        """Fill the sandbox with the task's files, and start the agent's time."""
        self._folder = self.folders[self.task.id]
        self._env = await prepare(self.sandbox, self._folder)
        workdir = self._folder.workdir or self._env.get("PWD", "/app")
        self._env["PWD"] = workdir  # programs then see this path and not the one that it leads to
        self._cwd = self._folder.inside(workdir) or "."
        seconds = self._folder.config.agent.timeout_sec
        self._deadline = None if seconds is None else time.monotonic() + seconds

    def prompt(self) -> str:
        """Return the task's instruction."""
        return self.task.instruction

    @tool
    async def bash(self, command: str, timeout_seconds: float | None = None) -> str | Result:
        """Run a command with bash, in a new process that starts in the task's directory.

        Args:
            command: the command.
            timeout_seconds: the time after which the command is ended; by default, the longest time that is allowed.
        """
        if timeout_seconds is not None and not timeout_seconds > 0:
            raise ToolError("timeout_seconds must be more than 0")
        seconds = self.settings.command_seconds
        if timeout_seconds is not None:
            seconds = min(seconds, timeout_seconds)
        if self._deadline is not None:
            left = self._deadline - time.monotonic()
            if left <= 0:
                return await self._time_is_up()
            seconds = min(seconds, left)
        box = self.sandbox
        try:
            limits = box.limits.but(seconds=min(seconds, box.limits.seconds))
            result = await box.run(["bash", "-c", command], env=self._env, cwd=self._cwd, limits=limits)
        except SandboxFileError as error:
            raise ToolError(f"the task's directory is gone: {error.message}") from None
        if self._deadline is not None and time.monotonic() >= self._deadline:
            return await self._time_is_up(_shown(result))
        return _shown(result)

    @tool
    async def read_file(self, path: str) -> str:
        """Read a text file of at most 1 MiB.

        Args:
            path: the file, relative to the task's directory or absolute.
        """
        try:
            return (await self.sandbox.read(self._inside(path), limit=2**20)).decode("utf-8", "replace")
        except SandboxFileError as error:
            raise ToolError(error.message) from None

    @tool
    async def write_file(self, path: str, text: str) -> str:
        """Write a text file, replacing an existing one, and create missing directories.

        Args:
            path: the file, relative to the task's directory or absolute.
            text: the content.
        """
        try:
            await self.sandbox.write(self._inside(path), text.encode("utf-8", "replace"))
        except SandboxFileError as error:
            raise ToolError(error.message) from None
        return f"wrote {path}"

    async def grade(self, answer: str) -> Reward:
        """Run the task's tests, and return the reward that they leave."""
        try:
            async with self._verifier_box() as box:
                rewards = await verify(box, self._folder, self._cwd, self._env, _seconds_left())
        except AgentMisuse as error:
            return Reward.of(0.0, reason=f"the agent cannot be verified: {error}")
        except NoReward as error:
            if self.settings.failed_verifier == "unscored":
                return Reward.unscored(str(error))
            return Reward.of(0.0, reason=str(error))
        return reward_of(rewards, self.settings.reward)

    @asynccontextmanager
    async def _verifier_box(self) -> AsyncIterator[Sandbox]:
        await collect(self.sandbox, self._folder, self._cwd)
        asked, wanted = self._folder.config.verifier_mode, self.settings.verifier
        if (asked if wanted == "task" else wanted) == "shared":
            yield self.sandbox
            return
        async with self._all_sandboxes.verifier("separate", ()) as box:
            await prepare(box, self._folder)
            await copy_artifacts(self.sandbox, box, self._folder, forced=asked == "shared")
            yield box

    async def _time_is_up(self, shown: str = "") -> Result:
        """End the episode with the reward of what the agent has done so far, as Harbor does at its time limit."""
        reward = await self.grade("")
        text = f"{shown}\nThe time limit of the task has passed.".strip()
        return Result(text, reward=reward, finished=True)

    def _inside(self, path: str) -> str:
        base = "" if path.startswith("/") else "/" + self._cwd + "/"
        inside = self._folder.inside(base + path)
        if inside is None:
            places = ", ".join(self._folder.directories)
            raise ToolError(f"{path} is outside of the task's directories ({places}); use bash for it")
        return inside

    @classmethod
    def oracle(cls, task: HarborTask) -> Generator[Call | Answer, StepResult, None]:
        """Run the task's own solution."""
        folder = cls.folders[task.id]
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:") as tar:
            for name, content, executable in files_of(folder.path / "solution"):
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(content), 0o755 if executable or name == "solve.sh" else 0o644
                tar.addfile(member, io.BytesIO(content))
        text = base64.b64encode(data.getvalue()).decode("ascii")
        for start in range(0, len(text), _CHUNK):
            sign = ">>" if start else ">"
            yield Call("bash", {"command": f"printf %s {text[start : start + _CHUNK]} {sign} /tmp/solution.b64"})
        variables = {"DEBIAN_FRONTEND": "noninteractive", **folder.solution_env}
        exported = "".join(f"export {name}={_quoted(value)}; " for name, value in variables.items())
        yield Call("bash", {"command": f"{_UNPACK} && {{ {exported}{_SOLVE}; }}"})
        yield Answer("The task is done.")


def _seconds_left() -> float | None:
    """Return how long the running call may still take by the limits of the server and the episode."""
    clock = current_clock()
    return None if clock is None else clock.deadline - asyncio.get_running_loop().time()


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _shown(result: RunResult) -> str:
    errors = result.stderr.decode("utf-8", "replace")
    parts = [result.text.rstrip("\n"), errors.rstrip("\n"), f"({result.ending})"]
    return "\n".join(part for part in parts if part)
