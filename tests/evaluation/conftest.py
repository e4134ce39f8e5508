"""Servers of environments, a stand-in for model providers, and the command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from peer_clients import ROOT
from terminal import run_ludus, run_ludus_here, serving

SUMS = ROOT / "tests" / "support" / "adapter_world.py"

Ran = subprocess.CompletedProcess[str]
Ludus = Callable[..., Ran]


@pytest.fixture
def ludus(tmp_path: Path) -> Ludus:
    """`ludus("eval", …)` runs the command to its end in this process."""
    return partial(run_ludus_here, cwd=tmp_path)


@pytest.fixture
def ludus_process(tmp_path: Path) -> Ludus:
    """`ludus_process("eval", …)` runs the command to its end in a process of its own."""
    return partial(run_ludus, cwd=tmp_path)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a `ludus serve` process with `sums` and `every_third_breaks`."""
    with serving(f"{SUMS}:Sums", f"{SUMS}:EveryThirdBreaks") as address:
        yield address


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """The address of the stand-in for model providers."""
    command = [sys.executable, str(ROOT / "tests" / "support" / "provider_endpoint.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.stdin.close()
            process.wait(timeout=20)
