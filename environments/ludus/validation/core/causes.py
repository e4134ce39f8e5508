"""Finds out what an environment's results depend on, after two runs of the same actions have differed.

How this works:

* The actions are played in processes that are started one after the other, with all surroundings held still
  (`surroundings.py`). Two of them with the same surroundings must give the same.
* Then some surroundings differ. A group of them that changes a result is halved until a single one is left. Those that
  the environment's code was seen to read come first, then those that it can read without a trace, then all others.
* If none of them is the cause, the actions are played again in a process that has played others before: what differs
  then comes from earlier episodes, and if it also comes back in a new process with the same folder, from their files.
* If two processes with the same surroundings differ, the cause is one that cannot be held still: threads, the network,
  numbers of processes, memory addresses. It is named if the environment's code was seen to use it.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ludus.client import connect
from ludus.client.environment import RemoteEnvironment
from ludus.protocol.errors import LudusError
from ludus.validation.core.server_process import serving_measured
from ludus.validation.core.surroundings import CAUSES, CHANGEABLE, UNSEEN, Cause, Read, Surroundings
from ludus.validation.core.transcripts import Script, Transcript, difference, perform

SCRIPTS: Final = 4
"""The most scripts whose cause is searched at one time."""

_ADDRESS: Final = re.compile(r"\b0x[0-9a-f]{6,16}\b")
_NOT_HELD_STILL: Final = ("process", "addresses", "threads", "network", "files")
"""The causes that no process can hold still, in the order in which they are suspected."""


_WAVERING: Final = frozenset({"threads", "network"})
"""Those of them that give the same most of the time, so that two runs do not show them."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a script's results follow."""

    cause: Cause
    reads: tuple[Read, ...]
    """The places in the environment's code that read it, if they were seen."""


@dataclass(slots=True)
class _Played:
    """What one process gave."""

    first: list[Transcript]
    again: list[Transcript]
    """The same scripts, after all of them were played once."""
    reads: list[Read]
    """Places that read surroundings; those that did so in an episode come first."""
    in_episodes: frozenset[str] = frozenset()
    """What was read in an episode, and not only when the module was imported."""


