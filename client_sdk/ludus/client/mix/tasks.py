"""The tasks of a mix, for code that plays them itself: draw a group's task, play it, report how it went."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ludus.client.addresses import ServerAddress, TaskAddress
from ludus.client.environment import find_split
from ludus.client.mix.file import MixFile, MixSource, read_mix
from ludus.client.mix.mixer import Mixer
from ludus.client.mix.policy import TaskBand
from ludus.client.seeds import derive_seed
from ludus.client.summary import SUCCESS_TOLERANCE
from ludus.protocol.episodes import EnvironmentInfo, Outcome, TaskRow
from ludus.protocol.errors import EnvironmentNotFound, InvalidParams
from ludus.protocol.messages import did_you_mean

if TYPE_CHECKING:
    from ludus.client.client import Client
    from ludus.client.environment import RemoteEnvironment
    from ludus.client.episode import Group
    from ludus.protocol.episodes import EpisodeLimits

EXPLORED: Final = 16
"""How many tasks to draw in order to find one of unknown pass rate."""
REPORTED: Final = 1000
"""The maximum number of outcomes in one report."""


async def draw_task(
    remote: RemoteEnvironment, split: str, band: TaskBand | None, known: Container[str], rng: random.Random
) -> TaskRow:
    """Draw a task of a split: any, or with a band one of medium difficulty or of unknown pass rate.

    Args:
        remote: the environment.
        split: the split.
        band: which tasks to prefer, by the outcomes that were reported to the server.
        known: the ids of the tasks whose outcomes were reported.
        rng: the source of the choice; two numbers are drawn.
    """
    explore, seed = rng.random(), rng.getrandbits(48)
    if band is None:
        return (await remote.sample(split, seed=seed))[0]
    if explore < band.explore:
        tasks = await remote.sample(split, EXPLORED, seed=seed)
        return next((task for task in tasks if task.id not in known), tasks[0])
    return (await remote.sample(split, seed=seed, strategy="band", band=(band.low, band.high)))[0]


@dataclass(frozen=True, slots=True)
class MixDraw:
    """A group's task."""

    number: int
    """The number of the group, counted from 0."""
    source: str
    """The label of its source."""
    address: TaskAddress
    """Where to play it, with the seed of its episodes."""
    environment: RemoteEnvironment
    """The environment, connected."""
    task: TaskRow
    """The task, with its public fields."""
    secrets: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The secrets of its episodes."""

    def group(self, count: int, *, limits: EpisodeLimits | None = None) -> AbstractAsyncContextManager[Group]:
        """Start `count` episodes of the task, and close them when the block is left; see `RemoteEnvironment.group`."""
        return self.environment.group(
            count, split=self.address.split, task=self.address.task, seed=self.address.seed, limits=limits,
            secrets=self.secrets,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Opened:
    """A source, connected and checked."""

    source: MixSource
    server: ServerAddress
    remote: RemoteEnvironment
    info: EnvironmentInfo
    secrets: Mapping[str, str] = field(repr=False)


class TaskMix:
    """The tasks of a mix, connected; made by `open_mix`. Draw one group after the other.

    With the same seed, the same mix and the same results, the same tasks are drawn, also by `ludus train`.
    """

    def __init__(self, mix: MixFile, opened: Sequence[_Opened], *, seed: int, lag: int | None) -> None:
        self.mix: Final = mix
        """The file."""
        self.mixer: Final = Mixer(mix.mixer_sources(), mix.policy, lag=lag)
        """The choice of sources, with their statistics and shares."""
        self._opened = {mix_source.source.title: mix_source for mix_source in opened}
        self._seed = seed
        self._next = 0
        self._open: dict[int, tuple[str, str]] = {}
        """The source and the task of each group that was not reported yet."""
        self._known: dict[str, set[str]] = {mix_source.source.title: set() for mix_source in opened}
        self._unreported: dict[str, list[Outcome]] = {}

    def info(self, source: str) -> EnvironmentInfo:
        """Return the server's description of a source's environment.

        Raises:
            InvalidParams: there is no source of that label.
        """
        return self._find(source).info

    async def draw(self) -> MixDraw:
        """Draw the next group's task.

        Raises:
            InvalidParams: with a `lag`, too many groups are open.
            LudusError: the source's server refuses or is unreachable.
        """
        number = self._next
        if not self.mixer.ready(number):
            raise InvalidParams(f"report an earlier group before you draw group {number}; the lag is smaller")
        self._next += 1
        rng = random.Random(derive_seed(self._seed, "group", number))
        opened = self._opened[self.mixer.choose(number, rng)]
        label, source = opened.source.title, opened.source
        outcomes = self._unreported.pop(label, [])
        for start in range(0, len(outcomes), REPORTED):
            await opened.remote.report_outcomes(source.split, outcomes[start : start + REPORTED])
        task = await draw_task(opened.remote, source.split, source.curriculum, self._known[label], rng)
        seed = derive_seed(self._seed, "episode", number) if opened.info.seedable else None
        self._open[number] = (label, task.id)
        address = opened.server.task(source.name, source.split, task.id, seed)
        return MixDraw(number, label, address, opened.remote, task, opened.secrets)

    def report(self, number: int, values: Sequence[float | None]) -> None:
        """Report the values of a group's episodes; None for unscored ones, which do not count as failures.

        A group that was reported before is ignored.

        Raises:
            InvalidParams: the group was not drawn.
        """
        if number not in self._open:
            if 0 <= number < self._next:
                return
            raise InvalidParams(f"group {number} was not drawn; the next one is {self._next}")
        label, task = self._open.pop(number)
        source = self._find(label).source
        least = (1.0 if source.success_at is None else source.success_at) - SUCCESS_TOLERANCE
        scored = [value for value in values if value is not None]
        passed = [value >= least for value in scored]
        self.mixer.report(number, label, passes=sum(passed), scored=len(scored), unscored=len(values) - len(scored))
        if source.curriculum is not None and scored:
            self._known[label].add(task)
            news = self._unreported.setdefault(label, [])
            news += [Outcome(task=task, reward=v, passed=won) for v, won in zip(scored, passed, strict=True)]

    def state(self) -> dict[str, Any]:
        """Return the state for `load_state`, JSON-ready. Groups that were not reported are drawn again after it."""
        again = min(self._open, default=self._next)
        state = self.mixer.state()
        return {"mixer": state, "next": again, "known": {label: sorted(tasks) for label, tasks in self._known.items()}}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from `state()`, before the first draw."""
        self.mixer.load_state(state["mixer"])
        self._next = state["next"]
        for label in self._known.keys() & state["known"].keys():
            self._known[label] = set(state["known"][label])

    def _find(self, label: str) -> _Opened:
        if label not in self._opened:
            raise InvalidParams(f"the mix has no source {label!r}{did_you_mean(label, self._opened)}")
        return self._opened[label]


