"""`ludus serve --reload`: a server process that is replaced when the source files of its environments change.

How this works:

1. This process holds the listening socket and looks at the source files every `LOOK_SECONDS`. A child process serves.
2. When a file changes, the child is ended like any server by SIGTERM: running steps may finish. Then another child gets
   the same socket, so the port stays the same, and connections that arrive in between wait in the socket's queue.
3. A child that cannot import its environments prints the error and ends. This process then waits for the next change.

Files are compared by modification time and size, which needs no package and also works on network file systems. The
standard library's `multiprocessing` passes the socket on.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import FrameType
from typing import Final

from ludus.protocol.errors import AuthoringError, LudusError
from ludus.server.serving.serve import listen, run
from ludus.server.serving.settings import ServerSettings
from ludus.server.tasks.formats import parse_source
from ludus.server.tasks.loading import GROUP, load_environment, load_environments
from ludus.server.tasks.noisy import all_with_noise

LOOK_SECONDS: Final = 0.3
"""The time between two looks at the source files."""

EXIT_SECONDS: Final = 15.0
"""How long a child may take to end after its `shutdown_seconds`, before it is killed."""

_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})
"""Folders that hold no source files of an environment, besides those whose names begin with a dot."""

Stamps = dict[Path, tuple[int, int]]
"""The modification time and size of each source file."""


def run_with_reload(specs: Sequence[str], noise: Sequence[str], settings: ServerSettings) -> int:
    """Serve the environments of `specs` until a signal, and start again whenever their source files change.

    Args:
        specs: environments as in `load_environments`.
        noise: options as in `all_with_noise`.
        settings: the settings of the server.

    Returns:
        The exit code.

    Raises:
        EnvironmentNotFound: a name, module or file does not exist.
        ServeError: the address cannot be listened on.
    """
    sources = sorted({source_of(spec) for spec in specs})
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
    with listen(settings.host, settings.port) as listener:
        stamps = stamps_of(sources)
        child = _start(specs, noise, settings, listener)
        try:
            _print(f"Watching {', '.join(map(str, sources))}: the server restarts when a .py file changes")
            while not stop.wait(LOOK_SECONDS):
                current_stamps = stamps_of(sources)
                if changed := sorted(name for name, _ in set(current_stamps.items()) ^ set(stamps.items())):
                    stamps = current_stamps
                    folder = Path.cwd()
                    names = (str(file.relative_to(folder) if file.is_relative_to(folder) else file) for file in changed)
                    _print(f"Changed: {', '.join(dict.fromkeys(names))}. The server restarts.")
                    _end(child, settings)
                    child = _start(specs, noise, settings, listener)
        finally:
            _end(child, settings)
    return 0


def source_of(spec: str) -> Path:
    """Return the folder, or the single file, that holds the source of an environment and of its neighbors.

    Raises:
        EnvironmentNotFound: there is no such file, module or published name.
        AuthoringError: a parent package of the module cannot be imported, or a format's target is no file.
    """
    if (source := parse_source(spec)) is not None:
        if source.target and Path(source.target).exists():
            return Path(source.target).resolve()
        raise AuthoringError(f"--reload watches source files, and {spec!r} names none: leave out --reload")
    location = spec.rpartition(":")[0] or spec
    if location.endswith(".py"):
        if Path(location).is_file():
            return Path(location).resolve().parent
    else:
        published = {entry.name: entry.module for entry in entry_points(group=GROUP)}
        module = location if ":" in spec else published.get(location, "")
        if module and str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        module_spec = (
            importlib.util.find_spec(module) if module and importlib.util.find_spec(module.split(".")[0]) else None
        )
        if module_spec is not None and module_spec.origin is not None:
            file = Path(module_spec.origin).resolve()
            return file.parent if "." in module or file.name == "__init__.py" else file
    load_environment(spec)  # this raises the error that says what is missing
    raise AssertionError(f"{spec!r} was imported, but has no source file")


def stamps_of(sources: Sequence[Path]) -> Stamps:
    """Return the stamps of all `.py` files of these files and folders."""
    stamps: Stamps = {}
    for source in sources:
        for file in _source_files(source) if source.is_dir() else [source]:
            try:
                status = file.stat()
            except OSError:  # deleted meanwhile
                continue
            stamps[file] = (status.st_mtime_ns, status.st_size)
    return stamps


def _source_files(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _SKIPPED and not name.startswith(".")]
        yield from (Path(parent, name) for name in files if name.endswith(".py"))


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _start(
    specs: Sequence[str], noise: Sequence[str], settings: ServerSettings, listener: socket.socket
) -> SpawnProcess:
    child = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(list(specs), list(noise), settings, listener), name="ludus-server"
    )
    child.start()
    return child


def _end(child: SpawnProcess, settings: ServerSettings) -> None:
    """End the child in order; kill it if that takes too long."""
    child.terminate()
    child.join(settings.shutdown_seconds + EXIT_SECONDS)
    if child.exitcode is None:
        _print("The server did not stop in time and was killed.")
        child.kill()
        child.join()
    child.close()


def _serve(specs: list[str], noise: list[str], settings: ServerSettings, listener: socket.socket) -> None:
    """Serve in the child process, and exit with the code of `run`."""
    # A terminal sends Ctrl-C to its whole process group. The parent must be the only one to signal this process,
    # because a second signal makes a server exit at once.
    os.setpgid(0, 0)
    threading.Thread(target=_follow_parent, daemon=True).start()
    # A cached `.pyc` is compared by whole seconds and size, so it may be older than a file that has just changed.
    sys.dont_write_bytecode = True
    try:
        sys.exit(run(all_with_noise(load_environments(specs), noise), settings, listener))
    except LudusError as error:
        sys.stderr.write(f"error: {error.message}\nThe server starts again when a source file changes.\n")
        sys.exit(1)


def _follow_parent() -> None:
    """End this process when the parent has ended without ending it, for example because it was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
