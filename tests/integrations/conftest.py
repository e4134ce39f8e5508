"""Programs in the virtual environments of other people's trainers and evaluators, and what they need.

Each adapter has a test file here and programs in `peers/`, which run in the peer's own environment with Ludus as it is
packaged. A program gets one JSON object as its argument and prints one as its last line.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from peer_clients import ROOT, peer_variables, python_of
from terminal import LUDUS, clean_variables, running_episodes, serving

WORLD = ROOT / "tests" / "support" / "adapter_world.py"
PROGRAMS = Path(__file__).parent / "peers"
RECORDS_VARIABLE = "LUDUS_INTEGRATION_RECORDS"
"""The environment variable with the folder for `record`; `make integrations` sets it."""

RunPeer = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of Ludus, unpacked: packages and entry points for any Python, without its dependencies."""
    out = tmp_path_factory.mktemp("package")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    folder = out / "site-packages"  # some peers ask whether a module is installed
    with zipfile.ZipFile(next(out.glob("*.whl"))) as wheel:
        wheel.extractall(folder)
    return folder


@pytest.fixture
def run_peer(package: Path) -> RunPeer:
    """`report = run_peer("trl", "trl_grpo.py", {…})`: what a program in `peers/` printed; skips without the peer."""

    def run(peer: str, program: str, given: dict[str, Any] | None = None, *, timeout: float = 300.0) -> dict[str, Any]:
        done = subprocess.run(
            peer_command(peer, program, given),
            capture_output=True,
            text=True,
            timeout=timeout,
            env=peer_environment(package),
            check=False,
        )
        assert done.returncode == 0, f"{program} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-6000:]}"
        report: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return report

    return run


def peer_command(peer: str, program: str, given: dict[str, Any] | None = None) -> list[str]:
    """Return the command of a program in `peers/`."""
    return [python_of(peer), str(PROGRAMS / program), json.dumps(given or {})]


def peer_environment(package: Path) -> dict[str, str]:
    """Return the variables of a peer's process, which can import Ludus."""
    return {**peer_variables(), "PYTHONPATH": str(package), "PYTHONWARNINGS": "default"}


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server with `sums` and `every_third_breaks`, without open episodes afterwards."""
    with serving(f"{WORLD}:Sums", f"{WORLD}:EveryThirdBreaks") as url:
        yield url
        assert running_episodes(url) == 0, "episodes are still open"


@pytest.fixture
def doomed() -> Iterator[tuple[str, int]]:
    """The address and the process id of a server that the test may kill."""
    command = [str(LUDUS), "serve", f"{WORLD}:Sums", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=clean_variables()) as server:
        assert server.stdout is not None
        try:
            found = next(found for line in server.stdout if (found := re.search(rb"http://[\d.]+:\d+", line)))
            yield found[0].decode(), server.pid
        finally:
            server.kill()


@pytest.fixture
def endpoint() -> Iterator[str]:
    """The base URL of a model endpoint; see `model_endpoint.py` for its models."""
    with ExitStack() as stack:
        program = ROOT / "tests" / "support" / "model_endpoint.py"
        process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, str(program)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=clean_variables(),
            )
        )
        assert process.stdin is not None
        assert process.stdout is not None
        stack.callback(process.stdin.close)
        yield json.loads(process.stdout.readline())["url"]


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Callable[..., None]:
    """`record("trl", "TRL", version="1.16.0", ran="…", unscored="…", traps="…")`: a row for docs/integrations.md.

    Call it at the end of a test, with facts that the test has checked. It writes nothing outside `make integrations`.
    """

    def write(key: str, name: str, **facts: str) -> None:
        if folder := os.environ.get(RECORDS_VARIABLE):
            row = {"name": name, "test": request.node.nodeid, **facts}
            Path(folder, f"{key}.json").write_text(json.dumps(row), encoding="utf-8")

    return write
