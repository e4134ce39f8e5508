"""The author's side of an environment, for those who have its code at hand: private fields, oracle, declarations.

Only the class itself knows the private fields of a task, so a task of the server is made here again from its split
and its id. That needs the environment's package installed, in the version that the server runs.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any, Final

from ludus.protocol.errors import EnvironmentNotFound, LudusError, TaskNotFound

GROUP: Final = "ludus.environments"


class LocalEnvironments:
    """Environment classes by the names they are published under.

    Args:
        sources: what `ludus serve` takes: NAME, `module:Class`, `path/file.py:Class`. With none, classes are found by
            the environment's name among the installed ones (entry-point group `ludus.environments`).
    """

    def __init__(self, *sources: str) -> None:
        self.sources = sources
        self._catalogs: dict[str, Any] = {}

    def published(self, environment: str) -> Any:
        """The environment of a name, as `ludus.server.tasks.catalog.Published`.

        Raises:
            EnvironmentNotFound: no class for it is installed here.
            AuthoringError: a source cannot be loaded.
        """
        key = "" if self.sources else environment
        if key not in self._catalogs:
            # Imported here: `ludus validate URL` also runs where the extra `server` is not installed.
            from ludus.server.tasks.catalog import Catalog
            from ludus.server.tasks.loading import load_environments

            classes = load_environments(self.sources) if self.sources else [installed_class(environment)]
            self._catalogs[key] = Catalog(classes)
        return self._catalogs[key].find(environment)

    def task(self, environment: str, split: str, task_id: str) -> Any:
        """A task with its private fields.

        Raises:
            TaskNotFound: the class does not have it: another version than the server's.
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
    """An installed environment's class by its name, which may be that of a variant: `countdown-hard`.

    Raises:
        EnvironmentNotFound: there is none.
    """
    entries = {entry.name: entry for entry in entry_points(group=GROUP)}
    names = [known for known in entries if name == known or name.startswith(f"{known}-")]
    if not names:
        installed = ", ".join(sorted(entries)) or "none"
        raise EnvironmentNotFound(
            f"no environment {name!r} is installed here (there is: {installed}); "
            "name its class as module:Class or file.py:Class"
        )
    return entries[max(names, key=len)].load()
