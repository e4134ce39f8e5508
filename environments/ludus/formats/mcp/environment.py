"""The environment of MCP servers: their tools, the prompts of a file of tasks, and the reward of a verifier."""

from __future__ import annotations

import logging
import re
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ludus.formats.mcp.images import image_command
from ludus.formats.mcp.instances import Instance, Pool, Starter, UnreadableState
from ludus.formats.mcp.settings import McpSettings
from ludus.formats.mcp.targets import EPISODE_DIRECTORY, ServerSpec
from ludus.formats.mcp.tasks import McpTask, Row, in_directory, names_directory, read_rows, splits_of
from ludus.formats.mcp.verifiers import grading, read_verifier
from ludus.protocol.content import TextBlock
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.errors import AuthoringError, LudusError
from ludus.protocol.messages import did_you_mean
from ludus.sandbox import SandboxProvider, find_provider
from ludus.server import Answer, Call, Environment, Message, StepResult
from ludus.server.authoring.mcp_servers import content_of
from ludus.server.authoring.schema_tool import SchemaTool
from ludus.server.rewards.rubric import Rubric

log = logging.getLogger("ludus.formats")

_NAME_CHARS = re.compile(r"[^a-z0-9_.-]+")


class McpHost:
    """What the episodes of one environment share: the servers that are ready, and their tools.

    Args:
        specs: the servers.
        settings: the options.
        rows: the tasks.
    """

    def __init__(self, specs: Sequence[ServerSpec], settings: McpSettings, rows: Sequence[Row]) -> None:
        self._specs = specs
        self.settings = settings
        self._rows = rows
        self._provider: SandboxProvider | None = None
        self._pool: Pool | None = None
        self.starter: Starter | None = None
        self.tools: tuple[ToolSpec, ...] = ()
        """The tools that tasks may have."""

    @property
    def pool(self) -> Pool:
        """The servers that are ready."""
        assert self._pool is not None
        return self._pool

    @property
    def has_sessions(self) -> bool:
        """Whether a server is reached by HTTP, where an episode has a session of its own."""
        return any(spec.url for spec in self._specs)

    async def open(self) -> None:
        """Start the first servers, and check that the tasks fit their tools.

        Raises:
            AuthoringError: a server does not start or cannot be used, or a task or an option names a missing tool.
        """
        try:
            specs = list(self._specs)
            if any(spec.command or spec.image for spec in specs):
                found = find_provider(self.settings.sandbox_settings().provider)
                await found.open()
                self._provider = found
            for index, spec in enumerate(specs):
                if spec.image is not None:
                    assert self._provider is not None
                    specs[index] = await image_command(spec, self._provider, self.settings)
            self.starter = Starter(specs, self.settings, self._provider)
            warm = 0 if self.has_sessions else self.settings.warm
            reuses = self.settings.reset is not None and not self.has_sessions
            self._pool = Pool(self.starter.start, warm, reuses=reuses)
            first = await self._pool.start_one()
            try:
                self._check(first)
                await self._check_context(first)
                await self._check_directories(first)
            except BaseException:
                await self._pool.end(first)
                raise
            self._pool.give_back(first)
            await self._pool.fill()
        except BaseException as error:
            await self.aclose()
            if isinstance(error, LudusError) and not isinstance(error, AuthoringError):
                raise AuthoringError(error.message) from None
            raise

    async def aclose(self) -> None:
        """End all servers."""
        if self._pool is not None:
            await self._pool.aclose()
        if self._provider is not None:
            await self._provider.aclose()
            self._provider = None

    def _check(self, first: Instance) -> None:
        settings = self.settings
        if settings.reset is not None:
            self._known(settings.reset, first, "the option reset")
        for name in settings.tools:
            self._known(name, first, "the option tools")
        self.tools = tuple(tool.spec for tool in self.agent_tools(first, None))
        for row in self._rows:
            for name in row.tools or ():
                self._known(name, first, f"`tools` of the task {row.id!r}")
            for call in row.setup:
                self._known(call.tool, first, f"`setup` of the task {row.id!r}")
            for call in row.solution or ():
                self._known(call.tool, first, f"`solution` of the task {row.id!r}")
            for check in row.checks:
                if check.tool is not None:
                    self._known(check.tool, first, f"`expect` of the task {row.id!r}")

    def _known(self, name: str, first: Instance, where: str) -> None:
        if name not in first.tools:
            raise AuthoringError(
                f"{where} names the tool {name!r}, which no server has{did_you_mean(name, first.tools)}; there are: "
                f"{', '.join(first.tools)}"
            )

    async def _check_context(self, first: Instance) -> None:
        for uri in self.settings.resources:
            found = await first.resource(uri)
            if found.is_error:
                raise AuthoringError(f"the option resources names {uri}, which cannot be read: {found.text}")
        if self.settings.prompt is not None:
            await first.prompt(self.settings.prompt, self._rows[0].prompt_arguments)

    async def _check_directories(self, first: Instance) -> None:
        rows = [row for row in self._rows if names_directory(row)]
        if rows and not self.settings.is_isolated and self.settings.deterministic:
            raise AuthoringError(
                f"the task {rows[0].id!r} names {EPISODE_DIRECTORY}, which differs from episode to episode, so that "
                "deterministic=true is false; use a path relative to the directory in which the server starts"
            )
        if rows:
            await first.directory()

    def agent_tools(self, instance: Instance, allowed: Sequence[str] | None) -> list[SchemaTool]:
        """Return the agent's tools of an instance.

        Args:
            instance: the instance.
            allowed: those of the task; None for all.
        """
        settings = self.settings
        return [
            tool
            for name, tool in instance.tools.items()
            if name != settings.reset
            and (not settings.tools or name in settings.tools)
            and (allowed is None or name in allowed)
        ]

    async def take(self, task: McpTask) -> tuple[Instance, Row]:
        """Return the servers of an episode, prepared as its task says, and the task's line.

        Raises:
            LudusError: they cannot be started, or a call that prepares them fails.
        """
        row = Row.model_validate(task.row)
        instance = await self.pool.take()
        try:
            if names_directory(row):
                row = in_directory(row, await instance.directory())
            if self.settings.reset is not None and self.has_sessions:
                await self._reset(instance)
            for call in row.setup:
                found = await instance.read(call.tool, call.arguments)
                if found.is_error:
                    raise UnreadableState(f"the call of {call.tool!r} in `setup` of {row.id!r} failed: {found.text}")
            await instance.refresh()
        except BaseException:
            await self.pool.end(instance)
            raise
        return instance, row

    async def give_back(self, instance: Instance) -> None:
        """Let another episode have the servers, or end them."""
        if self.settings.reset is not None and not self.has_sessions and instance.is_open:
            try:
                await self._reset(instance)
            except LudusError as error:
                log.warning("an MCP server is not used again: %s", error.message)
            else:
                self.pool.give_back(instance)
                return
        await self.pool.end(instance)

    async def _reset(self, instance: Instance) -> None:
        reset = self.settings.reset
        assert reset is not None
        found = await instance.read(reset)
        if found.is_error:
            raise UnreadableState(f"the tool {reset!r}, which resets the server, failed: {found.text[:1000]}")


