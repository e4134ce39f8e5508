"""Sandboxes in containers of the Docker engine that DOCKER_HOST names, through the docker SDK.

A container has no network, no capabilities, a read-only root, an unused user id, and files in memory. It ends when its
standard input closes, which the server holds open: a server that is killed leaves no container running. The next
server to open removes containers that a crash of the engine left.
"""

from __future__ import annotations

import asyncio
import json
import logging
import posixpath
import socket
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import docker
import docker.errors
import docker.types
import docker.utils
import requests.exceptions

from ludus.sandbox import filters
from ludus.sandbox.base import SandboxBase
from ludus.sandbox.box import RunnerBox
from ludus.sandbox.box_process import Launch
from ludus.sandbox.container import ENVIRONMENT, ContainerBox
from ludus.sandbox.container_process import BOOT, ContainerProcess, Unfit
from ludus.sandbox.core.errors import SandboxFailed, SandboxImageError, SandboxUnavailable, SandboxUnsupported
from ludus.sandbox.core.model import Limits, SandboxSettings, tcp_buffer
from ludus.sandbox.core.stale import OWNER, boot, is_alive, remove_left_behind
from ludus.sandbox.image_record import ImageRecord
from ludus.sandbox.images import Image, Images
from ludus.sandbox.network import netns_listener
from ludus.sandbox.network.netns_listener import SocketHandoff
from ludus.sandbox.pool import PooledProvider, check_shown, unused_user
from ludus.sandbox.shell_scripts import HOME

log = logging.getLogger("ludus.sandbox")

LABEL: Final = "dev.ludus.owner"
"""The label with the name of the server process that a container belongs to."""

BOOT_LABEL: Final = "dev.ludus.boot"
_HEADROOM: Final = 24
"""Tasks beyond the limit on processes, for the engine's own tasks that start commands and count toward the limit."""
_THREAD_RESERVE: Final = 144 * 2**20
"""The address space that a thread reserves for its stack and heap."""
_EVICTIONS: Final = 3
"""How often a sandbox may find that its image was removed between being found and being used."""
_WAIT: Final = "while read -r _; do (:) & wait $!; done"
"""The first process. It runs until its input ends, and reaps the zombies it has inherited for every line of input."""


class ContainerRunnerBox(RunnerBox):
    """A sandbox in a container, whose program inside runs the commands.

    Args:
        user: the user id of its processes.
    """

    def __init__(self, user: int, *about: Any) -> None:
        super().__init__(*about)
        self.user = user


