"""nginx and Caddy as processes, with a configuration from the documentation."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from waiting import accepts, wait_until

PATIENCE = 60.0


def program_of(name: str) -> str:
    """Return the path of a proxy's program; skip the test where it is not installed."""
    program = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin")
    if program is None:
        pytest.skip(f"{name} is not installed")
    return program


@asynccontextmanager
async def running_proxy(name: str, text: str, port: int, folder: Path) -> AsyncIterator[None]:
    """Run `nginx` or `caddy` with a configuration, and wait until it listens on a port.

    Args:
        name: the program.
        text: the configuration.
        port: the port on which it listens.
        folder: where it keeps its files.
    """
    program, config = program_of(name), folder / "config"
    config.write_text(text, encoding="utf-8")
    if name == "caddy":
        command = [program, "run", "--config", str(config), "--adapter", "caddyfile"]
    else:
        directives = f"daemon off; master_process off; pid {folder / 'pid'};"
        command = [program, "-c", str(config), "-p", str(folder), "-e", "stderr", "-g", directives]
    home = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with (folder / "log").open("w") as log:
        process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log, env={**os.environ, **home})
        try:
            await wait_until(lambda: accepts(port) or process.returncode is not None, PATIENCE)
            assert process.returncode is None, (folder / "log").read_text()
            yield
        finally:
            if process.returncode is None:
                process.terminate()
                await asyncio.wait_for(process.wait(), PATIENCE)