@dataclass(slots=True)
class Diagnosis:
    """Searches for causes of differences.

    Args:
        sources: what the processes serve.
        environment: the environment's name.
        secrets: are given to each episode.
    """

    sources: Sequence[str]
    environment: str
    secrets: Mapping[str, str]
    _folder: Path = field(default_factory=Path)

    async def causes(self, scripts: Sequence[Script], before: Sequence[Script] = ()) -> dict[Script, list[Found]]:
        """Return what the results of scripts follow, as far as it can be found out.

        Args:
            scripts: the scripts whose results differ; only the first ones are examined.
            before: others that may leave something behind.
        """
        self._folder = Path(tempfile.mkdtemp(prefix="ludus-causes-"))
        try:
            return await self._search(scripts[:SCRIPTS], [script for script in before if script not in scripts])
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _search(self, scripts: Sequence[Script], before: Sequence[Script]) -> dict[Script, list[Found]]:
        base, twin = await self._play(scripts), await self._play(scripts)
        causes: dict[Script, list[Found]] = {script: [] for script in scripts}
        loose = _differing(scripts, base.first, twin.first)
        for script in loose:
            here, there = base.first[scripts.index(script)], twin.first[scripts.index(script)]
            suspect = _suspect(here, there, base.reads)
            causes[script] = [_found(suspect, base.reads)] if suspect is not None else []
        steady = [script for script in scripts if script not in loose]
        read_names = {read.what for read in base.reads}
        likely = [name for name in CHANGEABLE if name in base.in_episodes]
        possible = [name for name in CHANGEABLE if name in (read_names | UNSEEN) and name not in likely]
        for group in (likely, possible, [name for name in CHANGEABLE if name not in (*likely, *possible)]):
            if open_ones := [script for script in steady if not causes[script]]:
                await self._halve(scripts, base, group, open_ones, causes)
        if open_ones := [script for script in steady if not causes[script]]:
            # What differs once says nothing: it must be the same difference in two processes.
            if read_names & _WAVERING:
                wavers = _differing(scripts, base.again, twin.again)
                open_ones = [script for script in open_ones if script not in wavers]
            await self._look_back(scripts, before, base, open_ones, causes)
        for script in steady:
            if not causes[script] and (
                name := next((candidate for candidate in _NOT_HELD_STILL if candidate in read_names & _WAVERING), None)
            ):
                causes[script].append(_found(CAUSES[name], base.reads))
        return causes

    async def _halve(
        self, scripts: Sequence[Script], base: _Played, group: Sequence[str], suspects: Sequence[Script],
        causes: dict[Script, list[Found]],
    ) -> None:  # fmt: skip
        """Add the causes among a group of surroundings."""
        if not group or not suspects:
            return
        played = await self._play(scripts, group)
        differing = [script for script in _differing(scripts, base.first, played.first) if script in suspects]
        if not differing:
            return
        if len(group) == 1:
            if {read.what for read in base.reads} & _WAVERING:
                differing = await self._confirmed(scripts, base, group, differing)
            for script in differing:
                causes[script].append(_found(CAUSES[group[0]], base.reads))
            return
        middle = len(group) // 2
        for half in (group[:middle], group[middle:]):
            await self._halve(scripts, base, half, differing, causes)

    async def _confirmed(
        self, scripts: Sequence[Script], base: _Played, group: Sequence[str], suspects: Sequence[Script]
    ) -> list[Script]:
        """Return the scripts that differ again, and not without the change: threads may have made the difference."""
        control, again = await self._play(scripts), await self._play(scripts, group)
        loose = _differing(scripts, base.first, control.first)
        return [
            script
            for script in _differing(scripts, base.first, again.first)
            if script in suspects and script not in loose
        ]

    async def _look_back(
        self, scripts: Sequence[Script], before: Sequence[Script], base: _Played, suspects: Sequence[Script],
        causes: dict[Script, list[Found]],
    ) -> None:  # fmt: skip
        """Add that scripts follow earlier episodes, or the files that those left."""
        later = await self._play(scripts, before=[*before, *reversed(scripts)], keeps=True)
        after_files = await self._play(scripts)
        changed = {*_differing(scripts, base.first, later.first), *_differing(scripts, base.first, base.again)}
        by_files = _differing(scripts, base.first, after_files.first)
        for script in suspects:
            if script in by_files:
                causes[script].append(_found(CAUSES["files"], later.reads))
            elif script in changed:
                causes[script].append(_found(CAUSES["earlier-episodes"], ()))

    async def _play(
        self, scripts: Sequence[Script], changed: Collection[str] = (), *, before: Iterable[Script] = (),
        keeps: bool = False,
    ) -> _Played:  # fmt: skip
        """Play scripts in a new process with the same folder as all others, and then again."""
        folder = self._folder / ("other" if "folder" in changed else "run")
        surroundings = Surroundings(frozenset(changed), pinned=True, folder=folder, keeps=keeps)
        try:
            async with serving_measured(self.sources, surroundings) as process, connect(process.url) as client:
                environment = client.environment(self.environment)
                at_import = process.reads
                for script in before:
                    await self._perform(environment, script)
                transcripts = [await self._perform(environment, script) for script in scripts]
                again = [await self._perform(environment, script) for script in reversed(scripts)]
                in_episodes = [read for read in process.reads if read not in at_import]
                read_names = frozenset(read.what for read in in_episodes)
                return _Played(transcripts, again[::-1], [*in_episodes, *at_import], read_names)
        except LudusError as error:  # it cannot be served like this, which is a difference, too
            broken = [Transcript(script, 0, (("failed", error.message),)) for script in scripts]
            return _Played(broken, broken, [])

    async def _perform(self, environment: RemoteEnvironment, script: Script) -> Transcript:
        try:
            return await perform(environment, script, self.secrets)
        except LudusError as error:
            return Transcript(script, script.seed or 0, (("failed", type(error).__name__),))


def _differing(
    scripts: Sequence[Script], transcripts_a: Sequence[Transcript], transcripts_b: Sequence[Transcript]
) -> list[Script]:
    return [
        script
        for script, played_a, played_b in zip(scripts, transcripts_a, transcripts_b, strict=True)
        if difference(played_a.events, played_b.events)
    ]


def _suspect(played_a: Transcript, played_b: Transcript, reads: Sequence[Read]) -> Cause | None:
    """Return the most likely cause among those that cannot be held still; None if the code was seen to use none."""
    if _ADDRESS.search(_first_difference(played_a, played_b)):
        return CAUSES["addresses"]
    read_names = {read.what for read in reads}
    return next((CAUSES[name] for name in _NOT_HELD_STILL if name in read_names), None)


def _first_difference(played_a: Transcript, played_b: Transcript) -> str:
    values: list[tuple[Any, Any]] = [
        (event_a[1], event_b[1])
        for event_a, event_b in zip(played_a.events, played_b.events, strict=False)
        if event_a != event_b
    ]
    return str(values[0][0]) if values else ""


def _found(cause: Cause, reads: Iterable[Read]) -> Found:
    return Found(cause, tuple(read for read in reads if read.what == cause.name))
