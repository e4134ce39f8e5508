"""Sandboxes in containers of Podman, rootless or not, through its Docker-compatible API.

It is the Docker provider with another engine. What differs:

- There is no engine that always runs. The service of this user is used if its socket exists (`CONTAINER_HOST`,
  `$XDG_RUNTIME_DIR/podman/podman.sock`); otherwise the server starts one, which ends by itself a few seconds after
  the server's last connection has closed, so also when the server is killed.
- Without root, a container's user ids are a range of this machine's that belongs to the server's user (`/etc/subuid`).
- The system-call filter is a file.
- Without control groups for this user, Podman ignores limits on memory and processes. Then each process has a limit
  on its address space, and the server watches the container's processes (`process_watch`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import docker.errors
import requests.exceptions

from ludus.sandbox import filters
from ludus.sandbox.core.errors import SandboxUnavailable
from ludus.sandbox.core.model import SandboxSettings
from ludus.sandbox.core.stale import OWNER, boot, is_alive
from ludus.sandbox.docker import BOOT_LABEL, LABEL, Docker, Storage, labels, read_only_volumes
from ludus.sandbox.images import Image
from ludus.sandbox.shell_scripts import HOME

log = logging.getLogger("ludus.sandbox")

_IDLE_SECONDS: Final = 5
"""How long a service that a server started goes on without a connection."""
_PAGE: Final = 4096
_START_SECONDS: Final = 30.0
_LOWEST_USER, _RANGE = 10_000, 50_000
_NEEDED: Final = {"memory", "pids"}


class Podman(Docker):
    """The Podman provider."""

    name = "podman"
    has_terminals = False

    def __init__(self, *, runs_program: bool = True) -> None:
        super().__init__(runs_program=runs_program)
        self._service: subprocess.Popen[bytes] | None = None
        self._held: socket.socket | None = None
        """A connection that keeps the service from ending."""
        self._folder = ""
        self._rootless = False
        self._removing: set[asyncio.Task[None]] = set()
        self._last_user = secrets.randbelow(_RANGE)

    async def open(self) -> None:
        """See `SandboxProvider.open`."""
        try:
            await super().open()
        except BaseException:
            await self._end_service()
            raise

    async def _connect(self, address: str | None = None) -> None:
        self._folder = tempfile.mkdtemp(prefix=f"{OWNER}-")
        for network in (False, True):
            for counted in (False, True) if filters.supported() else ():
                profile = json.dumps(filters.profile(network=network, counted=counted))
                self._filter_file(network, counted).write_text(profile, encoding="utf-8")
        os.chmod(self._folder, 0o755)
        address = address or _running() or await self._start_service()
        await super()._connect(address)
        about = await asyncio.to_thread(self._about)
        self._rootless = bool(about["host"]["security"]["rootless"])
        self._foreign = self._rootless and os.geteuid() == 0
        if about.get("store", {}).get("graphDriverName") == "vfs":
            log.warning(
                "Podman uses the storage driver `vfs`, which copies the whole image for each sandbox: starts take "
                'seconds. Set `driver = "overlay"` below `[storage]` in storage.conf.'
            )
        self._watched = self._rootless and not set(about["host"].get("cgroupControllers") or ()) >= _NEEDED

    def _about(self) -> dict[str, Any]:
        api = self._client.api
        return api.get(f"{api.base_url}/v4.0.0/libpod/info", timeout=60).json()  # type: ignore[no-any-return]

    def _unavailable(self, error: Exception) -> SandboxUnavailable:
        return SandboxUnavailable(
            f"podman sandboxes need Podman, and it does not answer: {error}; install it (packages `podman`, `uidmap`, "
            "`crun`), give the server's user a range of ids in /etc/subuid and /etc/subgid, or choose another sandbox "
            "in the environment's settings: `bubblewrap` on Linux, `unsafe-local` for code that you trust",
            package="podman",
        )

    async def _start_service(self) -> str:
        """Start a service for this server alone, and return its address."""
        program = shutil.which("podman")
        if program is None:
            raise FileNotFoundError("there is no program `podman`")
        path = f"{self._folder}/podman.sock"
        said_in = Path(self._folder) / "log"
        with said_in.open("wb") as output:
            self._service = subprocess.Popen(  # noqa: ASYNC220 - asyncio's would need its loop until the end
                [program, *_runtime(), "system", "service", f"--time={_IDLE_SECONDS}", f"unix://{path}"],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, cwd="/",
            )  # fmt: skip
        deadline = time.monotonic() + _START_SECONDS
        while True:
            with suppress(OSError):
                self._held = _held(path)
                return f"unix://{path}"
            if self._service.poll() is not None or time.monotonic() > deadline:
                error_text = said_in.read_text("utf-8", "replace").strip()[-300:]
                raise OSError(f"`podman system service` does not start: {error_text or 'no reason given'}")
            await asyncio.sleep(0.05)

    async def _end_service(self) -> None:
        if self._held is not None:
            self._held.close()
        service, self._service = self._service, None
        if service is not None:
            service.terminate()
            try:
                await asyncio.to_thread(service.wait, 10)
            except subprocess.TimeoutExpired:
                service.kill()
                await asyncio.to_thread(service.wait, 10)
        if self._folder:
            await asyncio.to_thread(shutil.rmtree, self._folder, True)

    async def aclose(self) -> None:
        """See `SandboxProvider.aclose`."""
        await super().aclose()
        await self._end_service()

    def _new_user(self) -> int:
        """Return an id within the range of an ordinary user, which hardly any other sandbox has."""
        if not self._rootless:
            return super()._new_user()
        self._last_user = (self._last_user + 1) % _RANGE
        return _LOWEST_USER + self._last_user

    def _storage(self, image: Image, settings: SandboxSettings, user: int) -> Storage:
        """Return volumes in memory: Podman's own `tmpfs` mounts take neither an owner nor a limit on files."""
        limits = settings.limits
        mounts = []
        self._remove_volumes(user)  # of a container that is gone, if this one takes its place
        sizes = ((HOME, limits.disk), ("/tmp", limits.disk // 4))
        for name, (path, size) in zip(_volume_names(user), sizes, strict=True):
            options = f"nr_blocks={-(-size // _PAGE)},nr_inodes={limits.inodes},mode=0700,uid={user},gid={user}"
            described = {"type": "tmpfs", "device": "tmpfs", "o": f"{options},nosuid,nodev"}
            self._client.api.create_volume(name, "local", described, labels())
            mounts.append(f"{name}:{path}:nosuid,nodev,exec")
        # Podman would mount writable file systems without a limit there.
        closed = replace(image, volumes=(*image.volumes, "/run", "/var/tmp"))
        return Storage(read_only_volumes(closed, settings, "notmpcopyup"), mounts)

    def _remove_volumes(self, user: int) -> None:
        for name in _volume_names(user):
            with suppress(docker.errors.APIError, requests.exceptions.RequestException):
                self._client.api.remove_volume(name)

    def _release_user(self, user: int) -> None:
        task = asyncio.get_running_loop().create_task(asyncio.to_thread(self._remove_volumes, user))
        self._removing.add(task)
        task.add_done_callback(self._removing.discard)

    async def _settle(self) -> None:
        while self._removing:
            await asyncio.wait(tuple(self._removing))

    def _is_orphaned(self, volume_labels: Mapping[str, str]) -> bool:
        """Return whether its server no longer runs; the service is of this machine, so one of another boot does not."""
        return volume_labels.get(BOOT_LABEL) != boot() or not is_alive(volume_labels.get(LABEL, ""))

    def _security(self, network: bool) -> list[str]:
        profile = self._filter_file(network, not self._watched)
        # Without its own control group, a container would see those of the machine. Terminals come from the server:
        # Podman's own file system of terminals has no limit. Shared mappings of /dev/zero give memory that no process
        # has, so it is empty where processes are only watched.
        hidden = "/sys:/dev/pts/ptmx:/dev/zero" if self._watched else "/sys:/dev/pts/ptmx"
        return [f"mask={hidden}", *([f"seccomp={profile}"] if filters.supported() else [])]

    def _filter_file(self, network: bool, counted: bool) -> Path:
        return Path(self._folder) / f"filter-{'network' if network else 'alone'}-{'counted' if counted else 'watched'}"


def _volume_names(user: int) -> list[str]:
    return [f"{OWNER}-{user}-{part}" for part in ("box", "tmp")]


def _runtime() -> list[str]:
    """Return the option for a runtime that can work with control groups of version 1, which `crun` may refuse."""
    runc = shutil.which("runc", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    mixed = not Path("/sys/fs/cgroup/cgroup.controllers").exists()
    return ["--runtime", runc] if mixed and runc is not None else []


def _running() -> str | None:
    """Return the address of this user's service, if it has one that answers.

    Raises:
        OSError: `CONTAINER_HOST` names a service that does not answer.
    """
    if named := os.environ.get("CONTAINER_HOST"):
        return named
    folder = "/run" if os.geteuid() == 0 else os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.geteuid()}")
    path = f"{folder}/podman/podman.sock"
    with suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
        probe.connect(path)
        return f"unix://{path}"
    return None


def _held(path: str) -> socket.socket:
    """Return a connection with a request that is never answered completely."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
        query = "stream=true&filters=%7B%22container%22%3A%5B%22ludus-none%22%5D%7D"
        connection.sendall(f"GET /v4.0.0/libpod/events?{query} HTTP/1.1\r\nHost: ludus\r\n\r\n".encode())
    except BaseException:
        connection.close()
        raise
    return connection
