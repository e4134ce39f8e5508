"""Changes what an environment sees of its surroundings inside of a server's process: clocks, random bytes and others.

The parent loads this file into the process before anything else is imported (`server_process.serving`), so it imports
nothing of `ludus`. How it works:

* Functions of the standard library are replaced by ones that look at who calls. Only code of environments gets a
  changed value: the server itself needs its real clocks. A call counts as the environment's if the first caller that is
  neither the standard library nor a library for requests (`_TRANSPARENT`) is not a part of the server (`_OURS`) either.
* `datetime.datetime` is a type in C, whose methods cannot be assigned. They are put into its dictionary, so that the
  type stays the one that other modules know.
* Without `pinned`, the surroundings named in `changed` differ from the real ones. With it, all others are held still as
  well: clocks advance with each reading, and random bytes depend on the place in the code. So two processes with the
  same surroundings give the same, and one that differs in a single one of them shows what follows it.
* Each place in the environment's code that reads one of them is written to a file, once, as a line of JSON.
"""

from __future__ import annotations

import atexit
import builtins
import concurrent.futures
import datetime
import gc
import hashlib
import itertools
import json
import os
import platform
import random
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from ctypes import py_object, pythonapi
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, ModuleType, TracebackType
from typing import Any, Final

_OURS: Final = (
    "__main__", "ludus.server", "ludus.protocol", "ludus.sandbox", "ludus.cli", "ludus.client", "ludus.formats",
    "ludus.gateway", "ludus.rendering", "uvicorn", "uvloop", "starlette", "fastapi", "mcp", "typer", "click", "rich",
    "websockets", "h11", "httptools", "opentelemetry", "prometheus_client",
)  # fmt: skip
_TRANSPARENT: Final = ("pydantic", "anyio", "aiohttp", "aiohappyeyeballs", "httpx", "httpcore", "requests", "urllib3")

_WALL_SECONDS: Final = 622 * 86_400 + 7 * 3600 + 13 * 60 + 21
"""How far a changed wall clock is ahead: 1.7 years, and another weekday, hour, minute and second."""
_MONOTONIC_SECONDS: Final = 5 * 86_400 + 17.25
_SPEED: Final = 997.0
"""How much faster a changed clock runs, so that also whole seconds between two readings differ."""
_PINNED_TIME: Final = 1_790_000_000.0
_PINNED_TICK: Final = 0.1
"""The seconds by which a clock that is held still advances with each reading, so that no loop waits forever."""
_CHANGED_TICK: Final = 7.3
_THREAD_SECONDS: Final = 0.02
_THREADS: Final = 8
"""Of so many threads that start one after the other, the first waits longest if their order is changed, and the last if
it is held still."""
_LOCAL: Final = ("127.", "::1", "localhost", "0.0.0.0")

_kinds: dict[str, str] = {}


def _kind(frame: FrameType) -> str:
    """Return whose code a frame runs: `ours`, `library` or `theirs`."""
    name = frame.f_globals.get("__name__") or ""
    kind = _kinds.get(name)
    if kind is None:
        top = name.partition(".")[0]
        if any(name == prefix or name.startswith(prefix + ".") for prefix in _OURS):
            kind = "ours"
        elif top in sys.stdlib_module_names or top in _TRANSPARENT or name == __name__:
            kind = "library"
        else:
            kind = "theirs"
        _kinds[name] = kind
    return kind


