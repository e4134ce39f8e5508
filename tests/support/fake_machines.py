"""Machines for the fakes of sandbox services: each has its own files, and its commands really run, in bubblewrap.

A fake is an HTTP server on loopback, in a thread, that answers the service's own client package. What it is asked is
kept, so that tests can hold it against recordings; `faults` make it fail.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import tempfile
import threading
import weakref
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Self

from aiohttp import web
from waiting import wait_until

_SHARED = [word for name in ("usr", "etc", "bin", "lib", "lib64", "sbin") if Path(f"/{name}").exists()
           for word in ("--ro-bind", f"/{name}", f"/{name}")]  # fmt: skip


class FakeMachine:
    """A machine of a service."""

    pipes: ClassVar[weakref.WeakSet[asyncio.StreamReader]] = weakref.WeakSet()
    """What the commands of all machines write to."""

    def __init__(self, about: dict[str, Any]) -> None:
        self.about = about
        self.root = Path(tempfile.mkdtemp(prefix="fake-machine-"))
        self.root.chmod(0o711)
        for name in ("tmp", "root", "home"):
            (self.root / name).mkdir()
        (self.root / "tmp").chmod(0o1777)
        self.running: set[asyncio.subprocess.Process] = set()
        self.ended = False

    async def run(self, words: list[str], seconds: float | None = None) -> tuple[int, bytes, bytes]:
        """Run a command as the service's daemon does; raise TimeoutError if it takes longer than `seconds`."""
        argv = [
            "bwrap", "--bind", str(self.root), "/", *_SHARED, "--dev", "/dev", "--proc", "/proc", "--cap-add", "ALL",
            "--chdir", "/", "--clearenv", "--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin", "--setenv", "HOME",
            "/root", "--", *words,
        ]  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        self.pipes.update((process.stdout, process.stderr))
        self.running.add(process)
        try:
            async with asyncio.timeout(seconds):
                out, err = await process.communicate()
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.communicate())
            raise
        finally:
            self.running.discard(process)
        return process.returncode or 0, out, err

    def write(self, path: str, data: bytes) -> None:
        """Write a file as the service's daemon does."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def read(self, path: str) -> bytes:
        """Read a file as the service's daemon does."""
        return (self.root / path.lstrip("/")).read_bytes()

    def end(self) -> None:
        """End everything on the machine, and remove its files."""
        self.ended = True
        for process in tuple(self.running):
            for pid in _descendants(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.root, ignore_errors=True)


def _descendants(pid: int) -> list[int]:
    """Return a process and all below it."""
    above: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parent = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
                above.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += above.get(one, [])
    return found


async def _cancel_others() -> None:
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await wait_until(lambda: all(pipe.at_eof() for pipe in tuple(FakeMachine.pipes)))


class FakeService:
    """A service on loopback: subclasses add routes. `with FakeE2B() as fake: …`.

    Attributes:
        asked: every request, as `(method, path, body)` with a JSON body decoded.
        faults: what goes wrong, by the name of an operation: `create`, `list`, `execute`, `upload`, `download`. An
            integer is an HTTP status; "garbage", "drop", "kill" and "twice" are what they say.
    """

    key = "fake-key"

    def __init__(self) -> None:
        self.machines: dict[str, FakeMachine] = {}
        self.roots: list[Path] = []
        self.asked: list[tuple[str, str, Any]] = []
        self.faults: dict[str, int | str] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def environment(self) -> dict[str, str]:
        """Return the variables that lead the client to this fake."""
        raise NotImplementedError

    def routes(self) -> list[web.RouteDef]:
        """Return the routes of the service."""
        raise NotImplementedError

    def refuse(self, status: int, message: str) -> web.Response:
        """Return an error in the service's form."""
        return web.json_response({"code": status, "message": message, "statusCode": status}, status=status)

    def authorized(self, request: web.Request) -> bool:
        """Return whether a request has the key."""
        return True

    def create(self, about: dict[str, Any]) -> str:
        """Start a machine and return its id."""
        name = f"sandbox-{secrets.token_hex(8)}"
        self.machines[name] = FakeMachine(about)
        self.roots.append(self.machines[name].root)
        return name

    def remove(self, name: str) -> bool:
        """End a machine; return whether there was one."""
        machine = self.machines.pop(name, None)
        if machine is not None:
            machine.end()
        return machine is not None

    async def fault(self, request: web.Request, operation: str, name: str = "") -> web.StreamResponse | None:
        """Answer with what `faults` say about an operation; None if nothing is wrong."""
        wrong = self.faults.get(operation)
        if wrong is None or wrong == "twice":
            return None
        if isinstance(wrong, int):
            return self.refuse(wrong, "as the test wants it")
        if wrong == "garbage":
            return web.Response(text="<html>bad gateway</html>", content_type="text/html")
        if wrong == "kill":
            self.remove(name)
        if wrong == "slow":
            await asyncio.Event().wait()  # until the service ends
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    @web.middleware
    async def _note(self, request: web.Request, handler: Any) -> web.StreamResponse:
        body: Any = None
        if request.can_read_body and request.content_type == "application/json":
            with suppress(ValueError):
                body = await request.json()
        self.asked.append((request.method, request.path_qs, body))
        if not self.authorized(request):
            return self.refuse(401, "invalid API key")
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _serve(self) -> int:
        app = web.Application(middlewares=[self._note], client_max_size=1 << 30)
        app.add_routes(self.routes())
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return int(self._runner.addresses[0][1])

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run something in the fake's own thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def __enter__(self) -> Self:
        self._thread.start()
        self.port = self.call(self._serve())
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(self, *_: object) -> None:
        for name in tuple(self.machines):
            self.remove(name)
        self.call(self._runner.cleanup())
        self.call(_cancel_others())
        for root in self.roots:  # what a command that was just starting has made again
            shutil.rmtree(root, ignore_errors=True)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
