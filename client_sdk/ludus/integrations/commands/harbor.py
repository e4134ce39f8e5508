"""`ludus export --form harbor`: write a folder for each task."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import typer

from ludus.cli.common import client_of, console, errors, find_environment, run, shown
from ludus.cli.playing import source_of_target
from ludus.client import Answer, Call, CallItem, Harness, RemoteEnvironment, ServerAddress, run_episode, text_of
from ludus.client.environment import Preview
from ludus.integrations.harbor_tasks import HarborTask, write_task
from ludus.protocol.content import Message
from ludus.protocol.errors import Unsupported
from ludus.protocol.items import Item
from ludus.validation.core.local_environments import LocalEnvironments
from ludus.validation.core.oracle import OraclePolicy

_TURNS: Final = 10_000
"""The most actions of an oracle."""


@dataclass(frozen=True)
class HarborExport:
    """The arguments of the command, as far as this form uses them."""

    target: str
    environment: str | None
    out: Path
    address: str
    split: str | None
    n: int | None
    seed: int | None
    overwrite: bool
    concurrency: int
    token: str | None

    def run(self) -> None:
        """Write the folders, and print what was written.

        Raises:
            BadParameter: the folders cannot be written.
        """
        if self.out.exists() and not self.out.is_dir():
            raise typer.BadParameter(f"{self.out} is a file; --form harbor writes a folder for each task")
        if self.out.is_dir() and any(self.out.iterdir()) and not self.overwrite:
            raise typer.BadParameter(f"{self.out} is not empty; say --overwrite or another --out")
        tasks = run(self._tasks())
        self._write(_with_names(tasks))
        console.print(shown(f"{self.out}: {len(tasks):,} task folders for Harbor"), soft_wrap=True)
        if not any(task.solution is not None for task in tasks):
            why = "has no oracle" if source_of_target(self.target) else "is known by its address only"
            errors.print(shown(f"no solutions: the environment {why}, so Harbor's oracle cannot run"), soft_wrap=True)

    async def _tasks(self) -> list[HarborTask]:
        async with client_of(self.target, self.token, "auto") as client:
            info = find_environment(await client.environments(), self.environment, self.target)
            remote = client.environment(info.name)
            split = self.split or info.splits[0].name
            source = source_of_target(self.target)
            oracle = None if source is None else OraclePolicy(LocalEnvironments(source))
            gate = asyncio.Semaphore(self.concurrency)
            server = ServerAddress(self.address.rstrip("/"))

            async def described(preview: Preview) -> HarborTask:
                seed = preview.seed if info.seedable else None
                task = HarborTask(
                    server.task(info.name, split, preview.task.id, seed), preview.prompt,
                    [tool.name for tool in preview.tools], info.gradable, preview.task.index,
                )  # fmt: skip
                async with gate:
                    return task if oracle is None else await _solved(task, remote, oracle)

            previews = remote.previews(split, n=self.n, seed=self.seed, concurrency=self.concurrency)
            return list(await asyncio.gather(*[described(preview) async for preview in previews]))

    def _write(self, tasks: dict[str, HarborTask]) -> None:
        """Write all folders next to their places first, so that a failure leaves nothing half written."""
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".ludus-export-", dir=self.out) as part:
                for name, task in tasks.items():
                    write_task(Path(part, name), task)
                for name in tasks:
                    place = self.out / name
                    if place.exists():
                        if not (place / "task.toml").is_file():
                            raise typer.BadParameter(f"{place} is no task folder, so it is not overwritten")
                        shutil.rmtree(place)
                    Path(part, name).rename(place)
        except OSError as error:
            raise typer.BadParameter(f"cannot write {self.out}: {error.strerror}") from None


async def _solved(task: HarborTask, remote: RemoteEnvironment, oracle: OraclePolicy) -> HarborTask:
    """Return a task with what its oracle does; as it is if there is no oracle.

    Raises:
        EpisodeFailed: the oracle's episode broke.
    """
    address = task.address
    async with remote.episode(split=address.split, task=address.task, seed=address.seed) as episode:
        try:
            played = await run_episode(episode, oracle, harness=Harness(max_turns=_TURNS))
        except Unsupported:
            return task
    played.raise_for_failure()
    return replace(task, solution=_actions(played.conversation), oracle_reward=played.value)


def _actions(conversation: Sequence[Item]) -> list[Call | Answer]:
    actions: list[Call | Answer] = []
    for item in conversation:
        if isinstance(item, CallItem) and isinstance(item.call, Call):
            actions.append(item.call)
        elif isinstance(item, Message) and item.role == "assistant":
            actions.append(Answer(text_of(item.content)))
    return actions


def _with_names(tasks: Sequence[HarborTask]) -> dict[str, HarborTask]:
    """Return the tasks by the names of their folders, which are made unequal where ids differ in punctuation only."""
    named: dict[str, HarborTask] = {}
    for task in tasks:
        name = task.folder_name
        named[f"{name}-{task.index}" if name in named else name] = task
    return named