def _caller(*, direct: bool = False) -> FrameType | None:
    """Return the frame of the environment's code that has called, if it was that; with `direct`, without libraries."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        kind = _kind(frame)
        if kind == "theirs":
            return frame
        if kind == "ours" or (direct and frame.f_globals.get("__name__") != __name__):
            return None
        frame = frame.f_back
    return None


def _place(frame: FrameType) -> str:
    """Return file and line of what called, if possible outside of installed packages."""
    outer: FrameType | None = frame
    while outer is not None and _kind(outer) != "ours":
        if _kind(outer) == "theirs" and "site-packages" not in outer.f_code.co_filename:
            frame = outer
            break
        outer = outer.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


class Surroundings:
    """The changes in one process.

    Args:
        changed: the surroundings that differ.
        pinned: whether all others are held still.
        reads: the file for the places that read them.
    """

    def __init__(self, changed: Collection[str], *, pinned: bool, reads: str) -> None:
        self._changed = frozenset(changed)
        self._pinned = pinned
        self._reads = open(reads, "a", encoding="utf-8", buffering=1)
        self._noted: set[tuple[str, str, str]] = set()
        self._drawn = Counter[str]()
        self._busy = threading.local()

    def install(self) -> None:
        """Replace the functions."""
        self._replace_clocks()
        self._replace_random()
        self._replace_listings()
        self._replace_host()
        self._replace_threads()
        self._watch()

    def _differs(self, cause: str) -> bool:
        return cause in self._changed

    def _note(self, cause: str, function: str, frame: FrameType, owner: str = "") -> None:
        location = _place(frame)
        if (cause, location, owner) not in self._noted:
            self._noted.add((cause, location, owner))
            self._reads.write(
                json.dumps({"what": cause, "place": location, "function": function, "owner": owner}) + "\n"
            )

    # ── clocks ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _replace_clocks(self) -> None:
        wall = self._clock("wall-clock", time.time, _PINNED_TIME, _WALL_SECONDS)
        self._replace_clock(time, "time", wall, 1)
        self._replace_clock(time, "time_ns", wall, 10**9)
        for name in ("monotonic", "perf_counter", "process_time", "thread_time"):
            if hasattr(time, name):
                clock = self._clock("monotonic-clock", getattr(time, name), 1000.0, _MONOTONIC_SECONDS)
                self._replace_clock(time, name, clock, 1, direct=True)
                self._replace_clock(time, name + "_ns", clock, 10**9, direct=True)
        for name in ("localtime", "gmtime", "ctime"):
            self._default_to_now(name, 0, wall)
        for name, position in (("strftime", 1), ("asctime", 0)):
            self._default_to_now(name, position, wall)
        self._replace_datetime(wall)

    def _clock(self, cause: str, real: Callable[[], float], base: float, ahead: float) -> Callable[[], float]:
        """Return what the environment reads from a clock."""
        began, readings = real(), itertools.count(1)
        changed = self._differs(cause)

        def read() -> float:
            if self._pinned:
                return base + next(readings) * (_CHANGED_TICK if changed else _PINNED_TICK) + (ahead if changed else 0)
            now = real()
            return now + ahead + (now - began) * _SPEED if changed else now

        return read

    def _replace_clock(
        self, module: ModuleType, name: str, clock: Callable[[], float], scale: int, *, direct: bool = False
    ) -> None:
        real = getattr(module, name)
        cause = "monotonic-clock" if direct else "wall-clock"

        @wraps(real)
        def read() -> Any:
            frame = _caller(direct=direct)
            if frame is None:
                return real()
            self._note(cause, f"{module.__name__}.{name}", frame)
            return clock() if scale == 1 else int(clock() * scale)

        setattr(module, name, read)

    def _default_to_now(self, name: str, position: int, wall: Callable[[], float]) -> None:
        """Let a function of `time` take the environment's clock where the argument at a place is left out."""
        real, local = getattr(time, name), time.localtime

        @wraps(real)
        def call(*arguments: Any) -> Any:
            frame = _caller() if len(arguments) <= position or arguments[position] is None else None
            if frame is None:
                return real(*arguments)
            self._note("wall-clock", f"time.{name}", frame)
            now = wall()
            return real(*arguments[:position], now if name in ("localtime", "gmtime", "ctime") else local(now))

        setattr(time, name, call)

    def _replace_datetime(self, wall: Callable[[], float]) -> None:
        kind = datetime.datetime
        real, real_utc = kind.now, kind.utcnow

        def now(cls: Any, tz: Any = None) -> Any:
            frame = _caller()
            if frame is None:
                return real(tz) if cls is kind else cls.fromtimestamp(time.time(), tz)
            self._note("wall-clock", "datetime.now", frame)
            return cls.fromtimestamp(wall(), tz)

        def utcnow(cls: Any) -> Any:
            frame = _caller()
            if frame is None:
                return real_utc()
            self._note("wall-clock", "datetime.utcnow", frame)
            return cls.fromtimestamp(wall(), datetime.UTC).replace(tzinfo=None)

        (methods,) = gc.get_referents(kind.__dict__)
        replaced = {name: methods[name] for name in ("now", "utcnow")}

        def put(replacements: dict[str, Any]) -> None:
            methods.update(replacements)
            pythonapi.PyType_Modified(py_object(kind))

        put({"now": classmethod(now), "utcnow": classmethod(utcnow)})
        atexit.register(put, replaced)  # Python 3.13 crashes when it clears a type in C that holds functions
        # `date.today` calls `time.time`, which is replaced.

    # ── random ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _replace_random(self) -> None:
        real_urandom, real_seed = os.urandom, random.Random.seed

        def urandom(size: int, /) -> bytes:
            frame = _caller()
            if frame is None or size < 0:
                return real_urandom(size)
            self._note("urandom", "os.urandom", frame)
            return self._bytes("urandom", frame, size) if self._pinned else real_urandom(size)

        def seed(generator: random.Random, a: Any = None, version: int = 2) -> None:
            frame = _caller() if a is None and not isinstance(generator, random.SystemRandom) else None
            if frame is not None:
                self._note("random", "random.Random", frame)
                a = self._bytes("random", frame, 16) if self._pinned else None
            real_seed(generator, a, version)

        os.urandom = urandom
        random._urandom = urandom  # type: ignore[attr-defined]
        generators: Any = random.Random
        generators.seed = seed
        _AfterImport({"numpy.random": self._replace_numpy, "anyio": self._watch_anyio}).install()
        self._replace_methods(random, random._inst, "random")
        if self._pinned:
            real_seed(random._inst, self._salt("random"))

    def _replace_methods(self, module: Any, generator: Any, cause: str) -> None:
        """Note who calls the functions of a module that draw from its one generator."""

        def noting(name: str, real: Any) -> Any:
            @wraps(real)
            def draw(*args: Any, **kwargs: Any) -> Any:
                frame = _caller()
                if frame is not None:
                    self._note(cause, f"{module.__name__}.{name}", frame)
                return real(*args, **kwargs)

            return draw

        for name in module.__all__:
            real = getattr(module, name, None)
            if getattr(real, "__self__", None) is generator and name != "seed":
                setattr(module, name, noting(name, real))

    def _replace_numpy(self, module: Any) -> None:
        generator = module.mtrand._rand
        if self._pinned:
            generator.seed(2 if self._differs("numpy") else 1)
        self._replace_methods(module, generator, "numpy")

    def _salt(self, cause: str) -> str:
        return f"{cause}/{self._differs(cause)}"

    def _bytes(self, cause: str, frame: FrameType, size: int) -> bytes:
        """Return bytes that depend on the place in the code, and on how many it has drawn."""
        location = f"{self._salt(cause)}/{frame.f_code.co_name}:{frame.f_lineno}"
        self._drawn[location] += 1
        return hashlib.shake_256(f"{location}/{self._drawn[location]}".encode()).digest(size)

    # ── files and machine ──────────────────────────────────────────────────────────────────────────────────────────

    def _replace_listings(self) -> None:
        real_listdir, real_scandir = os.listdir, os.scandir

        def ordered(entries: list[Any], key: Callable[[Any], Any]) -> list[Any]:
            if self._pinned:
                entries.sort(key=key)
            return entries[::-1] if self._differs("listing") else entries

        def listdir(path: Any = None) -> Any:
            frame = _caller()
            names = real_listdir(path)
            if frame is None:
                return names
            self._note("listing", "os.listdir", frame)
            return ordered(names, lambda name: name)

        def scandir(path: Any = None) -> Any:
            frame = _caller()
            if frame is None:
                return real_scandir(path)
            self._note("listing", "os.scandir", frame)
            with real_scandir(path) as entries:
                return _Entries(ordered(list(entries), lambda entry: entry.name))

        system: Any = os
        system.listdir, system.scandir = listdir, scandir

    def _replace_host(self) -> None:
        def replace(module: ModuleType, name: str, change: Callable[[Any], Any]) -> None:
            real = getattr(module, name)

            @wraps(real)
            def call() -> Any:
                frame = _caller()
                if frame is None:
                    return real()
                self._note("host", f"{module.__name__}.{name}", frame)
                return change(real()) if self._differs("host") else real()

            setattr(module, name, call)

        replace(socket, "gethostname", lambda name: f"other-{name}")
        replace(platform, "node", lambda name: f"other-{name}")
        if hasattr(os, "uname"):
            replace(os, "uname", lambda names: os.uname_result((names[0], f"other-{names[1]}", *names[2:])))

    # ── threads ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _replace_threads(self) -> None:
        reverse, delayed = self._differs("threads"), self._differs("threads") or self._pinned
        row = _Row()

        def delaying(real: Callable[..., Any]) -> Callable[..., Any]:
            index = row.enter()
            seconds = (_THREADS - index if reverse else index) * _THREAD_SECONDS

            def call(*args: Any, **kwargs: Any) -> Any:
                time.sleep(seconds)
                try:
                    return real(*args, **kwargs)
                finally:
                    row.leave()

            return call

        real_start, real_submit = threading.Thread.start, concurrent.futures.ThreadPoolExecutor.submit

        def start(thread: threading.Thread) -> None:
            frame = _caller()
            if frame is not None and not getattr(self._busy, "submitting", False):
                self._note("threads", "threading.Thread", frame)
                if delayed:
                    thread.run = delaying(thread.run)  # type: ignore[method-assign]
            real_start(thread)

        def submit(pool: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
            frame = _caller()
            if frame is None:
                return real_submit(pool, function, *args, **kwargs)
            self._note("threads", "ThreadPoolExecutor", frame)
            self._busy.submitting = True
            try:
                return real_submit(pool, delaying(function) if delayed else function, *args, **kwargs)
            finally:
                self._busy.submitting = False

        threads: Any = threading.Thread
        pools: Any = concurrent.futures.ThreadPoolExecutor
        threads.start, pools.submit = start, submit

    # ── what cannot be changed, and is only noted ──────────────────────────────────────────────────────────────────

    def _watch(self) -> None:
        for module, name in ((os, "getpid"), (os, "getppid"), (threading, "get_native_id"), (threading, "get_ident")):
            self._note_calls(module, name, "process", lambda *_: True)
        if self._pinned:  # a search for causes; nothing else asks for them
            self._note_calls(builtins, "id", "addresses", lambda *_: True)
            self._note_calls(builtins, "hash", "addresses", _is_hashed_by_address)
        sys.addaudithook(self._audit)

    def _note_calls(self, module: ModuleType, name: str, cause: str, counts: Callable[..., bool]) -> None:
        real = getattr(module, name)

        @wraps(real)
        def call(*args: Any) -> Any:
            frame = _caller(direct=True)
            if frame is not None and "site-packages" not in frame.f_code.co_filename and counts(*args):
                self._note(cause, name, frame)
            return real(*args)

        setattr(module, name, call)

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "socket.connect":
            address = args[1]
        elif event == "socket.getaddrinfo":
            address = args
        elif event == "open":
            mode = args[1]
            if isinstance(mode, str) and mode.strip("rbtU") and (frame := _caller()) is not None:
                self._note("files", f"open({str(args[0])[:200]!r})", frame)
            return
        else:
            return
        self._note_address(address)

    def _note_address(self, address: Any) -> None:
        host = address[0] if isinstance(address, tuple) and address else None
        host = host.decode(errors="replace") if isinstance(host, bytes) else host
        if not isinstance(host, str) or host.startswith(_LOCAL) or (frame := _caller()) is None:
            return
        if not _is_excused(frame):
            self._note("network", f"a connection to {host}", frame, _owner(frame))

    def _watch_anyio(self, module: Any) -> None:
        """Note connections that the event loop makes without the module `socket`."""
        real = module.connect_tcp

        @wraps(real)
        def connect_tcp(remote_host: Any, *args: Any, **kwargs: Any) -> Any:
            self._note_address((str(remote_host),))
            return real(remote_host, *args, **kwargs)

        module.connect_tcp = connect_tcp


def _owner(frame: FrameType) -> str:
    """Return the class of the environment's instance that has called; empty if it cannot be seen."""
    outer: FrameType | None = frame
    name = ""
    while outer is not None and _kind(outer) != "ours":
        if _kind(outer) == "theirs" and "self" in outer.f_locals:
            name = type(outer.f_locals["self"]).__name__
        outer = outer.f_back
    return name


def _is_hashed_by_address(value: Any) -> bool:
    kind: Any = type(value)
    return kind.__hash__ is object.__hash__


def _is_excused(frame: FrameType) -> bool:
    """Return whether what a frame does is recorded: verdicts of judges are, and the calls of a cassette."""
    outer: FrameType | None = frame
    while outer is not None:
        name = outer.f_globals.get("__name__") or ""
        if name.startswith(("ludus.server.rewards", "ludus.server.runtime.scoring", "ludus.sandbox.cassettes")):
            return True
        outer = outer.f_back
    return False


class _Row:
    """The threads that run at the same time, numbered in the order in which they started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0
        self._running = 0

    def enter(self) -> int:
        """Return the place of a thread that starts."""
        with self._lock:
            index = self._next = 0 if self._running == 0 else (self._next + 1) % _THREADS
            self._running += 1
            return index

    def leave(self) -> None:
        """Count a thread that has finished."""
        with self._lock:
            self._running -= 1


class _Entries:
    """What `os.scandir` returns, in another order."""

    def __init__(self, entries: list[Any]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def close(self) -> None:
        """Do nothing: the folder is closed already."""


class _AfterImport(MetaPathFinder):
    """Calls a function with a module after its import."""

    def __init__(self, actions: dict[str, Callable[[Any], None]]) -> None:
        self._actions = actions

    def install(self) -> None:
        """Begin."""
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a module that an action waits for; others are left to the next finder."""
        action = self._actions.pop(name, None)
        spec = PathFinder.find_spec(name, path, target) if action is not None else None
        if action is None or spec is None or spec.loader is None:
            return None
        real = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            real(module)
            action(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