class McpEnvironment(Environment[McpTask]):
    """The base class of environments of MCP servers; `mcp_environment` makes one for a target."""

    blocking = False
    hosted: ClassVar[McpHost]
    line: Row
    """The task's line in the file, with the directory of the episode."""
    _instance: Instance | None = None
    _prompt: list[Message]

    @classmethod
    async def startup(cls) -> None:
        """Start the first servers."""
        await cls.hosted.open()

    @classmethod
    async def shutdown(cls) -> None:
        """End all servers."""
        await cls.hosted.aclose()

    @classmethod
    def catalog_tools(cls) -> Sequence[ToolSpec]:
        """Return the tools of the servers."""
        return cls.hosted.tools

    @property
    def instance(self) -> Instance:
        """The servers of the episode."""
        assert self._instance is not None
        return self._instance

    async def setup(self) -> None:
        """Take servers, and read the prompt from them."""
        self._instance, self.line = await self.hosted.take(self.task)
        self._prompt = await self._read_prompt(self._instance)

    async def teardown(self) -> None:
        """Give the servers back."""
        if self._instance is not None:
            await self.hosted.give_back(self._instance)

    def prompt(self) -> list[Message]:
        """Return the server's instructions and prompt if wanted, that of the task, and the resources."""
        return self._prompt

    def task_tools(self) -> Sequence[SchemaTool]:
        """Return the tools of the task."""
        return self.hosted.agent_tools(self.instance, self.line.tools)

    async def _read_prompt(self, instance: Instance) -> list[Message]:
        settings = self.hosted.settings
        messages: list[Message] = []
        if settings.instructions and instance.instructions:
            messages.append(_message("system", instance.instructions))
        if settings.prompt is not None:
            prompt = await instance.prompt(settings.prompt, self.line.prompt_arguments)
            messages += [
                Message(role=message.role, content=(content_of(message.content),)) for message in prompt.messages
            ]
        texts = [self.line.prompt] if self.line.prompt else []
        for uri in settings.resources:
            resource = await instance.resource(uri)
            if resource.is_error:
                raise UnreadableState(f"the resource {uri} cannot be read: {resource.text[:1000]}")
            texts.append(f"{uri}:\n{resource.text}")
        if texts or not messages:
            messages.append(_message("user", "\n\n".join(texts)))
        return messages


