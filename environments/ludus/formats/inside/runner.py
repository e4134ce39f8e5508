"""The program in the foreign interpreter: loads an adapter once, and serves each connection with it.

    python runner.py ADAPTER SOCKET ISOLATION < settings as a line of JSON

How this works:

- The parent's first line on standard input holds the target and the options. The adapter is a Python file, loaded as a
  module of the package `ludus_inside`, whose `ADAPTER` is a subclass of `adapter.Adapter`. One line of JSON on standard
  output says "ready" with the descriptions, or why not.
- Each connection to the Unix socket is one episode, or the catalog. With the isolation `process` it is served by a
  forked child, so that the package is imported once, and episodes share neither memory nor hangs nor crashes; with
  `thread`, by a thread.
- Whatever the package prints goes to standard error, and its standard input is empty.
- Later lines on standard input are `kill PID`: the server gives up on the episode of that child; and `prepare ORDER`:
  the adapter loads what the next episode shares with others, before the fork. The end of the input means that the
  server is gone: all children end, and then this process. They end too if this process is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import sys
import threading
import traceback
import warnings
from typing import Any, Callable, List, Optional

_PACKAGE = "ludus_inside"
_TRACE_CHARS = 8000


def load_package() -> None:
    """Make the modules of this folder importable as a package, without a folder on the path that could hide others."""
    folder = os.path.dirname(os.path.abspath(__file__))
    _load(_PACKAGE, os.path.join(folder, "__init__.py"), [folder])
    sys.path[:] = [place for place in sys.path if os.path.abspath(place or os.getcwd()) != folder]
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def main(file: str, address: str, isolation: str) -> int:
    """Serve until the parent is gone; return the exit code."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    orders = os.dup(0)
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    load_package()
    settings = json.loads(_line(orders))
    try:
        adapter, found = load_adapter(file, settings)
    except BaseException as error:
        out.write(json.dumps({"error": explain(error)}) + "\n")
        out.flush()
        return 1
    gc.collect()
    gc.freeze()  # else each child copies all pages of the package when its own collector looks at them
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(address)
    listener.listen(256)
    out.write(json.dumps({"ready": found, "pid": os.getpid()}) + "\n")
    out.close()
    server = _Server(adapter, listener, orders, isolation == "process")
    server.run()
    return 0


def load_adapter(file: str, settings: dict[str, Any]) -> Any:
    """Return an adapter and the descriptions of its environments."""
    module = _load(f"{_PACKAGE}.{os.path.splitext(os.path.basename(file))[0]}", file, None)
    values = importlib.import_module(f"{_PACKAGE}.values")
    adapter = module.ADAPTER(settings["target"], settings["options"])
    return adapter, values.plain(adapter.describe(), "the description")


def _load(name: str, file: str, folders: Optional[List[str]]) -> Any:
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=folders)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be imported as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class _Server:
    """Accepts connections, ends the children that the server gives up, and collects those that ended."""

    def __init__(self, adapter: Any, listener: socket.socket, orders: int, forks: bool) -> None:
        self._adapter = adapter
        self._listener = listener
        self._orders = orders
        self._forks = forks
        self._children: set[int] = set()
        self._partial = b""

    def run(self) -> None:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        while True:
            waiting: List[Any] = [self._listener, self._orders, reader]
            ready, _, _ = select.select(waiting, [], [])
            if reader in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(reader, 4096)
                self._collect()
            if self._orders in ready and not self._obey():
                break
            if self._listener in ready:
                stream, _ = self._listener.accept()
                if self._forks:
                    self._fork(stream, (reader, writer))
                else:
                    threading.Thread(target=serve, args=(self._adapter, stream, 0), daemon=True).start()
        for child in list(self._children):
            _kill_group(child)

    def _obey(self) -> bool:
        data = os.read(self._orders, 65536)
        if not data:
            return False
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            word, _, number = line.partition(b" ")
            if word == b"kill" and number.isdigit() and int(number) in self._children:
                _kill_group(int(number))
            elif word == b"prepare":
                with contextlib.suppress(Exception):  # the episode meets the same error, and reports it
                    self._adapter.prepare(**json.loads(number))
        return True

    def _collect(self) -> None:
        while self._children:
            try:
                child, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if child == 0:
                return
            if child in self._children:
                self._children.discard(child)
                _kill_group(child)  # what it started and left behind

    def _fork(self, stream: socket.socket, pipe: Any) -> None:
        own = os.getpid()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the main thread is the only one that matters here
            child = os.fork()
        if child:
            self._children.add(child)
            with contextlib.suppress(OSError):
                os.setpgid(child, child)
            stream.close()
            return
        code = 1
        try:
            with contextlib.suppress(OSError):
                os.setpgid(0, 0)
            die_with_parent(own)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._listener.close()
            for number in (self._orders, *pipe):
                os.close(number)
            if "numpy" in sys.modules:  # its generator does not notice the fork
                sys.modules["numpy"].random.seed(int.from_bytes(os.urandom(4), "big"))
            serve(self._adapter, stream, os.getpid())
            code = 0
        finally:
            os._exit(code)


