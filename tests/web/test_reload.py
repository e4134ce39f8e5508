"""`ludus serve --reload` as a real process."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from ludus.server.serving.reload import source_of, stamps_of

SOURCE = """
from ludus.server import Environment, Task
from neighbor import NUMBER

class Toy(Environment[Task]):
    \"\"\"Toy number {number}.\"\"\"

    splits = {{"train": [Task(id="only")]}}

    def prompt(self) -> str:
        return str(NUMBER)

    def grade(self, answer: str) -> float:
        return 1.0
"""
WAIT_SECONDS = 60.0


class Reloading:
    """A `ludus serve --reload` process, whose lines on both outputs are read in order."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self, pattern: str) -> re.Match[str]:
        """Read lines until one matches."""
        assert self.process.stdout is not None
        seen = []
        async with asyncio.timeout(WAIT_SECONDS):
            while line := (await self.process.stdout.readline()).decode():
                seen.append(line)
                if match := re.search(pattern, line):
                    return match
        raise AssertionError(f"no line matches {pattern!r}: {''.join(seen)}")

    async def stop(self, number: int) -> int:
        self.process.send_signal(number)
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.process.wait()


Serve = Callable[..., Awaitable[Reloading]]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    processes = []

    async def begin(*options: str) -> Reloading:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LUDUS_")}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "ludus.cli", "serve", "toy.py", "--port", "0", "--reload", *options,
            cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            env=environment, start_new_session=True,
        )  # fmt: skip
        processes.append(process)
        return Reloading(process)

    (tmp_path / "neighbor.py").write_text("NUMBER = 1\n")
    (tmp_path / "toy.py").write_text(SOURCE.format(number=1))
    yield begin
    for process in processes:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def described(url: str) -> str:
    """What the server says about its environment."""

    def ask() -> str:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_environments"}})
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        request = urllib.request.Request(f"{url}/mcp", body.encode(), headers)
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
            text: str = json.load(answer)["result"]["content"][0]["text"]
        return text

    return await asyncio.get_running_loop().run_in_executor(None, ask)


@pytest.mark.suite("breadth")
async def test_a_changed_file_restarts_the_server_on_the_same_port(serve: Serve, tmp_path: Path) -> None:
    server = await serve()
    url = (await server.line(r"at (http://\S+) "))[1]
    assert "Toy number 1." in await described(url)

    (tmp_path / "toy.py").write_text(SOURCE.format(number=2))
    await server.line(r"Changed: toy\.py\. The server restarts\.")
    assert (await server.line(r"at (http://\S+) "))[1] == url
    assert "Toy number 2." in await described(url)

    (tmp_path / "neighbor.py").write_text("NUMBER = 22\n")
    await server.line(r"Changed: neighbor\.py\.")
    assert (await server.line(r"at (http://\S+) "))[1] == url
    assert await server.stop(signal.SIGTERM) == 0
    with pytest.raises(urllib.error.URLError):
        await described(url)


@pytest.mark.suite("breadth")
async def test_a_file_that_cannot_be_imported_is_named_and_the_next_change_serves_again(
    serve: Serve, tmp_path: Path
) -> None:
    server = await serve()
    url = (await server.line(r"at (http://\S+) "))[1]
    (tmp_path / "neighbor.py").write_text("NUMBER = \n")
    await server.line(r"error: importing 'toy\.py' failed: SyntaxError: .*neighbor\.py, line 1")
    (tmp_path / "neighbor.py").write_text("NUMBER = 3\n")
    await server.line(r"Changed: neighbor\.py\.")
    assert (await server.line(r"at (http://\S+) "))[1] == url
    assert "Toy number 1." in await described(url)
    assert await server.stop(signal.SIGINT) == 0


@pytest.mark.suite("breadth")
async def test_a_first_import_that_fails_waits_for_a_change_too(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "toy.py").write_text("import no_such_package_at_all\n")
    server = await serve()
    await server.line(r"error: toy\.py needs the package 'no_such_package_at_all'")
    (tmp_path / "toy.py").write_text(SOURCE.format(number=4))
    assert "Toy number 4." in await described((await server.line(r"at (http://\S+) "))[1])
    assert await server.stop(signal.SIGTERM) == 0


async def test_ctrl_c_in_a_terminal_ends_both_processes_in_order(serve: Serve) -> None:
    server = await serve()
    await server.line(r"at (http://\S+) ")
    os.killpg(server.process.pid, signal.SIGINT)
    async with asyncio.timeout(WAIT_SECONDS):
        rest = await server.process.communicate()
    assert server.process.returncode == 0
    assert "exiting at once" not in rest[0].decode()


async def test_the_server_ends_when_the_process_that_watches_is_killed(serve: Serve) -> None:
    server = await serve()
    url = (await server.line(r"at (http://\S+) "))[1]
    server.process.kill()
    assert server.process.stdout is not None
    async with asyncio.timeout(WAIT_SECONDS):
        await server.process.stdout.read()  # ends when the last process that holds the output has ended
    with pytest.raises(urllib.error.URLError):
        await described(url)


async def test_reload_and_stdio_contradict_each_other(serve: Serve) -> None:
    server = await serve("--stdio")
    await server.line(r"leave out --stdio")
    async with asyncio.timeout(WAIT_SECONDS):
        assert await server.process.wait() == 2


async def test_an_environment_that_does_not_exist_is_an_error_at_once(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "toy.py").unlink()
    server = await serve()
    await server.line(r"there is no file toy\.py")
    async with asyncio.timeout(WAIT_SECONDS):
        assert await server.process.wait() == 3


def test_the_sources_are_the_folder_of_a_file_or_of_a_package_and_a_lone_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "reload_package").mkdir()
    (tmp_path / "reload_package" / "__init__.py").touch()
    (tmp_path / "reload_package" / "toy.py").touch()
    (tmp_path / "reload_lone.py").touch()
    assert source_of("reload_package/toy.py:Toy") == tmp_path / "reload_package"
    assert source_of("reload_package.toy:Toy") == tmp_path / "reload_package"
    assert source_of("reload_package:Toy") == tmp_path / "reload_package"
    assert source_of("reload_lone:Toy") == tmp_path / "reload_lone.py"
    assert source_of("guess_number").name == "guess_number"


def test_only_source_files_are_watched(tmp_path: Path) -> None:
    for name in ("a.py", "a.txt", "deep/b.py", ".hidden/c.py", "__pycache__/d.py", "venv/e.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert {str(file.relative_to(tmp_path)) for file in stamps_of([tmp_path])} == {"a.py", "deep/b.py"}
