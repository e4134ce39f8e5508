"""Runs the commands of an installation, in a sandbox or as the hub's own user."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from ludus.hub.endpoints.errors import InstallRefused
from ludus.sandbox.core.errors import SandboxFailed, SandboxFileError

if TYPE_CHECKING:
    from ludus.sandbox.core.model import Sandbox

_FOLDER: Final = "environment"
_TAIL_LINES: Final = 20
_LINKS: Final = "bin/python*"


class Installer(Protocol):
    """Runs commands that make a virtual environment.

    Attributes:
        folder: the path of the virtual environment, as the commands see it.
    """

    folder: str

    async def run(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Run a command.

        Raises:
            InstallRefused: it failed, or took too long; the message ends with its output.
        """
        ...

    async def write(self, path: str, text: str) -> None:
        """Write a file of the virtual environment."""
        ...

    async def save(self, folder: Path) -> None:
        """Move the finished virtual environment, without the links to its interpreter, to an empty folder.

        Raises:
            InstallRefused: it is larger than the limit.
        """
        ...


class SandboxInstaller:
    """Runs the commands in a sandbox, and copies the files out when they are complete.

    Args:
        box: the sandbox.
        limit: the most bytes of the virtual environment.
    """

    def __init__(self, box: Sandbox, limit: int) -> None:
        self.folder = f"/box/{_FOLDER}"
        self._box = box
        self._limit = limit

    async def run(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """See `Installer.run`."""
        try:
            result = await self._box.run(argv, env=env)
        except SandboxFailed as error:
            raise InstallRefused(f"its installation failed: {error.message}") from None
        if not result.ok:
            output = (result.stdout + result.stderr).decode("utf-8", "replace")
            if b"No space left on device" in result.stdout + result.stderr:
                raise InstallRefused(
                    f"its virtual environment is larger than the {self._limit} bytes that this hub allows"
                )
            raise InstallRefused(f"its installation failed: {result.ending}{tail(output)}")

    async def write(self, path: str, text: str) -> None:
        """See `Installer.write`."""
        try:
            await self._box.write(f"{_FOLDER}/{path}", text.encode())
        except SandboxFileError as error:
            raise InstallRefused(f"its installation failed: {error.message}") from None

    async def save(self, folder: Path) -> None:
        """See `Installer.save`."""
        archive = folder.with_name(f"{folder.name}.tar")
        try:
            with archive.open("wb") as file:
                argv = ["tar", "-c", "-C", self.folder, "--exclude", f"./{_LINKS}", "."]
                async with await self._box.spawn(argv) as process:
                    received = 0
                    while part := await process.stdout.read():
                        received += len(part)
                        if received > 2 * self._limit:  # an archive is a little larger than its files
                            raise InstallRefused(
                                f"its virtual environment is larger than the {self._limit} bytes that this hub allows"
                            )
                        file.write(part)
                    end = await process.wait()
            if end.exit_code != 0:
                raise InstallRefused(f"its files cannot be copied out of the sandbox: {end.ending}")
            await asyncio.to_thread(_unpack, archive, folder)
        except (SandboxFailed, tarfile.TarError) as error:
            raise InstallRefused(f"its files cannot be copied out of the sandbox: {error}") from None
        finally:
            archive.unlink(missing_ok=True)


class HostInstaller:
    """Runs the commands as the hub's own user, in a folder of this machine.

    Args:
        folder: the folder, which does not exist yet.
        seconds: how long a command may take.
    """

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder = str(folder)
        self._seconds = seconds

    async def run(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """See `Installer.run`."""
        own = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
        process = await asyncio.create_subprocess_exec(
            *argv, env={**own, **env}, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            async with asyncio.timeout(self._seconds):
                output, _ = await process.communicate()
        except TimeoutError:
            raise InstallRefused(f"its installation did not end within {self._seconds:g} s") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode:
            text = output.decode("utf-8", "replace")
            raise InstallRefused(f"its installation failed: exit code {process.returncode}{tail(text)}")

    async def write(self, path: str, text: str) -> None:
        """See `Installer.write`."""
        file = Path(self.folder) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    async def save(self, folder: Path) -> None:
        """See `Installer.save`."""
        await asyncio.to_thread(_move, Path(self.folder), folder)


def tail(output: str) -> str:
    """Return the last lines of an output, as the end of an error message."""
    lines = [line for line in output.strip().splitlines() if line.strip()][-_TAIL_LINES:]
    return ":\n" + "\n".join(lines) if lines else ""


def _unpack(archive: Path, folder: Path) -> None:
    def safe(member: tarfile.TarInfo, place: str) -> tarfile.TarInfo | None:
        found = tarfile.data_filter(member, place)
        mode = 0o755 if found.isdir() or (found.mode or 0) & 0o100 else 0o644
        return found.replace(mode=mode, deep=False)

    with tarfile.open(archive, "r:") as opened:
        opened.extractall(folder, filter=safe)


def _move(source: Path, folder: Path) -> None:
    for link in source.glob(_LINKS):
        link.unlink()
    for entry in list(source.iterdir()):
        shutil.move(str(entry), folder / entry.name)
    source.rmdir()
