"""The adapter in the server's own process, for packages that are installed next to Ludus."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from ludus.formats import inside
from ludus.formats.hosting.description import Description, read_descriptions
from ludus.formats.hosting.errors import HostedCodeError, error_of
from ludus.formats.hosting.settings import HostingSettings
from ludus.formats.inside import runner, values
from ludus.formats.inside.adapter import Adapter, HostedEpisode
from ludus.protocol.errors import AuthoringError


class LocalAdapter:
    """An adapter in this process. All its methods block, and may be called from any thread.

    Args:
        format_name: the format, for messages.
        adapter: the file of its adapter.
        target: what the adapter serves.
        settings: the format's options.
    """

    def __init__(self, format_name: str, adapter: Path, target: str, settings: HostingSettings) -> None:
        self.format = format_name
        self._file = adapter
        self.target = target
        self.settings = settings
        self._adapter: Adapter | None = None

    def start(self) -> tuple[Description, ...]:
        """Import the package and return what the adapter describes.

        Raises:
            AuthoringError: a package is missing, or the target cannot be used.
        """
        try:
            module = _load(self._file)
            adapter: Adapter = module.ADAPTER(self.target, self.settings.for_adapter())
            self._adapter = adapter
            return read_descriptions(values.plain(adapter.describe(), "the description"))
        except Exception as error:
            found = error if isinstance(error, HostedCodeError) else self._translated(error)
            if isinstance(found, HostedCodeError):
                raise AuthoringError(f"{self.format}: {self.target!r} cannot be loaded: {found}") from error
            raise found from None

    def ask(self, call: str, **parameters: Any) -> Any:
        """Ask the adapter for a task or its solution.

        Raises:
            HostedCodeError: the adapter failed.
        """
        adapter = self._adapter
        assert adapter is not None
        asked: Any = adapter.task if call == "task" else adapter.solution
        return self.run(lambda: values.plain(asked(**parameters), f"the {call}"))

    def open(self, environment: str, task: dict[str, Any], seed: int) -> HostedEpisode:
        """Begin an episode.

        Raises:
            HostedCodeError: the adapter failed.
        """
        assert self._adapter is not None
        adapter = self._adapter
        found: HostedEpisode = self.run(lambda: adapter.open(environment, task, seed))
        return found

    def run(self, function: Any) -> Any:
        """Return what a function of the adapter returns, with its errors translated.

        Raises:
            ToolError: the agent's action was refused.
            HostedCodeError: the hosted code failed.
        """
        try:
            return function()
        except BaseException as error:
            raise self._translated(error) from error

    def close(self) -> None:
        """Forget the adapter."""
        self._adapter = None

    def _translated(self, error: BaseException) -> Exception:
        return error_of(self.format, self.settings.python, runner.explain(error))


def _load(file: Path) -> ModuleType:
    """Import an adapter as a module of the package `inside`, so that it may import its neighbors."""
    name = f"{inside.__name__}.{file.stem}"
    if name in sys.modules and getattr(sys.modules[name], "__file__", None) == str(file):
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise AuthoringError(f"{file} cannot be imported as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
