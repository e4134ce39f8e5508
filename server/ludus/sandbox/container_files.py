"""Access to the files of a container's work directory, by shell code that runs in the container."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import Final

from ludus.sandbox import shell_scripts as scripts
from ludus.sandbox.base import SandboxBase
from ludus.sandbox.core.errors import SandboxFileError
from ludus.sandbox.core.model import FileInfo, Limits, RunResult, Snapshot
from ludus.sandbox.inside.files import MAX_ENTRIES

_FILE_ERRORS: Final = {
    61: "leads through a link", 62: "is not a plain file", 64: "is not a directory",
}  # fmt: skip


class ContainerFiles(SandboxBase):
    """The file operations of a sandbox in a container."""

    @abstractmethod
    async def _line(self, line: str, stdin: bytes, allowed: Limits) -> RunResult:
        """Run a line in a shell in the container; called in turn."""

    async def _script(
        self,
        path: str,
        script: str,
        stdin: bytes = b"",
        output: int = 1 << 16,
        too_large: str = "is larger than allowed",
    ) -> bytes:
        allowed = self.limits.but(seconds=60.0, output=output)

        async def work() -> RunResult:
            await self._make_usable()
            return await self._line(script, stdin, allowed)

        result = await self._in_turn(work)
        if result.limit == "output":
            raise SandboxFileError(f"{path!r} {too_large}")
        if result.exit_code == 63:
            raise SandboxFileError(f"{path!r} has {int(result.stderr):,} bytes, more than allowed")
        if result.exit_code != 0:
            reason = _FILE_ERRORS.get(result.exit_code or 0) or result.stderr.decode("utf-8", "replace").strip()
            raise SandboxFileError(f"{path!r} {reason or result.ending}")
        return result.stdout

    async def read(self, path: str, *, limit: int = 16 * 1024 * 1024) -> bytes:
        """See `Sandbox.read`."""
        name = scripts.quoted("./" + "/".join(scripts.parts(path)))
        script = (
            f"{scripts.no_links(path)}; [ -e {name} ] || {{ echo does not exist >&2; exit 1; }}; "
            f"[ -f {name} ] || exit 62; "
            f"size=$(stat -c %s {name}); [ $size -le {limit} ] || {{ echo $size >&2; exit 63; }}; exec cat {name}"
        )
        return await self._script(path, script, output=limit + 1024)

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """See `Sandbox.write`."""
        parts = scripts.parts(path)
        if not parts:
            raise SandboxFileError(f"{path!r} is a directory")
        name, folder = scripts.quoted("./" + "/".join(parts)), scripts.quoted("./" + "/".join(parts[:-1]))
        mode = "755" if executable else "644"
        script = (
            f"umask 022; {scripts.no_links(path, last=False)}; mkdir -p {folder} && "
            f"if [ -L {name} ]; then rm {name}; fi && [ ! -d {name} ] && "
            f"head -c {len(data)} > {folder}/.ludus-new && chmod {mode} {folder}/.ludus-new && "
            f"exec mv -f {folder}/.ludus-new {name}"
        )
        await self._script(path, script, data)

    async def list(self, path: str = ".") -> tuple[FileInfo, ...]:
        """See `Sandbox.list`."""
        name = scripts.quoted("./" + "/".join(scripts.parts(path)))
        script = (
            f"{scripts.no_links(path)}; [ -d {name} ] || exit 64; cd {name} && "
            "find . -mindepth 1 -maxdepth 1 -print0 && echo && "
            "find . -mindepth 1 -maxdepth 1 -exec stat -c '%f %s' {} +"
        )
        text = await self._script(path, script, output=8 * 1024 * 1024)
        names, _, about = text.rpartition(b"\0")
        # Both `find` calls list the directory in the same order, since nothing changes it between them.
        entries = map(scripts.file_info, names.split(b"\0") if about.strip() else (), about.split(b"\n")[1:])
        listing = sorted(entries, key=lambda entry: entry.name)
        if len(listing) > MAX_ENTRIES:
            raise SandboxFileError(f"{path!r} has more than {MAX_ENTRIES:,} entries")
        return tuple(listing)

    async def snapshot(self) -> Snapshot:
        """See `Sandbox.snapshot`."""
        room = self.limits.disk + self.limits.inodes * 1024
        script = (
            "find . -type d ! -perm -500 -exec chmod u+rx {} \\; ; find . -type f ! -perm -400 -exec chmod u+r {} +; "
            "exec tar cf - ."
        )
        data = await self._script("the files", script, output=room, too_large="are larger than the limit on disk")
        return Snapshot(await asyncio.to_thread(scripts.only_files, data, self.limits.disk))

    async def restore(self, snapshot: Snapshot) -> None:
        """See `Sandbox.restore`."""
        await self._script("the files", scripts.UNPACK, snapshot.data)
