"""Environments whose code is available here, with their private fields, oracles and declarations.

Only the class itself knows the private fields of a task, so a task of the server is created again here from its split
and its id. This requires the environment's package to be installed, in the version that the server runs.
"""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from typing import Any, Final

from ludus.protocol.errors import EnvironmentNotFound, LudusError, TaskNotFound

__all__ = ["LocalEnvironments", "source_of"]


GROUP: Final = "ludus.environments"

_BARE_ADDRESS: Final = re.compile(r"[\w.-]+:\d+(/.*)?")
"""Matches a host and a port without a scheme."""

_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
"""Matches the scheme at the beginning of an address; a spec of a format may contain an address further on."""


def is_address(target: str) -> bool:
    """Return whether a target is the address of a server; otherwise it names an environment.

    Raises:
        ValueError: it is a host and a port without `http://`.
    """
    if _BARE_ADDRESS.fullmatch(target):
        raise ValueError(f"{target!r} is no address, which begins with http://; did you mean http://{target}?")
    return _ADDRESS.match(target) is not None


def source_of(target: str) -> str:
    """Return what to serve for a target: the target itself, or for `NAME-VARIANT` the installed environment NAME."""
    names = {entry.name for entry in entry_points(group=GROUP)}
    if ":" in target or target.endswith(".py") or target in names:
        return target
    return max((name for name in names if target.startswith(f"{name}-")), key=len, default=target)


class LocalEnvironments:
    """Environment classes by the names under which they are published.

    Args:
        sources: sources as `ludus serve` takes them: NAME, `module:Class`, `path/file.py:Class`. Without any, classes
            are found by the environment's name among the installed ones (entry-point group `ludus.environments`).
    """

    def __init__(self, *sources: str) -> None:
        self.sources = sources
        self._catalogs: dict[str, Any] = {}

    def published(self, environment: str) -> Any:
        """Return the environment with a name, as a `ludus.server.tasks.catalog.Published`.

        Raises:
            EnvironmentNotFound: no class for it is installed here.
            AuthoringError: a source cannot be loaded.
        """
        key = "" if self.sources else environment
        if key not in self._catalogs:
            # Imported here because `ludus validate URL` also runs without the extra `server`.
            from ludus.server.tasks.catalog import Catalog
            from ludus.server.tasks.loading import load_environments

            classes = load_environments(self.sources) if self.sources else [installed_class(environment)]
            self._catalogs[key] = Catalog(classes)
        return self._catalogs[key].find(environment)

    def names(self) -> tuple[str, ...]:
        """Return the published names of the sources; nothing without sources.

        Raises:
            EnvironmentNotFound, AuthoringError: a source cannot be loaded.
        """
        if not self.sources:
            return ()
        from ludus.server.tasks.catalog import Catalog
        from ludus.server.tasks.loading import load_environments

        if "" not in self._catalogs:
            self._catalogs[""] = Catalog(load_environments(self.sources))
        return tuple(self._catalogs[""])

    def task(self, environment: str, split: str, task_id: str) -> Any:
        """Return a task with its private fields.

        Raises:
            TaskNotFound: the class does not have the task, since its version differs from the server's.
        """
        published = self.published(environment)
        try:
            return published.split(split).find(task_id)[1]
        except (KeyError, LudusError):
            raise TaskNotFound(
                f"{published.cls.__qualname__} has no task {task_id!r} in split {split!r}; install the version of the "
                "environment that the server runs"
            ) from None


def installed_class(name: str) -> Any:
    """Return the class of an installed environment by its name or by that of a variant, such as `countdown-hard`.

    Raises:
        EnvironmentNotFound: no installed environment has this name.
    """
    entries = {entry.name: entry for entry in entry_points(group=GROUP)}
    names = [entry for entry in entries if name == entry or name.startswith(f"{entry}-")]
    if not names:
        installed = ", ".join(sorted(entries)) or "none"
        raise EnvironmentNotFound(
            f"no environment {name!r} is installed (installed: {installed}); "
            "name its class as module:Class or file.py:Class"
        )
    return entries[max(names, key=len)].load()
