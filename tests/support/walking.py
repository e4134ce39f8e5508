"""Walk through a page as a newcomer does: run its commands in order, and compare what they print with the page.

Each code block of a walked page has a mark in a comment above it:

    <!-- walk: run -->          run the block in bash; it must exit with 0
    <!-- walk: serve -->        start the block's command and leave it running until the page's end or the next `serve`
    <!-- walk: save NAME -->    write the block into the file NAME
    <!-- walk: output -->       what the block before printed; `…` stands for any text, alone on a line for any lines
    <!-- walk: skip REASON -->  not run, for this reason

`run slow` and `save NAME slow` are left out of a walk in `make test`, with the output that follows.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from free_ports import free_port

ROOT: Final = Path(__file__).parents[2]
FENCE: Final = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
MARK: Final = re.compile(r"<!-- walk: (?P<kind>\w+)(?: (?P<rest>[^>]*?))? -->\s*(?:<!-- begin: [^>]*-->\s*)?\Z")
WRITTEN: Final = "127.0.0.1:8000"
"""The address that pages name; a walk uses a free port instead."""
RUN_SECONDS: Final = 600
SERVE_SECONDS: Final = 60


class WalkError(Exception):
    """A page does not do what it says; the message names the page, the line and the difference."""


@dataclass(frozen=True, slots=True)
class Block:
    """One code block of a page, with its mark."""

    line: int
    text: str
    kind: str
    argument: str = ""
    slow: bool = False


def blocks_of(text: str) -> list[Block]:
    """Return the code blocks of a page, in order; a block without a mark has the kind `unmarked`."""
    found, end = [], 0
    for fence in FENCE.finditer(text):
        mark = MARK.search(text[end : fence.start()])
        line = text.count("\n", 0, fence.start()) + 1
        kind, rest = (mark["kind"], mark["rest"] or "") if mark else ("unmarked", "")
        slow = kind in ("run", "save") and rest.split()[-1:] == ["slow"]
        argument = rest.removesuffix("slow").strip() if slow else rest
        found.append(Block(line, fence["text"], kind, argument, slow))
        end = fence.end()
    return found


def fault_of(block: Block) -> str | None:
    """Return what is wrong with a block's mark, or None."""
    match block.kind:
        case "run" | "serve" | "output":
            return f"{block.kind} takes no argument, got {block.argument!r}" if block.argument else None
        case "save":
            return None if re.fullmatch(r"[\w.-]+", block.argument) else "save needs the name of a file"
        case "skip":
            return None if len(block.argument.split()) > 2 else "skip needs a reason"
        case "unmarked":
            return "it has no mark; write <!-- walk: … --> above it"
        case kind:
            return f"there is no mark {kind!r}"


def agrees(shown: str, printed: str) -> bool:
    """Return whether a command printed what a page shows; `…` stands for any text within a line, or for whole lines."""
    pattern = "".join(
        r"(?:[^\n]*\n)*?" if line.strip() == "…" else ".*?".join(map(re.escape, line.rstrip().split("…"))) + r"[ ]*\n"
        for line in shown.strip("\n").split("\n")
    )
    return re.fullmatch(rf"\s*{pattern}\s*", printed.rstrip() + "\n") is not None


def make_clone(folder: Path) -> Path:
    """Clone this repository with its uncommitted changes, and install the clone next to what is installed here."""
    clone = folder / "ludus"
    _command("git", "clone", "--quiet", str(ROOT), str(clone))
    changed = _command("git", "-C", str(ROOT), "ls-files", "-z", "-m", "-o", "-d", "--exclude-standard").split("\0")
    for name in filter(None, changed):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_file():
            shutil.copy2(ROOT / name, clone / name)
        else:
            (clone / name).unlink(missing_ok=True)
    _command(sys.executable, "-m", "venv", "--without-pip", str(clone / ".venv"))
    python = str(clone / ".venv" / "bin" / "python")
    packages = Path(_command(python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])").strip())
    (packages / "installed_elsewhere.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", encoding="utf-8")
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--offline", "--no-deps", "--no-build-isolation"]
    _command(*uv, "--python", python, "--editable", str(clone))
    stamp = "import bootstrap; bootstrap.STAMP.write_text(bootstrap.fingerprint(), encoding='utf-8')"
    _command(python, "-c", stamp, cwd=clone / "scripts")
    return clone


def _command(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)
    if done.returncode:
        raise WalkError(f"{' '.join(command)} exited with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


class Walk:
    """One walk through one page, in `folder`. Leave the `with` block to end what it serves."""

    def __init__(self, page: str, folder: Path, clone: Path) -> None:
        self._page = page
        self._folder = folder
        self._server: Server | None = None
        self._address = f"127.0.0.1:{free_port()}"
        binaries = f"{clone / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LUDUS_", "PYTEST_"))}
        self._environment = {**kept, "PATH": binaries, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100"}

    def __enter__(self) -> Walk:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_server()

    def follow(self, text: str, *, slow: bool) -> int:
        """Do what the page `text` says, without its slow blocks unless `slow`; return how many blocks were run.

        Raises:
            WalkError: a block has no valid mark, a command failed, or it printed something else than the page shows.
        """
        printed: str | None = None
        done = 0
        for block in blocks_of(text):
            if fault := fault_of(block):
                raise WalkError(f"{self._page}:{block.line}: {fault}")
            if block.kind == "output":
                if printed is not None and not agrees(block.text, printed):
                    raise WalkError(f"{self._page}:{block.line}: shows\n{block.text}\nand printed was\n{printed}")
                continue
            if block.kind == "skip" or (block.slow and not slow):
                printed = None
                continue
            printed = self._do(block)
            done += 1
        return done

    def _do(self, block: Block) -> str | None:
        text = block.text.replace(WRITTEN, self._address)
        if block.kind == "save":
            (self._folder / block.argument).write_text(text, encoding="utf-8")
            return None
        if block.kind == "serve":
            self._end_server()
            self._server = Server(text.strip(), self._address, self._folder, self._environment)
            return self._server.wait_until_ready(f"{self._page}:{block.line}").replace(self._address, WRITTEN)
        finished = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_SECONDS,
        )
        if finished.returncode:
            raise WalkError(f"{self._page}:{block.line}: exited with {finished.returncode}\n{text}\n{finished.stdout}")
        return finished.stdout.replace(self._address, WRITTEN)

    def _end_server(self) -> None:
        if self._server is not None:
            self._server.end()
            self._server = None


class Server:
    """A command of a page that keeps running, on the walk's own port."""

    def __init__(self, command: str, address: str, folder: Path, environment: Mapping[str, str]) -> None:
        command = command.partition("  #")[0].strip()
        self._lines: list[str] = []
        self._ready = threading.Event()
        self._serves = False
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {command} --port {address.rpartition(':')[2]}"],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line)
            if " at http" in line:
                self._serves = True
                self._ready.set()
        self._ready.set()

    def wait_until_ready(self, place: str) -> str:
        """Return what the server printed until it served.

        Raises:
            WalkError: it ended instead, or said nothing for `SERVE_SECONDS`.
        """
        if not self._ready.wait(SERVE_SECONDS) or not self._serves:
            raise WalkError(f"{place}: the server did not start:\n{''.join(self._lines)}")
        return "".join(self._lines)

    def end(self) -> None:
        """Stop it as Ctrl+C does."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        finally:
            self._reader.join(timeout=30)
            assert self._process.stdout is not None
            self._process.stdout.close()
