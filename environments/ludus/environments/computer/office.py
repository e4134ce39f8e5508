"""Office programs in the episode's sandbox: LibreOffice's spreadsheets and text documents, as tools for the agent.

    class Report(Environment[Order]):
        sandbox_settings = office_settings()

        async def setup(self) -> None:
            self.office = await open_office(self.sandbox)

        def task_tools(self) -> Sequence[Any]:
            return self.office.tools

Grade the saved file, which `self.sandbox.read("documents/report.ods")` returns: it is a zip archive of XML. What the
tools show is the word of a program that the agent may have replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ludus.environments.computer.showing import PACKAGES, command, programs
from ludus.protocol.errors import AuthoringError
from ludus.sandbox import Sandbox, SandboxSettings
from ludus.server import McpServer, connect_mcp

_PROGRAM: Final = "/usr/lib/libreoffice/program/soffice.bin"
_PYTHON: Final = "/usr/bin/python3"
"""Debian's Python, for which its package builds the bridge to LibreOffice."""
_BRIDGE: Final = ("/usr/lib/python3/dist-packages/uno.py", "/usr/lib/python3/dist-packages/unohelper.py")
_SHOWN: Final = ("/etc/libreoffice", "/etc/fonts")
_ENVIRONMENT: Final = {
    "URE_BOOTSTRAP": "vnd.sun.star.pathname:/usr/lib/libreoffice/program/fundamentalrc",
    "UNO_PATH": "/usr/lib/libreoffice/program",
    "HOME": "/tmp",  # its caches do not belong into the work directory
}
_MIB: Final = 2**20


def missing_for_office() -> str | None:
    """Return what this machine lacks for the office tools, and how to install it; None if nothing is missing."""
    if all(Path(place).exists() for place in (_PROGRAM, _PYTHON, *_BRIDGE)):
        return None
    return (
        "LibreOffice is not installed as Debian's packages do it "
        "(apt-get install --no-install-recommends libreoffice-calc libreoffice-writer python3-uno)"
    )


def office_settings(settings: SandboxSettings | None = None) -> SandboxSettings:
    """Return settings of a sandbox for office programs: those given, with what LibreOffice needs added.

    Limits that are too small for it are raised: 768 MiB of memory, 96 processes and threads, 256 MiB of disk, and one
    hour of processor time. `loopback` is set, since its tools reach LibreOffice through a local socket.
    """
    settings = settings or SandboxSettings()
    asked = settings.limits
    limits = asked.but(
        memory=max(asked.memory, 768 * _MIB), processes=max(asked.processes, 96), disk=max(asked.disk, 256 * _MIB),
        spawned_cpu_seconds=max(asked.spawned_cpu_seconds, 3600.0),
    )  # fmt: skip
    shown = programs()
    shown += tuple((place, f"{PACKAGES}/{Path(place).name}") for place in _BRIDGE if Path(place).exists())
    shown += tuple((place, place) for place in _SHOWN if Path(place).exists())
    return settings.model_copy(update={"limits": limits, "loopback": True, "readonly": (*settings.readonly, *shown)})


async def open_office(
    sandbox: Sandbox, *, tools: Sequence[str] | None = None, prefix: str = "", folder: str = "/box/documents",
    restarts: int = 2,
) -> McpServer:  # fmt: skip
    """Start LibreOffice in a sandbox with `office_settings`, and return its tools. Call it in `setup`.

    Args:
        sandbox: the sandbox, for example `self.sandbox`.
        tools: the tools for the agent, by default all: list_files, create, save, close, export, sheets, add_sheet,
            read_cells, write_cells, read_document, insert_text and replace_text.
        prefix: text in front of their names.
        folder: the folder in the sandbox with the files. Files that `setup` writes there can be opened.
        restarts: how often the tools may be started again if the agent makes them end.

    Raises:
        AuthoringError: LibreOffice is not installed, or does not start.
        SandboxFailed: the sandbox is gone.
    """
    if (missing := missing_for_office()) is not None:
        raise AuthoringError(f"office tools in the sandbox need more on the server's machine: {missing}")
    start = command(_PYTHON, "office_server", _PROGRAM, folder)
    return await connect_mcp(
        sandbox, start, tools=tools, prefix=prefix, restarts=restarts, revision="legacy", seconds=60.0,
        start_seconds=60.0, env=_ENVIRONMENT,
    )  # fmt: skip
