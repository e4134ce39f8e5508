"""The sandbox settings of each task, and the images of all tasks, which the server obtains before it is ready."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from ludus.protocol.errors import AuthoringError
from ludus.sandbox import Sandboxes, SandboxSettings, SandboxUnsupported
from ludus.sandbox.cassettes.library import open_library
from ludus.server.authoring.cassettes import folder_of, located_cassette
from ludus.server.authoring.environment import Environment
from ludus.server.authoring.splits import Split
from ludus.server.tasks.catalog import Published

log = logging.getLogger("ludus.server.runtime.sandboxes")

TASKS_READ: Final = 100_000
"""How many tasks of a split are asked for their image at startup; the images of the others are obtained later."""

_SHOWN: Final = 20
_DECLARING: Final = ("sandbox_for", "sandbox_settings")
"""The attributes of the class whose file relative paths start at."""


def sandbox_of(cls: type[Environment[Any]], task: Any) -> SandboxSettings | None:
    """Return the sandbox settings of a task's episodes, with the absolute path of a folder to build.

    Raises:
        SandboxUnsupported: `sandbox_for` raised, or returned something else; the message names the task.
    """
    if not cls.chooses_sandboxes():
        return cls.sandbox_settings if cls.sandbox_settings is None else _located(cls, cls.sandbox_settings)
    try:
        settings = cls.sandbox_for(task)
    except Exception as error:
        cause = " ".join(str(error).split())[:500]
        raise SandboxUnsupported(
            f"{cls.__qualname__}.sandbox_for failed for task {task.id!r}: {type(error).__name__}: {cause}; correct the "
            "task, or the method"
        ) from error
    if settings is None:
        return None
    if not isinstance(settings, SandboxSettings):
        raise SandboxUnsupported(
            f"{cls.__qualname__}.sandbox_for returned {type(settings).__name__} for task {task.id!r}; it must return "
            "SandboxSettings, such as `cls.sandbox_settings.but(image=task.image)`, or None"
        )
    return _located(cls, settings if settings == cls.sandbox_settings else settings.but(warm=0))


def _located(cls: type[Environment[Any]], settings: SandboxSettings) -> SandboxSettings:
    """Return settings in which a folder to build, and a cassette, have absolute paths."""
    if settings.cassette is not None:
        settings = settings.but(cassette=located_cassette(cls, settings.cassette, *_DECLARING))
    if settings.build is None or Path(settings.build).is_absolute():
        return settings
    folder = folder_of(cls, *_DECLARING)
    if folder is None:
        raise SandboxUnsupported(
            f"{cls.__qualname__} is in no file, so `build` cannot be relative to one; give it an absolute path"
        )
    return settings.but(build=str(folder / settings.build))


async def open_sandboxes(sandboxes: Sandboxes, published: Iterable[Published]) -> None:
    """Open the cassettes and sandboxes of environments, and obtain the images of their tasks.

    An image that cannot be used keeps only its tasks from starting, unless no image of the environment can be used.

    Raises:
        CassetteError: a cassette cannot be used.
        SandboxUnavailable: a provider cannot work here.
        SandboxUnsupported: a provider cannot do what its settings ask for, for the whole environment.
    """
    every = tuple(published)
    for environment in every:
        if environment.cls.cassette_settings is not None:
            cassette = located_cassette(environment.cls, environment.cls.cassette_settings, "cassette_settings")
            await asyncio.to_thread(open_library, cassette)
    fixed = [environment.cls for environment in every if not environment.cls.chooses_sandboxes()]
    try:
        await sandboxes.open([sandbox_of(cls, None) for cls in fixed])
        for environment in every:
            if environment.cls.chooses_sandboxes():
                await _obtain(sandboxes, environment)
    except BaseException as error:
        if isinstance(error, AuthoringError | SandboxUnsupported):
            sandboxes.refusal = sandboxes.refusal or error  # type: ignore[assignment]
        await sandboxes.aclose()
        raise


async def _obtain(sandboxes: Sandboxes, published: Published) -> None:
    tasks, failed = await asyncio.to_thread(_settings, published)
    if tasks:
        log.info("%s: obtaining the images of %d different sandboxes", published.name, len(tasks))
    unusable = await sandboxes.obtain(tasks)
    for settings, error in unusable.items():
        task_ids = ", ".join(map(repr, tasks[settings][:_SHOWN]))
        log.warning("%s: episodes of %d tasks (%s) cannot start: %s",
                    published.name, len(tasks[settings]), task_ids, error.message)  # fmt: skip
    if (unusable or failed) and len(unusable) == len(tasks):
        reasons = [*(error.message for error in unusable.values()), *failed]
        raise SandboxUnsupported(f"no task of {published.name!r} has a sandbox that can be used here: {reasons[0]}")


def _settings(published: Published) -> tuple[dict[SandboxSettings, list[str]], list[str]]:
    """Return the ids of tasks by their settings, and the reasons why other tasks have none."""
    tasks: dict[SandboxSettings, list[str]] = {}
    failed = []
    for name, split in published.splits.items():
        try:
            for task in _tasks(split):
                try:
                    settings = sandbox_of(published.cls, task)
                except SandboxUnsupported as error:
                    log.warning("%s: %s", published.name, error.message)
                    failed.append(error.message)
                    continue
                if settings is not None:
                    tasks.setdefault(settings, []).append(task.id)
        except Exception as error:  # the author's code; a request for these tasks reports it
            log.warning("%s: the tasks of split %r cannot be read at startup: %r", published.name, name, error)
    return tasks, failed


def _tasks(split: Split[Any]) -> Iterator[Any]:
    """Yield the tasks of a split, as far as they are finite; of an endless one, only the first."""
    split.prepare()
    count = 1 if split.count is None else min(split.count, TASKS_READ)
    for index in range(count):
        yield split.get(index)