def serve(adapter: Any, stream: socket.socket, pid: int) -> None:
    """Serve one connection to its end."""
    frames = importlib.import_module(f"{_PACKAGE}.frames")
    session = _Session(adapter)
    own = os.getpid()
    messages = frames.Stream(stream)
    with stream:
        try:
            messages.send({"pid": pid})
            while (request := messages.receive()) is not None:
                reply = answer(session, request, frames.pack)
                if os.getpid() != own:  # a process that hosted code forked, and that returned to here
                    os._exit(0)
                stream.sendall(reply)
        except (OSError, frames.FrameError):
            pass
        finally:
            session.close()


def answer(session: _Session, request: dict[str, Any], pack: Callable[[dict[str, Any]], bytes]) -> bytes:
    """Return the reply to a request as a message: its value, or why there is none."""
    number = request.get("id")
    try:
        method: Callable[..., Any] = session.methods[request["call"]]
        return pack({"id": number, "value": method(**request.get("with", {}))})
    except BaseException as error:  # `SystemExit` of hosted code, too
        return pack({"id": number, "error": explain(error)})


class _Session:
    """The calls of one connection, with at most one open episode."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter
        self._episode: Any = None
        self.methods: dict[str, Callable[..., Any]] = {
            "task": self.task, "solution": self.solution, "open": self.open, "call": self.call,
            "grade": self.grade, "close": self.close,
        }  # fmt: skip
        self._plain = importlib.import_module(f"{_PACKAGE}.values").plain

    def task(self, environment: str, split: str, index: int) -> Any:
        return self._plain(self._adapter.task(environment, split, index), "the task")

    def solution(self, environment: str, task: dict[str, Any]) -> Any:
        return self._plain(self._adapter.solution(environment, task), "the solution")

    def open(self, environment: str, task: dict[str, Any], seed: int) -> Any:
        self._episode = self._adapter.open(environment, task, seed)
        return self._plain({"prompt": self._episode.prompt, "tools": self._episode.tools}, "the prompt")

    def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        return self._episode.call(tool, arguments)

    def grade(self, answer: str) -> Any:
        return self._episode.grade(answer)

    def close(self) -> None:
        episode, self._episode = self._episode, None
        if episode is not None:
            episode.close()


def explain(error: BaseException) -> dict[str, Any]:
    """Return an exception as an object: its kind, type, text and traceback."""
    kinds = {"Refused": "refused", "NotUsable": "not_usable", "MissingPackage": "missing"}
    names = [base.__name__ for base in type(error).__mro__ if base.__module__.endswith(".adapter")]
    kind = next((kinds[name] for name in names if name in kinds), "raised")
    try:
        text = str(error)
    except BaseException:
        text = ""
    found = {"kind": kind, "type": type(error).__name__, "message": text[:_TRACE_CHARS]}
    if kind == "missing":
        found["package"] = getattr(error, "package", "")
    if kind == "raised":
        found["traceback"] = "".join(traceback.format_exception(type(error), error, error.__traceback__))[
            -_TRACE_CHARS:
        ]
    return found


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent ends, where there is Linux."""
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    except (AttributeError, OSError):
        return
    if os.getppid() != parent:
        os._exit(1)


def _kill_group(child: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(child, signal.SIGKILL)


def _line(number: int) -> bytes:
    found = b""
    while not found.endswith(b"\n"):
        part = os.read(number, 1)
        if not part:
            break
        found += part
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
