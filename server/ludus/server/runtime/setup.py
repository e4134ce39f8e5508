"""Sets an episode up within one deadline: the instance, its `setup`, its prompt and its tools."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Sequence
from typing import Any

from ludus.protocol.bounds import SHOWN_COMPLAINTS
from ludus.protocol.content import Message
from ludus.protocol.errors import AuthoringError, EpisodeFailed, InvalidParams, LudusError, ShuttingDown
from ludus.sandbox import EpisodeSandboxes, Sandboxes, SandboxUnsupported
from ludus.server.authoring.environment import Toolset
from ludus.server.authoring.results import read_messages
from ludus.server.authoring.tools import ToolBase, options_of, task_tool
from ludus.server.durability.journal import Saved
from ludus.server.durability.snapshot_store import PartNotWritten
from ludus.server.execution import user_code
from ludus.server.execution.clock import time_limit
from ludus.server.execution.errors import ToolError
from ludus.server.execution.threads import Workers
from ludus.server.runtime.episode import Episode
from ludus.server.runtime.seats import by_match
from ludus.server.runtime.snapshots import Snapshots
from ludus.server.runtime.task_sandboxes import sandbox_of
from ludus.server.runtime.world_states import WorldStates
from ludus.server.web.logs import episode_secrets

log = logging.getLogger("ludus.server.episodes")

_PROMPTS_KEPT = 256


class EpisodeSetup:
    """Sets episodes up, and tears them down."""

    def __init__(
        self, workers: Workers, sandboxes: Sandboxes, snapshots: Snapshots, worlds: WorldStates, setup_seconds: float,
        grace_seconds: float,
    ) -> None:  # fmt: skip
        self._workers = workers
        self._worlds = worlds
        self._snapshots = snapshots
        self._sandboxes = sandboxes
        self._setup_seconds = setup_seconds
        self._grace_seconds = grace_seconds
        self._prompts: dict[str, tuple[Message, ...]] = {}

    async def open(self, episode: Episode, allowed: Sequence[str] | None, *, saves: bool = False) -> None:
        """Run the author's setup and read the prompt and the tools; afterwards the episode is ready.

        With `saves`, take the first snapshot of its state, if its environment wants snapshots.

        Raises:
            EpisodeFailed: the author's code raised, took too long or returned something invalid.
            InvalidParams: `allowed` names a tool that the task does not have.
        """
        published = episode.published
        if episode.secrets:
            episode_secrets.add(episode.secrets.values())
        stage = "the constructor"
        own_task = asyncio.current_task()
        try:
            async with time_limit(self._setup_seconds):
                instance = episode.instance = await self._construct(episode, published.cls, object)
                instance.task, instance.seed, instance.secrets = episode.task, episode.seed, episode.secrets or {}
                if episode.match is not None:
                    stage = "the match"
                    instance.seat = episode.seat
                    instance.match = await episode.match.open(self._workers.share(published.name), episode)
                    episode.tools = published.tools_of_seat(episode.seat, lone=episode.match.lone)
                    episode.specs = tuple(tool.spec for tool in episode.tools.values())
                if published.cls.toolsets:
                    toolsets = [
                        await self._construct(episode, toolset, Toolset, instance) for toolset in published.cls.toolsets
                    ]
                    episode.toolsets = tuple(toolsets)
                stage = "the sandbox"
                if published.sandboxed:
                    instance.sandboxes = episode.sandboxes = await self._lease(episode)
                if published.worlds is not None:
                    stage = "the world"
                    await self._worlds.give(episode)
                stage = "setup"
                if published.has_setup:
                    await self._run(episode, instance.setup)
                stage = "the prompt"
                episode.prompt = self._shared(await self._run(episode, instance.prompt))
                if published.has_task_tools:
                    stage = "task_tools"
                    self._add_task_tools(episode, await self._run(episode, instance.task_tools))
                if saves and self._snapshots.enabled_for(published):
                    stage = "the snapshot"
                    episode.saved = {0: await self._take_first(episode)}
        except TimeoutError:
            raise self._failure(stage, episode, f"it took longer than {self._setup_seconds:g} s") from None
        except BaseException as error:
            from_server = isinstance(error, LudusError) and not isinstance(error, AuthoringError | EpisodeFailed)
            if from_server or user_code.from_host(error, own_task):
                raise
            raise self._failure(stage, episode, error) from None
        if allowed is not None:
            self._restrict(episode, allowed)
        episode.began = episode.used = asyncio.get_running_loop().time()

    async def _take_first(self, episode: Episode) -> Saved:
        """Return the snapshot of the state after setup.

        Raises:
            ShuttingDown: there is no room for it; the start can be sent again.
        """
        try:
            return await self._snapshots.take(episode, 0)
        except PartNotWritten as error:
            raise ShuttingDown(f"{error.message}; try again when there is room") from None

    async def open_all(self, episodes: Sequence[Episode], allowed: Sequence[str] | None, *, saves: bool) -> None:
        """Open a group concurrently; after all have finished, raise the first failure, if any."""
        if len(episodes) == 1:
            await self.open(episodes[0], allowed, saves=saves)
            return
        outcomes = await asyncio.gather(
            *(self._open_match(seats, allowed, saves=saves) for seats in by_match(episodes)), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _open_match(self, seats: Sequence[Episode], allowed: Sequence[str] | None, *, saves: bool) -> None:
        """Open the seats of a match in their order, because they share its random generator; or one episode."""
        for episode in seats:
            await self.open(episode, allowed, saves=saves)

    async def retire(self, episode: Episode, running: Sequence[asyncio.Task[None]]) -> None:
        """Tear an episode down, and say so to what waits for it."""
        try:
            await self.tear_down(episode, running)
        finally:
            if episode.retired is not None and not episode.retired.done():
                episode.retired.set_result(None)

    async def tear_down(self, episode: Episode, running: Sequence[asyncio.Task[None]]) -> None:
        """Wait for the last steps, up to the grace period, then run the author's teardown; failures are only logged."""
        if running:
            _, stray = await asyncio.wait(running, timeout=self._grace_seconds)
            for task in stray:
                _break(task)
        instance = episode.instance
        if episode.published.has_teardown and instance is not None:
            try:
                async with time_limit(self._setup_seconds):
                    await self._run(episode, instance.teardown)
            except TimeoutError:
                self._failure("teardown", episode, f"it took longer than {self._setup_seconds:g} s")
            except (user_code.UserCodeError, ToolError) as error:
                self._failure("teardown", episode, error)
            finally:
                await self._leave_contexts(episode)
                if episode.sandboxes is not None:
                    await episode.sandboxes.aclose()
        else:
            await self._leave_contexts(episode)
        episode.release()

    async def _leave_contexts(self, episode: Episode) -> None:
        contexts = episode.instance._contexts if episode.instance is not None else None
        if contexts is None:
            return
        try:
            await contexts.aclose(self._setup_seconds)
        except Exception as error:
            self._failure("leaving a context", episode, error)

    async def _lease(self, episode: Episode) -> EpisodeSandboxes | None:
        """Return the sandboxes of an episode, if its task has any."""
        settings = sandbox_of(episode.published.cls, episode.task)
        if settings is None:
            return None
        try:
            return await self._sandboxes.lease(settings, (episode.secrets or {}).values())
        except SandboxUnsupported as error:
            raise type(error)(f"task {episode.row.id!r} has no sandbox: {error.message}") from None

    async def _construct(self, episode: Episode, cls: type[Any], base: type[Any], *arguments: Any) -> Any:
        """Return an object of an author's class: made in the episode's thread if its constructor is the author's."""
        if cls.__init__ is base.__init__ or not episode.published.cls.blocking:
            return user_code.call(cls, *arguments)
        return await user_code.run(self._workers.share(episode.published.name).at(episode.home), True, cls, *arguments)

    async def _run(self, episode: Episode, method: Any) -> Any:
        offload = episode.published.cls.blocking and not inspect.iscoroutinefunction(method)
        return await user_code.run(self._workers.share(episode.published.name).at(episode.home), offload, method)

    def _shared(self, prompt: object) -> tuple[Message, ...]:
        """Return the prompt's messages. Equal text gives the same object, since thousands of episodes may hold it."""
        if not isinstance(prompt, str):
            return read_messages(prompt)
        messages = self._prompts.get(prompt)
        if messages is None:
            if len(self._prompts) >= _PROMPTS_KEPT:
                self._prompts.clear()
            messages = self._prompts[prompt] = read_messages(prompt)
        return messages

    def _add_task_tools(self, episode: Episode, functions: object) -> None:
        if not isinstance(functions, Sequence):
            raise TypeError(f"task_tools must return a list of tools, not {type(functions).__name__}")
        tools: dict[str, ToolBase] = dict(episode.tools)
        for function in functions:
            if isinstance(function, ToolBase):
                tool = function
            elif (options := options_of(function)) is not None:
                tool = task_tool(function, options, blocking=episode.published.cls.blocking)
            else:
                raise AuthoringError(f"task_tools returned {function!r}, which is not marked with @tool")
            if tool.name in tools:
                raise AuthoringError(f"task_tools returned a second tool called {tool.name!r}")
            tools[tool.name] = tool
        episode.tools = tools
        episode.specs = tuple(tool.spec for tool in tools.values())

    def _restrict(self, episode: Episode, allowed: Sequence[str]) -> None:
        unknown = [name for name in allowed if name not in episode.tools]
        if unknown:
            named = ", ".join(map(repr, unknown[:SHOWN_COMPLAINTS]))
            raise InvalidParams(f"`tools` names {named}; this task has {', '.join(map(repr, episode.tools))}")
        chosen = set(allowed)
        episode.tools = {name: tool for name, tool in episode.tools.items() if name in chosen}
        episode.specs = tuple(tool.spec for tool in episode.tools.values())

    def _failure(self, stage: str, episode: Episode, cause: BaseException | str) -> EpisodeFailed:
        return user_code.failure(stage, episode.id, episode.published.name, cause)


def _break(task: asyncio.Task[None]) -> None:
    """End a task whose code ignores cancellation, by closing its coroutine."""
    coroutine = task.get_coro()
    task.add_done_callback(lambda teardown: teardown.cancelled() or teardown.exception())
    try:
        if coroutine is not None:
            coroutine.close()
    except RuntimeError:
        log.error("environment code ignores both cancellation and GeneratorExit; its task is left behind")
        return
    task.cancel()