@asynccontextmanager
async def open_mix(
    mix: MixFile | str | Path, *, seed: int = 0, lag: int | None = None, served: str | None = None
) -> AsyncIterator[TaskMix]:
    """Connect to the sources of a mix and check them. Disconnect when the block is left.

        async with open_mix("mix.toml") as mix:
            draw = await mix.draw()
            async with draw.group(8) as group:
                values = ...
            mix.report(draw.number, values)

    Args:
        mix: a mix, or the path of a mix file.
        seed: the seed of all choices.
        lag: the most groups that are open at once, to make choices independent of the order in which they end; None
            counts results as they are reported.
        served: the address at which the mix's `serve` is served.

    Raises:
        NotFound, InvalidParams: as for `read_mix`; or a source has no server, or a variable of it is not set.
        EnvironmentNotFound, SplitNotFound: a source names what its server does not have.
        LudusError: a server is unreachable or refuses.
    """
    mix_file = mix if isinstance(mix, MixFile) else read_mix(mix)
    async with AsyncExitStack() as stack:

        async def client_of(server: ServerAddress) -> Client:
            return await stack.enter_async_context(server.client())

        yield await connect_mix(mix_file, client_of, seed=seed, lag=lag, served=served)


async def connect_mix(
    mix: MixFile,
    client_of: Callable[[ServerAddress], Awaitable[Client]],
    *,
    seed: int = 0,
    lag: int | None = None,
    served: str | None = None,
) -> TaskMix:
    """Return the tasks of a mix, with clients that the caller keeps; see `open_mix` for the arguments and errors."""
    opened: list[_Opened] = []
    infos: dict[ServerAddress, tuple[Client, tuple[EnvironmentInfo, ...]]] = {}
    for source in mix.sources:
        try:
            server = ServerAddress(mix.address(source, served), source.wire)
            if source.token_variable is not None:
                _variable(source, source.token_variable)
                server = replace(server, token_variable=source.token_variable)
            if server not in infos:
                client = await client_of(server)
                infos[server] = client, await client.environments()
        except ValueError as error:
            raise InvalidParams(f"the source {source.title!r}: {error}") from None
        client, environments = infos[server]
        info = _environment(source, environments, server.url)
        find_split(info, source.split, 1)
        if source.curriculum is not None:
            await client.environment(info.name).report_outcomes(source.split, ())  # as `ludus train` checks it
        secrets = {name: _variable(source, variable) for name, variable in source.secrets.items()}
        opened.append(_Opened(source, server, client.environment(info.name), info, secrets))
    return TaskMix(mix, opened, seed=seed, lag=lag)


def _variable(source: MixSource, name: str) -> str:
    """Return the value of an environment variable.

    Raises:
        InvalidParams: it is not set.
    """
    try:
        return os.environ[name]
    except KeyError:
        raise InvalidParams(f"the source {source.title!r} reads the variable {name}, which is not set") from None


def _environment(source: MixSource, environments: Sequence[EnvironmentInfo], url: str) -> EnvironmentInfo:
    for info in environments:
        if info.name == source.name:
            return info
    names = [info.name for info in environments]
    raise EnvironmentNotFound(
        f"the source {source.title!r}: there is no environment {source.name!r} at {url}; it has "
        f"{', '.join(names) or 'none'}{did_you_mean(source.name, names)}",
        name=source.name,
    )