def mcp_environment(format_name: str, specs: Sequence[ServerSpec], settings: McpSettings) -> type[Environment[Any]]:
    """Return the environment of some servers.

    Raises:
        AuthoringError: the tasks or the verifier cannot be used.
    """
    if settings.tasks is None:
        raise AuthoringError(
            f"{format_name}: an MCP server has tools, and no tasks of its own; name a file with them: #tasks=FILE.jsonl"
        )
    path = Path(settings.tasks)
    rows = read_rows(path)
    verifier = read_verifier(settings.verifier, rows)
    name = settings.name or (path.parent.resolve().name if path.stem == "tasks" else path.stem)
    fields: dict[str, Any] = {
        "__doc__": _describe(specs, settings),
        "__module__": __name__,
        "name": _NAME_CHARS.sub("-", name.lower()).strip("-._")[:100] or format_name,
        "version": settings.version,
        "splits": splits_of(rows),
        "seedable": settings.deterministic,
        "forkable": settings.deterministic,
        "hosted": McpHost(specs, settings, rows),
    }
    if all(row.solution is not None for row in rows):
        fields["oracle"] = classmethod(_solve)
    if isinstance(verifier, Rubric):
        fields["rubric"] = verifier
    else:
        fields["grade"] = grading(verifier)
    return type("Mcp_" + fields["name"], (McpEnvironment,), fields)


def _solve(cls: type[McpEnvironment], task: McpTask) -> Generator[Call | Answer, StepResult, None]:
    """Play the solution of a task's line."""
    row = Row.model_validate(task.row)
    for use in row.solution or ():
        yield Call(tool=use.tool, arguments=use.arguments)
    yield Answer(text=row.right_answer)


def _describe(specs: Sequence[ServerSpec], settings: McpSettings) -> str:
    kinds = {"an HTTP server" if spec.url else "an image" if spec.image else "a command" for spec in specs}
    parts = [f"Tools of {len(specs)} MCP server{'s' if len(specs) > 1 else ''} ({', '.join(sorted(kinds))})."]
    if not settings.deterministic:
        parts.append("Not promised: seeds (MCP has none).")
    if any(spec.url for spec in specs):
        parts.append("Not promised: isolation (sessions of an HTTP server may share its state).")
    elif not settings.is_isolated:
        parts.append("Not promised: isolation (the server's process may write to files that others read).")
    return "\n\n".join(parts)


def _message(role: Any, text: str) -> Message:
    return Message(role=role, content=(TextBlock(text=text),))
