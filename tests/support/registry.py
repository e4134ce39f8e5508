"""A real image registry on loopback (Debian's `docker-registry`), with its data in a folder."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from free_ports import free_port
from waiting import accepts, block_until_up

_START_SECONDS = 20.0
_CONFIG = """
version: 0.1
log: {{level: error, accesslog: {{disabled: false}}}}
storage: {{filesystem: {{rootdirectory: {folder}/data}}, delete: {{enabled: true}}}}
http: {{addr: "127.0.0.1:{port}", net: tcp}}
"""


class Registry:
    """A running registry."""

    def __init__(self, address: str, log: Path) -> None:
        self.address = address
        self._log = log

    def pulls(self, repository: str) -> int:
        """How often a manifest of a repository was asked for by an engine."""
        lines = self._log.read_text("utf-8", "replace").splitlines()
        return sum(f'"GET /v2/{repository}/manifests/' in line or f'"HEAD /v2/{repository}/manifests/' in line
                   for line in lines)  # fmt: skip


@contextmanager
def registry(folder: Path) -> Iterator[Registry]:
    """A registry that runs until the block ends, or a skip with the reason why there is none."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("there is no image registry here (apt-get install docker-registry)")
    port = free_port()
    folder.mkdir(exist_ok=True)
    (folder / "config.yml").write_text(_CONFIG.format(folder=folder, port=port), encoding="utf-8")
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen([program, "serve", str(folder / "config.yml")], stdout=output, stderr=output)
    try:
        block_until_up(process, lambda: accepts(port), log)
        yield Registry(f"127.0.0.1:{port}", log)
    finally:
        process.kill()
        process.wait(20)