class Docker(PooledProvider):
    """The Docker provider.

    Args:
        runs_program: False lets the engine start the commands in every image, as in one that has no Python.
    """

    name = "docker"
    has_terminals = True
    """Whether its sandboxes can create terminals themselves."""

    def __init__(self, *, runs_program: bool = True) -> None:
        super().__init__()
        self._runs_program = runs_program
        self._client: Any = None
        self._engine: dict[str, Any] = {}
        """The arguments with which clients of the engine are created."""
        self.images: Images | None = None
        """The engine's images; None before `open`."""
        self._watched = False
        """Whether no control group limits containers, so that the server must watch their processes."""
        self.unfit: dict[str, str] = {}
        """Why our program cannot run in an image, by the image's id; a shell starts the commands there."""
        self._foreign = False
        """Whether the engine belongs to another user of this machine than the server."""
        self._complete: set[str] = set()
        """The ids of images that have the programs that sandboxes need."""

    async def open(self) -> None:
        """See `SandboxProvider.open`."""
        try:
            await self._connect()
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
            raise self._unavailable(error) from None

    async def _connect(self, address: str | None = None) -> None:
        """Connect to the engine at an address, or at `DOCKER_HOST`, and remove what crashed servers left there."""
        self._engine = dict(docker.utils.kwargs_from_env()) if address is None else {"base_url": address}
        self._client = await asyncio.to_thread(connected, self._engine)
        self.images = await asyncio.to_thread(self._open_images)
        await asyncio.to_thread(self._sweep)
        # After the containers: the directories to remove are mounted in them.
        await asyncio.to_thread(remove_left_behind)

    def _unavailable(self, error: Exception) -> SandboxUnavailable:
        return SandboxUnavailable(
            f"docker sandboxes need a Docker engine, and no engine answers: {error}; install and start "
            "one (package `docker.io` or `docker-ce`), point DOCKER_HOST to it, or choose another sandbox in the "
            "environment's settings: `bubblewrap` on Linux, `unsafe-local` for code that you trust",
            package="docker.io",
        )

    async def prepare(self, settings: SandboxSettings) -> None:
        """See `SandboxProvider.prepare`; the image is pulled or built first, as the settings say."""
        await super().prepare(settings)
        if settings.network and settings.warm == 0:
            await (await self.create(settings)).aclose()  # finds out now whether the egress proxy can work

    async def aclose(self) -> None:
        """See `SandboxProvider.aclose`."""
        if self.images is not None:
            await self.images.aclose()
        await super().aclose()
        # After the containers have gone: the engine refuses to remove a volume that one of them uses.
        await self._settle()
        if self._client is not None:
            await asyncio.to_thread(self._client.close)

    async def _settle(self) -> None:
        """Remove the volumes of terminals whose containers were removed by others, who may have left the volumes."""
        with suppress(docker.errors.DockerException, requests.exceptions.RequestException):  # the engine has ended
            await asyncio.to_thread(self._remove_labeled_volumes, f"{LABEL}={OWNER}", lambda _: True)

    async def obtain(self, settings: SandboxSettings) -> None:
        """See `ImageProvider.obtain`."""
        await self._check(settings)

    async def _check(self, settings: SandboxSettings) -> None:
        if settings.image is None and settings.build is None:
            raise SandboxUnsupported(f"{self.name} sandboxes need an image: set `image=…` or `build=…` in the settings")
        if settings.links:
            raise SandboxUnsupported(f"{self.name} sandboxes cannot honor `links`; make the links in the image")
        await check_shown(settings)  # the engine would create a directory for a missing path
        await self._image(settings)

    async def _image(self, settings: SandboxSettings) -> Image:
        if self.images is None:
            raise SandboxFailed(f"the sandboxes of {self.name!r} are not open")
        return await self.images.obtain(settings)

    def _open_images(self) -> Images:
        about = self._client.info()
        record = ImageRecord(f"{about.get('ID', '')} {about.get('DockerRootDir', '')}")
        return Images(self._engine, record, str(about.get("Architecture", "")))

    def _sweep(self) -> None:
        """Remove the containers of servers of this machine that no longer run."""
        for container in self._client.containers.list(all=True, filters={"label": LABEL}):
            # The engine may serve several machines, and `is_alive` can judge only processes of this one.
            same_boot = container.labels.get(BOOT_LABEL) == boot()
            if same_boot and not is_alive(container.labels[LABEL]):
                try:
                    container.remove(v=True, force=True)
                except docker.errors.APIError:
                    continue
        self._remove_labeled_volumes(LABEL, self._is_orphaned)

    def _is_orphaned(self, volume_labels: Mapping[str, str]) -> bool:
        """Return whether a volume with these labels belongs to a server of this machine that no longer runs."""
        return volume_labels.get(BOOT_LABEL) == boot() and not is_alive(volume_labels.get(LABEL, ""))

    def _remove_labeled_volumes(self, label: str, is_orphaned: Callable[[Mapping[str, str]], bool]) -> None:
        api = self._client.api
        for volume in api.volumes(filters={"label": label}).get("Volumes") or ():
            if is_orphaned(volume.get("Labels") or {}):
                with suppress(docker.errors.APIError):  # a container uses it, or another server has removed it
                    api.remove_volume(volume["Name"])

    async def _start(self, settings: SandboxSettings) -> SandboxBase:
        image = await self._image(settings)
        if self._runs_program and image.id not in self.unfit:
            try:
                return await self._start_inside(settings)
            except Unfit as reason:
                self.unfit[image.id] = str(reason)
                log.info("sandboxes in the image %s have no background processes and no ports: %s", image.name, reason)
        return await self._start_with_shell(settings, image)

    async def _start_inside(self, settings: SandboxSettings) -> ContainerRunnerBox:
        """Start a sandbox whose program inside runs its commands.

        Raises:
            Unfit: the image or the engine cannot run that program.
        """
        user = self._new_user()
        start = partial(self._start_process, settings, user)
        try:
            process = await start()
        except BaseException as error:
            self._release_user(user)
            if isinstance(error, docker.errors.DockerException | requests.exceptions.RequestException | OSError):
                raise SandboxFailed(f"starting a container failed: {error}") from None
            raise
        return ContainerRunnerBox(user, process, settings, ENVIRONMENT, self.create, self._untrack, start)

    async def _start_process(self, settings: SandboxSettings, user: int) -> ContainerProcess:
        """Start the container of a new sandbox, or of one whose container is gone."""
        assert self.images is not None
        for _ in range(_EVICTIONS):
            image = await self._image(settings)
            # Before the container exists: the cap evicts first the image that was not used for the longest time.
            await self.images.use(image)
            handoff = SocketHandoff(tempfile.mkdtemp(prefix=f"{OWNER}-"), shared=self._foreign)
            terminals = settings.limits.terminals if self.has_terminals else 0
            config = {**inside_config(settings, user, self._watched), "terminals": terminals}
            launch = Launch([], config, (), socket.socket(), bool(settings.network))
            create = partial(self._container_inside, image, settings, user, handoff)
            process = ContainerProcess(self._client.api, create, handoff, launch)
            try:
                await process.begin()
            except docker.errors.ImageNotFound:  # removed in the meantime, by a person or beyond the cap
                self.images.forget(settings)
                continue
            return process
        raise SandboxFailed(f"the image {settings.image or settings.build!r} was removed again and again")

    async def _start_with_shell(self, settings: SandboxSettings, image: Image) -> ContainerBox:
        user = self._new_user()
        box = ContainerBox(
            self._client.api, settings, user, self.create, self._untrack, self._start_container, self._watched,
            self.unfit.get(image.id, "the engine starts their commands"),
        )  # fmt: skip
        try:
            await self._start_container(box)
        except BaseException as error:
            await box.aclose()
            if isinstance(error, docker.errors.APIError) and _lacks_shell(error):
                raise SandboxImageError(
                    f"the image {settings.image or settings.build!r} has no /bin/sh, which starts the commands of a "
                    "sandbox; install a shell in it, or derive an image that has one"
                ) from None
            if isinstance(error, docker.errors.DockerException | requests.exceptions.RequestException | OSError):
                raise SandboxFailed(f"starting a container failed: {error}") from None
            raise
        return box

    async def _start_container(self, box: ContainerBox) -> None:
        """Start a container for a new sandbox, or for one whose container is gone."""
        for _ in range(_EVICTIONS):
            image = await self._image(box.settings)
            try:
                return await self._start_from(box, image)
            except docker.errors.ImageNotFound:  # removed in the meantime, by a person or beyond the cap
                assert self.images is not None
                self.images.forget(box.settings)
        image_name = box.settings.image or box.settings.build
        raise SandboxFailed(f"the image {image_name!r} was removed again and again while a sandbox started")

    async def _start_from(self, box: ContainerBox, image: Image) -> None:
        assert self.images is not None
        await self.images.use(image)
        await box.start(partial(self._container, image, box.settings, box.user))
        if image.id not in self._complete:
            if missing := await asyncio.to_thread(box.missing_programs):
                raise SandboxImageError(
                    f"the image {image.name!r} lacks programs that sandboxes need: {', '.join(missing)}; install "
                    "them in it (packages `coreutils`, `findutils`, `grep`, `tar`, or `busybox`)"
                )
            self._complete.add(image.id)

    def _untrack(self, box: SandboxBase) -> None:
        """Stop tracking a sandbox that was closed."""
        self._pool.forget(box)
        if isinstance(box, ContainerBox | ContainerRunnerBox):
            self._release_user(box.user)

    def _release_user(self, user: int) -> None:
        """Remove what belongs to a user id that no sandbox has any more."""

    def _new_user(self) -> int:
        return unused_user()

    def _security(self, network: bool) -> list[str]:
        """Return the engine's security options: the system-call filter, if there is one for this architecture."""
        profile = filters.profile(network=network) if filters.supported() else None
        return [] if profile is None else [f"seccomp={json.dumps(profile)}"]

    def _storage(self, image: Image, settings: SandboxSettings, user: int) -> Storage:
        limits = settings.limits
        files = f"nr_inodes={limits.inodes},mode=0700,uid={user},gid={user},nosuid,nodev,exec"
        sizes = {HOME: limits.disk, "/tmp": limits.disk // 4}
        tmpfs = {path: f"size={size},{files}" for path, size in sizes.items()}
        described = docker.types.DriverConfig("local", terminal_options(settings))
        terminals = docker.types.Mount("/dev/pts", None, type="volume", driver_config=described, labels=labels())
        # The sandbox's own file systems come last and win: an image may declare /tmp as a volume.
        return Storage({**read_only_volumes(image, settings, "nr_inodes=64"), **tmpfs}, mounts=[terminals])

    def _container(self, image: Image, settings: SandboxSettings, user: int) -> str:
        """Create a container whose commands run as `user`, and return its id.

        Its first process runs as root, without capabilities, so that commands can neither end nor inspect it. Nothing
        that the image asks for runs: neither its entry point nor its health check, which would run as root, too.
        """
        confinement = _confinement(
            self._client.api, settings, None, self._security(bool(settings.network)),
            self._storage(image, settings, user), shell_tasks(settings), self._watched,
        )  # fmt: skip
        return self._created(image, ["/bin/sh"], ["-c", _WAIT], "0:0", confinement)

    def _container_inside(self, image: Image, settings: SandboxSettings, user: int, handoff: SocketHandoff) -> str:
        """Create a container whose first process is our program, which runs as `user`, and return its id.

        The engine's filter lets it open the socket for descriptors; it then installs the sandbox's own filter.
        """
        confinement = _confinement(
            self._client.api, settings, handoff, self._security(True), self._storage(image, settings, user),
            inside_tasks(settings), self._watched,
        )  # fmt: skip
        command = ["-I", "-S", "-B", "-c", BOOT, OWNER]
        return self._created(image, ["python3"], command, f"{user}:{user}", confinement)

    def _created(self, image: Image, entrypoint: list[str], command: list[str], user: str, confinement: Any) -> str:
        container = self._client.api.create_container(
            image.id, command, user=user, stdin_open=True, tty=False, working_dir=HOME, network_disabled=True,
            labels=labels(), hostname="sandbox", entrypoint=entrypoint,
            healthcheck={"test": ["NONE"]}, host_config=confinement,
        )  # fmt: skip
        return str(container["Id"])


_WATCHED_FILES: Final = 256
"""The open files of a process in a container without a control group."""


@dataclass(frozen=True, slots=True)
class Storage:
    """The file systems of a container."""

    files: dict[str, str]
    """The options of file systems in memory, by their path."""
    binds: list[str] = field(default_factory=list)
    mounts: list[Any] = field(default_factory=list)


def labels() -> dict[str, str]:
    """Return the labels of what this server creates, by which the next one finds what was left."""
    return {LABEL: OWNER, BOOT_LABEL: boot()}


def terminal_options(settings: SandboxSettings) -> dict[str, str]:
    """Return the options of a volume for terminals, whose number is otherwise limited for the whole machine."""
    options = f"newinstance,ptmxmode=0666,mode=0620,max={settings.limits.terminals}"
    return {"type": "devpts", "device": "devpts", "o": options}


@dataclass(frozen=True, slots=True)
class Tasks:
    """The limits that differ with the way in which a container runs commands."""

    per_user: int
    per_container: int
    file_size: int | None
    """For all processes; None if each command gets its own."""


def shell_tasks(settings: SandboxSettings) -> Tasks:
    """Return the limits of a container whose commands the engine starts."""
    limits = settings.limits
    return Tasks(limits.processes + 16, limits.processes + _HEADROOM, limits.file_size)


def inside_tasks(settings: SandboxSettings) -> Tasks:
    """Return the limits of a container whose commands our program starts.

    One more than allowed, so that exceeding the limit can be detected, one for that program, and one keeper for each
    background process.
    """
    tasks = settings.limits.processes + 2 + settings.limits.spawned
    # The limit per user lies above that of the container, because only the container's group reports a hit.
    return Tasks(tasks + 4, tasks, None)


def inside_config(settings: SandboxSettings, user: int, watched: bool) -> dict[str, Any]:
    """Return the configuration of the program inside a container.

    Args:
        settings: those of the sandbox.
        user: the user id of its processes.
        watched: whether no control group limits the container.
    """
    limits, sockets = settings.limits, bool(settings.network) or settings.loopback
    return {
        "alone": True, "home": HOME, "user": user, "disk": {"bytes": limits.disk, "inodes": limits.inodes},
        "disks": (HOME, "/tmp"), "memory": limits.memory, "processes": limits.processes, "tcp": sockets,
        "files": _WATCHED_FILES if watched else 1024, "counted": not watched, "meter": -1,
        "filter": filters.assemble(counted=not watched, own_user=True, network=sockets).hex(),
        "address_space": 4 * limits.memory + limits.processes * _THREAD_RESERVE if watched else 0,
        "count_tasks": inside_tasks(settings).per_user,
        "address": (netns_listener.HOST, netns_listener.PORT) if settings.network else None,
    }  # fmt: skip


def _confinement(
    api: Any, settings: SandboxSettings, handoff: SocketHandoff | None, security: list[str],
    storage: Storage, tasks: Tasks, watched: bool,
) -> Any:  # fmt: skip
    limits = settings.limits
    binds = [*storage.binds, *(f"{outside}:{inside}:ro" for outside, inside in settings.readonly)]
    if handoff is not None:
        binds.append(f"{handoff.path}:{SocketHandoff.PATH_INSIDE}:ro")
    ulimits = {
        "nofile": 1024, "core": 0, "nproc": tasks.per_user, "memlock": 65536, "msgqueue": 0,
    } | ({} if tasks.file_size is None else {"fsize": tasks.file_size})  # fmt: skip
    memory = limits.memory + limits.disk  # files are in memory and count toward its limit
    return api.create_host_config(
        # `auto_remove`: the engine removes an ended container also when no server is left to do so.
        # `memswap_limit` equal to `mem_limit` means no swap; left out, the engine allows as much swap again.
        # `ipc_mode` none: a private /dev/shm would be writable memory that no limit on files counts.
        # No log: the output travels on the attached stream, and a log file would grow without a limit.
        network_mode="none", read_only=True, cap_drop=["ALL"], auto_remove=True,
        security_opt=["no-new-privileges", *security],
        mem_limit=memory, memswap_limit=memory, pids_limit=tasks.per_container,
        ulimits=[docker.types.Ulimit(name=name, soft=value, hard=value) for name, value in ulimits.items()],
        tmpfs=storage.files, binds=binds, mounts=storage.mounts, ipc_mode="none",
        log_config=docker.types.LogConfig(type="none"), shm_size=None,
        sysctls=_tcp_buffers(limits) if watched else None,
    )  # fmt: skip


def _tcp_buffers(limits: Limits) -> dict[str, str]:
    """Return the settings of TCP's buffers in a container without a control group, where nothing else bounds them."""
    size = tcp_buffer(limits, _WATCHED_FILES)
    return {f"net.ipv4.tcp_{kind}": f"4096 {size} {size}" for kind in ("rmem", "wmem")}


def read_only_volumes(image: Image, settings: SandboxSettings, option: str) -> dict[str, str]:
    """Return empty read-only mounts in place of an image's volumes, which could be written to without a limit."""
    readonly_paths = {posixpath.normpath(inside) for _, inside in settings.readonly}
    volume_paths = {posixpath.normpath(path) for path in image.volumes}
    return dict.fromkeys(sorted(volume_paths - readonly_paths), f"ro,size=4096,mode=0755,nosuid,nodev,noexec,{option}")


def _lacks_shell(error: docker.errors.APIError) -> bool:
    explanation = str(error.explanation or error)
    causes = ("no such file", "not found", "executable file")
    return "/bin/sh" in explanation and any(cause in explanation for cause in causes)


def connected(engine: Mapping[str, Any]) -> Any:
    """Return a client of an engine that answers."""
    host = str(docker.utils.parse_host(engine.get("base_url")))
    if host.startswith("http+unix://"):
        with socket.socket(socket.AF_UNIX) as probe:  # the SDK would leave its own socket open if no engine answers
            probe.connect(host.removeprefix("http+unix://"))
    client = docker.DockerClient(**engine, timeout=60)
    client.ping()
    return client
