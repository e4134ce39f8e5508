"""Sandboxes made by bubblewrap.

They have new namespaces, a read-only system, limited files in memory, no network, and a system-call filter. The server
of an ordinary user creates them in a user namespace. A server that runs as root uses no user namespace but an unused
user id: in a user namespace, an unprivileged user inside would still be root for every file that it can reach, and
root is exempt from the limit on processes.
"""

from __future__ import annotations

import asyncio
import math
import os
import platform
import shutil
import socket
import sys
import sysconfig
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

from ludus.sandbox import filters
from ludus.sandbox.box import RunnerBox
from ludus.sandbox.box_process import PYTHON, BoxProcess, Launch, inside_argv
from ludus.sandbox.cgroups import Groups
from ludus.sandbox.core.errors import SandboxFailed, SandboxUnavailable, SandboxUnsupported
from ludus.sandbox.core.model import Limits, SandboxSettings, tcp_buffer
from ludus.sandbox.core.stale import kill_stale_processes
from ludus.sandbox.network import netns_listener
from ludus.sandbox.pool import PooledProvider, check_shown, unused_user

__all__ = ["Bubblewrap"]


HOME: Final = "/box"
_OTHERWISE: Final = (
    "or choose another sandbox in the environment's settings: `docker` if an engine runs, `unsafe-local` for code "
    "that you trust"
)
_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_CONFIGURATION: Final = (
    "/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime",
    "/etc/mime.types", "/etc/ssl/certs",
)  # fmt: skip
_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
_ENVIRONMENT: Final = {
    "PATH": ":".join(dict.fromkeys((os.path.dirname(PYTHON), "/usr/local/bin", "/usr/bin", "/bin"))),
    "HOME": HOME, "TMPDIR": "/tmp", "LANG": "C.UTF-8", "USER": "box",
}  # fmt: skip
_OPEN_FILES: Final = 1024
_UNCOUNTED_FILES: Final = 256
_LEAST_FILES: Final = 64
_WATCHES_SHARE: Final = 16
_THREAD_RESERVE: Final = 144 * 1024 * 1024


