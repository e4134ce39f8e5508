"""Environments whose episodes run in hosted code."""

from __future__ import annotations

import asyncio
import atexit
import logging
import weakref
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from ludus.formats.hosting.description import (
    Description,
    HostedTask,
    HostedTool,
    read_opened,
    read_outcome,
    read_solution,
    read_task,
    text_length,
    usable_names,
)
from ludus.formats.hosting.local import LocalAdapter
from ludus.formats.hosting.process import ForeignProcess
from ludus.formats.hosting.remote import EpisodeSource, Session
from ludus.formats.hosting.settings import HostingSettings
from ludus.formats.inside import values
from ludus.formats.inside.adapter import HostedEpisode
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.rewards import Reward
from ludus.server import Answer, Call, Environment, Message, Result, Split, StepContext, StepResult
from ludus.server.authoring.schema_tool import SchemaTool

LONG_TEXT: Final = 20_000
"""The most characters of one observation, or of a prompt, without a warning."""

log = logging.getLogger("ludus.formats")

_INSIDE: Final = Path(values.__file__).parent

_RUNNING: Final[weakref.WeakSet[ForeignProcess]] = weakref.WeakSet()
"""The interpreters to end when this process ends."""


class HostedEnvironment(Environment[HostedTask]):
    """The base class of hosted environments; `host_environments` makes one for each that an adapter describes."""

    described: ClassVar[Description]
    """What the adapter said."""

    warned_of_length: ClassVar[bool] = False
    """Whether the log has a warning about an observation that is too long."""

    _prompt: str | list[Message] = ""
    _tools: Sequence[HostedTool] = ()

    @classmethod
    def catalog_tools(cls) -> Sequence[ToolSpec]:
        """Return the tools of every task."""
        names = usable_names([tool.name for tool in cls.described.tools])
        return [
            SchemaTool(names[tool.name], tool.description, tool.schema_, _no_run).spec for tool in cls.described.tools
        ]

    async def prompt(self) -> str | list[Message]:
        """Return the hosted environment's prompt. Needs no thread, as `setup` has read it."""
        return self._prompt

    async def task_tools(self) -> Sequence[SchemaTool]:
        """Return the tools of the task."""
        names = usable_names([tool.name for tool in self._tools])
        return [self._tool(tool, names[tool.name]) for tool in self._tools]

    def _tool(self, tool: HostedTool, name: str) -> SchemaTool:
        raise NotImplementedError

    def _open(self, opened: object) -> None:
        self._prompt, tools = read_opened(opened)
        self._warn_of_length(self._prompt)
        self._tools = self.described.tools if tools is None else tools

    def _result(self, outcome: object) -> Result:
        """Return the outcome of a step."""
        result = read_outcome(outcome)
        self._warn_of_length(result.content)
        return result

    def _warn_of_length(self, content: object) -> None:
        cls = type(self)
        if not cls.warned_of_length and (length := text_length(content)) > LONG_TEXT:
            cls.warned_of_length = True
            log.warning(
                "%r shows the agent %s characters at once, about %s tokens; most models cannot read more than %s. For "
                "arrays, such as pixels, see the options of the format, such as observation=none and render=rgb_array",
                self.described.published_name, f"{length:,}", f"{length // 3:,}", f"{LONG_TEXT:,}",
            )  # fmt: skip


class _ForeignEnvironment(HostedEnvironment):
    """An environment in a foreign interpreter."""

    blocking = False
    process: ClassVar[EpisodeSource]
    _session: Session | None = None

    @classmethod
    async def startup(cls) -> None:
        await asyncio.to_thread(cls.process.acquire)

    @classmethod
    async def shutdown(cls) -> None:
        await asyncio.to_thread(cls.process.release)

    async def setup(self) -> None:
        task = self.task.for_adapter()
        if self.described.prepared and isinstance(self.process, ForeignProcess):
            await asyncio.to_thread(self.process.prepare, self.described.name, task)
        self._session = await self.process.connect()
        self._open(await self._session.call("open", environment=self.described.name, task=task, seed=self.seed))

    async def teardown(self) -> None:
        if self._session is not None:
            await self._session.aclose()

    def _tool(self, tool: HostedTool, name: str) -> SchemaTool:
        session = self._session
        assert session is not None

        async def run(arguments: dict[str, Any], context: StepContext) -> Result:
            return self._result(await session.call("call", tool=tool.name, arguments=arguments))

        return _schema_tool(tool, name, run, offload=False)


class _GradedForeignEnvironment(_ForeignEnvironment):
    async def grade(self, answer: str) -> Reward | None:
        assert self._session is not None
        return _reward(read_outcome(await self._session.call("grade", answer=answer)))


