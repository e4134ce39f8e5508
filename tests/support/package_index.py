"""A package index as a process, in place of the public one: a folder in the form of PEP 503."""

from __future__ import annotations

import hashlib
import select
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hubs import WheelParts

PATIENCE = 30.0
_SERVE = """
import functools, http.server, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
    print(server.server_port, flush=True)
    server.serve_forever()
"""


class PackageIndex:
    """An index that runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "simple").mkdir(parents=True)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], PATIENCE)[0], "the index did not start"
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}/simple/"

    def put(self, name: str, version: str = "1.0.0", requires: Sequence[str] = (), module: str = "") -> str:
        """Add a version, and return the digest of its wheel."""
        parts = wheel(name, version, requires, module)
        project = self._folder / "simple" / name
        project.mkdir(exist_ok=True)
        data = parts.pack()
        (project / parts.filename).write_bytes(data)
        links = [
            f'<a href="{one.name}#sha256={hashlib.sha256(one.read_bytes()).hexdigest()}">{one.name}</a>'
            for one in sorted(project.glob("*.whl"))
        ]
        (project / "index.html").write_text("<br>".join(links))
        return hashlib.sha256(data).hexdigest()

    def change(self, name: str, version: str = "1.0.0") -> None:
        """Put other bytes in place of a wheel, under the digest of the old ones or with a new one."""
        self.put(name, version, module="evil = True\n")

    def drop(self, name: str) -> None:
        """Remove a project."""
        shutil.rmtree(self._folder / "simple" / name)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()


def wheel(name: str, version: str = "1.0.0", requires: Sequence[str] = (), module: str = "") -> WheelParts:
    """The parts of a wheel with dependencies."""
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: A coin.\n{needs}\n# Coin\n"
    parts = WheelParts(name, version, metadata=metadata)
    if module:
        parts.module = module
    return parts