class Bubblewrap(PooledProvider):
    """The bubblewrap provider.

    Args:
        cgroups: False uses no control groups, even if they are available.
    """

    name = "bubblewrap"

    def __init__(self, *, cgroups: bool = True) -> None:
        super().__init__()
        self._wants_groups = cgroups
        self._groups: Groups | None = None
        self._root = os.geteuid() == 0
        self._program = ""

    async def open(self) -> None:
        """See `SandboxProvider.open`."""
        if sys.platform != "linux":
            raise SandboxUnavailable(f"bubblewrap sandboxes need Linux, and this is {sys.platform}; {_OTHERWISE}")
        program = shutil.which("bwrap")
        if program is None:
            raise SandboxUnavailable(
                "bubblewrap sandboxes need the program `bwrap`, which is not installed; install the package "
                f"`bubblewrap` (apt-get install bubblewrap, dnf install bubblewrap), {_OTHERWISE}",
                package="bubblewrap",
            )
        if not filters.supported():
            raise SandboxUnavailable(
                f"there is no system-call filter for {platform.machine()} yet; run the server on x86-64 or arm64, "
                f"{_OTHERWISE}"
            )
        self._program = program
        await asyncio.to_thread(kill_stale_processes)
        if self._wants_groups:
            self._groups = await asyncio.to_thread(Groups.find)
            if self._groups is not None:
                self._groups.sweep()
        await self._try()

    def within(self, groups: Groups) -> Bubblewrap:
        """Return an open provider whose sandboxes have their control groups in another place, with limits on them all.

        Args:
            groups: see `Groups.nest`.
        """
        nested = Bubblewrap()
        nested._program, nested._groups = self._program, groups
        return nested

    @property
    def groups(self) -> Groups | None:
        """Where its control groups are; None if it uses none."""
        return self._groups

    async def _try(self) -> None:
        try:
            box = await self._pool.take(SandboxSettings(warm=0))
            async with box:
                result = await box.run(["true"])
        except SandboxFailed as error:
            requirement = (
                "a server that runs as root needs the right to mount (CAP_SYS_ADMIN); run it as an ordinary user"
                if self._root
                else "the system must allow ordinary users to create user namespaces (on Ubuntu 24.04: "
                "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for bwrap)"
            )
            raise SandboxUnavailable(
                f"bubblewrap is installed but cannot create a sandbox on this machine: {error.message}; "
                f"{requirement}, {_OTHERWISE}",
                package="bubblewrap",
            ) from None
        if not result.ok:
            raise SandboxUnavailable(
                f"bubblewrap creates sandboxes on this machine, but `true` does not run in them: {result.ending} "
                f"{result.stderr[:300]!r}; {_OTHERWISE}"
            )

    async def _check(self, settings: SandboxSettings) -> None:
        named = settings.image if settings.image is not None else settings.build
        if named is not None:
            raise SandboxUnsupported(
                f"bubblewrap sandboxes show this machine's own system, not the image {named!r}; "
                'use provider="docker", or add paths with `readonly`'
            )
        visible = [*_prefixes(), *(inside for _, inside in settings.readonly)]
        for link, _ in settings.links:
            if any(f"{path}/".startswith(f"{link}/") for path in visible):
                raise SandboxUnsupported(f"`links` names {link}, where the sandbox shows a directory of this machine")
        await check_shown(settings)

    async def _start(self, settings: SandboxSettings) -> RunnerBox:
        process = await self._start_process(settings)
        another = partial(self._start_process, settings)
        return RunnerBox(process, settings, _ENVIRONMENT, self.create, self._pool.forget, another)

    async def _start_process(self, settings: SandboxSettings) -> BoxProcess:
        try:
            with ExitStack() as opened:
                control, far_end = _pair(opened)
                passing, inner = _pair(opened)
                passing.setblocking(False)
                launch = self._launch(settings, far_end.fileno(), passing, inner, opened)
                opened.pop_all()
        except OSError as error:
            raise SandboxFailed(f"starting a sandbox failed: {error}") from None
        process = BoxProcess(launch)
        await process.start(control, far_end)
        return process

    def _launch(
        self, settings: SandboxSettings, control: int, passing: socket.socket, inner: socket.socket, opened: ExitStack
    ) -> Launch:
        user = unused_user() if self._root else 1000
        info_read, info_write = os.pipe()
        opened.callback(os.close, info_read)
        opened.callback(os.close, info_write)
        users = _prefilled(opened, f"root:x:0:0::/:/bin/sh\nbox:x:{user}:{user}::{HOME}:/bin/sh\n")
        groups = _prefilled(opened, f"root:x:0:\nbox:x:{user}:\n")
        hosts = _prefilled(opened, "127.0.0.1 localhost\n")
        argv = [
            self._program, *_namespaces(self._root, user), *_system(settings),
            "--perms", "0644", "--ro-bind-data", str(users), "/etc/passwd",
            "--perms", "0644", "--ro-bind-data", str(groups), "/etc/group",
            "--perms", "0644", "--ro-bind-data", str(hosts), "/etc/hosts",
            "--dir", "/.ludus/stage",
            "--dir", HOME, "--dir", "/tmp", "--remount-ro", "/", "--chdir", "/", "--info-fd", str(info_write),
            "--", *inside_argv(control),
        ]  # fmt: skip
        config = _config(settings, user, counted=self._groups is not None)
        config |= {
            "passing": inner.fileno(),
            "address": (netns_listener.HOST, netns_listener.PORT) if settings.network else None,
        }
        handed = (info_write, users, groups, hosts, inner.detach())
        group = self._groups.new() if self._groups is not None else None
        return Launch(argv, config, handed, passing, bool(settings.network), info_read, group)


def _config(settings: SandboxSettings, user: int, *, counted: bool) -> dict[str, Any]:
    limits, sockets = settings.limits, bool(settings.network) or settings.loopback
    return {
        "alone": True,
        "home": HOME,
        "user": user,
        "disk": {"bytes": limits.disk, "inodes": limits.inodes},
        "memory": limits.memory,
        "processes": limits.processes,
        "tcp": sockets,
        # Only root can mount a file system of terminals.
        "terminals": limits.terminals if os.geteuid() == 0 else 0,
        # One more than allowed, so that exceeding the limit can be detected, one for the program inside, and one keeper
        # for each background process.
        "tasks": limits.processes + 2 + limits.spawned,
        "files": _open_files(limits, counted=counted),
        "tcp_buffer": tcp_buffer(limits, _open_files(limits, counted=False)) if sockets and not counted else 0,
        "filter": filters.assemble(counted=counted, own_user=os.geteuid() == 0, network=sockets).hex(),
        "counted": counted,
        "meter": -1,
        # Only a second line of defense, since resident memory is watched. It must be generous: each thread's stack
        # and heap reserve much and use little.
        "address_space": 0 if counted else 4 * limits.memory + limits.processes * _THREAD_RESERVE,
        # With a control group, this limit is above the group's, because only the group reports that it was reached.
        "count_tasks": limits.processes + limits.spawned + (4 if counted else 2) if _counts_tasks_per_box() else 0,
    }