class _LocalEnvironment(HostedEnvironment):
    """An environment in the server's own process."""

    adapter: ClassVar[LocalAdapter]
    _episode: HostedEpisode | None = None

    def setup(self) -> None:
        episode = self._episode = self.adapter.open(self.described.name, self.task.for_adapter(), self.seed)
        prompt = self.adapter.run(
            lambda: values.plain({"prompt": episode.prompt, "tools": episode.tools}, "the prompt")
        )
        self._open(prompt)

    def teardown(self) -> None:
        if self._episode is not None:
            self.adapter.run(self._episode.close)

    def _tool(self, tool: HostedTool, name: str) -> SchemaTool:
        episode, adapter = self._episode, self.adapter
        assert episode is not None
        call = episode.call

        def run(arguments: dict[str, Any], context: StepContext) -> Result:
            return self._result(adapter.run(lambda: call(tool.name, arguments)))

        return _schema_tool(tool, name, run, offload=self.blocking)


class _GradedLocalEnvironment(_LocalEnvironment):
    def grade(self, answer: str) -> Reward | None:
        episode = self._episode
        assert episode is not None
        return _reward(read_outcome(self.adapter.run(lambda: episode.grade(answer))))


def host_environments(
    format_name: str, target: str, settings: HostingSettings, adapter: Path | None = None
) -> list[type[Environment[Any]]]:
    """Return the environments that an adapter describes. Blocks until the hosted package is imported.

    Args:
        format_name: the format.
        target: what the adapter serves.
        settings: how to run it, with the format's own options.
        adapter: the Python file of the adapter; `ludus/formats/inside/FORMAT_adapter.py` by default. It imports
            `.adapter` and `.values` from that folder.

    Raises:
        AuthoringError: the package is missing, or the target or an option cannot be used.
    """
    file = adapter or _INSIDE / f"{format_name.replace('-', '_')}_adapter.py"
    if settings.in_process:
        local = LocalAdapter(format_name, file, target, settings)
        found = local.start()
        bases = (_LocalEnvironment, _GradedLocalEnvironment)
        fields = {"adapter": local, "blocking": settings.blocking}
        return [_class(one, bases[one.gradable], fields, local, settings, len(found)) for one in found]
    process = ForeignProcess(format_name, file, target, settings)
    found = process.start()
    _RUNNING.add(process)
    return environments_of(found, process, settings)


def environments_of(
    found: Sequence[Description], source: EpisodeSource, settings: HostingSettings
) -> list[type[Environment[Any]]]:
    """Return environments with these descriptions, whose episodes run in sessions of a source."""
    foreign = (_ForeignEnvironment, _GradedForeignEnvironment)
    return [_class(one, foreign[one.gradable], {"process": source}, source, settings, len(found)) for one in found]


def _class(
    described: Description,
    base: type[HostedEnvironment],
    attributes: Mapping[str, Any],
    source: LocalAdapter | EpisodeSource,
    settings: HostingSettings,
    count: int,
) -> type[Environment[Any]]:
    splits = {
        split.name: _split(source, described.name, split.name, split.count, split.type) for split in described.splits
    }
    own = settings.name if count == 1 else None
    fields = {
        "__doc__": described.text,
        "__module__": __name__,
        "name": own or described.published_name,
        "version": described.version,
        "splits": splits,
        "seedable": described.seedable,
        "forkable": described.forkable,
        "reward_range": described.reward_range,
        "random_baseline": described.random_baseline,
        "varies_by": described.varies_by,
        "described": described,
        **attributes,
    }
    if described.solvable:
        fields["oracle"] = classmethod(_oracle_of(source, described.name))
    if not described.tools and not described.task_tools:
        fields["task_tools"] = Environment.task_tools
        fields["catalog_tools"] = classmethod(Environment.catalog_tools.__func__)  # type: ignore[attr-defined]
    return type("Hosted_" + described.published_name, (base,), fields)


def _split(
    source: LocalAdapter | EpisodeSource, environment: str, name: str, count: int | None, kind: Any
) -> Split[HostedTask]:
    def make(index: int) -> HostedTask:
        return read_task(source.ask("task", environment=environment, split=name, index=index))

    return Split.generated(make, kind) if count is None else Split.lazy(make, count, kind)


def _oracle_of(source: LocalAdapter | EpisodeSource, environment: str) -> Any:
    def oracle(cls: type[HostedEnvironment], task: HostedTask) -> Generator[Call | Answer, StepResult, None]:
        """Play the adapter's solution of a task."""
        moves = read_solution(source.ask("solution", environment=environment, task=task.for_adapter()))
        for move in moves:  # noqa: UP028 (`yield from` would send the results of steps to the list)
            yield move

    return oracle


def _schema_tool(tool: HostedTool, name: str, run: Any, *, offload: bool) -> SchemaTool:
    made = SchemaTool(name, tool.description, tool.schema_, run, concurrent=tool.concurrent, checked=tool.checked)
    made.offload = offload
    made.ends = tool.ends
    return made


def _reward(outcome: Result) -> Reward | None:
    if outcome.reward is None or isinstance(outcome.reward, Reward):
        return outcome.reward if isinstance(outcome.reward, Reward) else None
    return Reward.of(float(outcome.reward), outcome.components)


async def _no_run(arguments: dict[str, Any], context: StepContext) -> None:
    raise NotImplementedError


@atexit.register
def _end_all() -> None:
    for process in list(_RUNNING):
        process.close()
