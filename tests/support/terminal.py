"""The `ludus` command: run to its end in this process or in one of its own, or serving."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from ludus.cli import main

LUDUS: Final = Path(sys.executable).with_name("ludus")


def run_ludus(
    *arguments: object, cwd: Path, input: str = "", variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, at most 50 seconds."""
    return subprocess.run(
        [LUDUS, *map(str, arguments)],
        input=input, capture_output=True, text=True, timeout=50, cwd=cwd, check=False,
        env={**clean_variables(), **(variables or {})},
    )  # fmt: skip


def run_ludus_here(
    *arguments: object, cwd: Path, input: str = "", variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run any command but `serve` to its end in this process, which saves the second that a process takes to start.

    Streams, variables, the working folder, the import path and the modules of the test's own files are as before
    afterwards. The main thread is needed, because commands handle signals.
    """
    environment = {**dict.fromkeys(os.environ), **clean_variables(), **(variables or {})}
    modules, path, argv = set(sys.modules), list(sys.path), sys.argv
    code: int | str | None = 0
    with CliRunner().isolation(input, environment) as (out, err, _), contextlib.chdir(cwd):
        sys.argv = ["ludus", *map(str, arguments)]
        try:
            main()
        except SystemExit as end:
            code = end.code
        finally:
            sys.argv, sys.path[:] = argv, path
            for name in set(sys.modules) - modules:
                if _is_temporary(getattr(sys.modules[name], "__file__", None)):
                    del sys.modules[name]
            sys.stdout.flush()
            sys.stderr.flush()
        printed, said = out.getvalue().decode(), err.getvalue().decode()
    assert code is None or isinstance(code, int)
    return subprocess.CompletedProcess(["ludus", *map(str, arguments)], code or 0, printed, said)


def _is_temporary(file: str | None) -> bool:
    return file is not None and Path(file).is_relative_to(tempfile.gettempdir())


@contextmanager
def serving(*arguments: object) -> Iterator[str]:
    """The address of a `ludus serve` process, which ends with the block."""
    command = [str(LUDUS), "serve", *map(str, arguments), "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=clean_variables()
    )
    assert process.stdout is not None
    seen = ""
    try:
        for line in process.stdout:
            seen += line
            found = re.search(r"http://[\d.]+:\d+", line)
            if found:
                yield found[0]
                return
        pytest.fail(f"ludus serve said: {seen}")
    finally:
        process.terminate()
        process.wait(timeout=20)
        process.stdout.close()


def running_episodes(url: str) -> int:
    """Return how many episodes a server runs now, as its metrics say."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as reply:
        text = reply.read().decode()
    (found,) = re.findall(r"^ludus_episodes_running(?:\{[^}]*\})? ([\d.]+)$", text, re.MULTILINE)
    return int(float(found))


def clean_variables() -> dict[str, str]:
    """This process's variables without any that would change what the command does."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LUDUS_", "OPENAI_"))}
    return kept | {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