def _open_files(limits: Limits, *, counted: bool) -> int:
    """Return how many descriptors a process may have.

    Without control groups the kernel's memory for sockets and pipes is not counted, so fewer are allowed. The number of
    epoll watches is limited per user, and this server shares it with its sandboxes: a process can watch one half of
    its descriptors with each of the other half.
    """
    files = _OPEN_FILES if counted else _UNCOUNTED_FILES
    if os.geteuid() != 0:
        try:
            watches = int(Path("/proc/sys/fs/epoll/max_user_watches").read_text(encoding="ascii"))
        except (OSError, ValueError):
            watches = 0
        files = min(files, 2 * math.isqrt(watches // (_WATCHES_SHARE * limits.processes)))
    return max(_LEAST_FILES, files)


def _counts_tasks_per_box() -> bool:
    """Return whether RLIMIT_NPROC counts per sandbox: by its own user id, or per user namespace since Linux 5.14."""
    release = platform.release().split(".")
    return os.geteuid() == 0 or (int(release[0]), int(release[1].partition("-")[0])) >= (5, 14)


def _namespaces(root: bool, user: int) -> list[str]:
    options = [
        "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
        "--hostname", "sandbox", "--as-pid-1", "--die-with-parent", "--new-session", "--cap-drop", "ALL",
        "--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETPCAP", "--cap-add", "CAP_NET_ADMIN",
    ]  # fmt: skip
    if not root:
        return ["--unshare-user", "--uid", str(user), "--gid", str(user), *options]
    return [*options, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--cap-add", "CAP_CHOWN"]


def _system(settings: SandboxSettings) -> list[str]:
    """Return the options for the parts of this machine that a sandbox sees, all read-only."""
    argv = ["--proc", "/proc", "--tmpfs", "/dev", "--perms", "0755", "--dir", "/etc"]
    for device in _DEVICES:
        argv += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    for name, target in (("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1"),
                         ("stderr", "/proc/self/fd/2"), ("shm", "/tmp")):  # fmt: skip
        argv += ["--symlink", target, f"/dev/{name}"]
    argv += ["--dir", "/dev/pts", "--symlink", "pts/ptmx", "/dev/ptmx", "--remount-ro", "/dev"]
    for directory in _SYSTEM:
        path = Path(directory)
        if path.is_symlink():
            argv += ["--symlink", os.readlink(path), directory]
        elif path.is_dir():
            argv += ["--ro-bind", directory, directory]
    prefixes = [prefix for prefix in _prefixes() if not any(Path(prefix).is_relative_to(root) for root in _SYSTEM)]
    binds = [(path, path) for path in (*_CONFIGURATION, *prefixes) if Path(path).exists()]
    binds += settings.readonly
    # Only root can enter the parent directories that bubblewrap creates by itself, so create them with other modes.
    for folder in dict.fromkeys(str(above) for _, inside in binds for above in reversed(Path(inside).parents)):
        if folder not in ("/", "/etc") and not folder.startswith("/usr"):
            argv += ["--perms", "0755", "--dir", folder]
    for outside, inside in binds:
        argv += ["--ro-bind", outside, inside]
    for link, inside in settings.links:
        argv += ["--symlink", f"{HOME}/{inside}", link]
    for packages in _packages():
        # Hide the packages installed for this machine's Python: results would depend on them, and Python start slower.
        argv += ["--perms", "0555", "--tmpfs", packages, "--remount-ro", packages]
    return argv


def _prefixes() -> list[str]:
    """Return the directories of this server's Python."""
    return list(dict.fromkeys((os.path.realpath(sys.base_prefix), str(Path(PYTHON).parents[1]))))


def _packages() -> list[str]:
    """Return the directories in which this Python's packages are installed, except its venv; Debian adds its own."""
    base, version = sys.base_prefix, f"python{sys.version_info.major}.{sys.version_info.minor}"
    candidates = (
        sysconfig.get_path("purelib", vars={"base": base}), sysconfig.get_path("platlib", vars={"platbase": base}),
        f"{base}/lib/python3/dist-packages", f"{base}/local/lib/{version}/dist-packages",
    )  # fmt: skip
    return [directory for directory in dict.fromkeys(candidates) if Path(directory).is_dir()]


def _pair(opened: ExitStack) -> tuple[socket.socket, socket.socket]:
    near, far = socket.socketpair()
    return opened.enter_context(near), opened.enter_context(far)


def _prefilled(opened: ExitStack, text: str) -> int:
    """Return a descriptor from which `text` can be read."""
    read_end, write_end = os.pipe()
    opened.callback(os.close, read_end)
    os.write(write_end, text.encode())
    os.close(write_end)
    return read_end
