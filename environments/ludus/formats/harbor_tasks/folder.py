"""One task folder: what it asks for, and whether it can run here."""

from __future__ import annotations

import atexit
import io
import posixpath
import re
import shutil
import stat
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ludus.formats.harbor_tasks.config import TaskConfig, resolve_variables
from ludus.formats.harbor_tasks.dockerfile import NeedsEngine, PlainImage, read_dockerfile
from ludus.protocol.errors import AuthoringError
from ludus.protocol.messages import describe_invalid
from ludus.sandbox import Limits, SandboxSettings

_CANARY: Final = re.compile(r"(<!--.*canary.*-->|#.*canary.*)", re.IGNORECASE)
_COMPOSE: Final = ("docker-compose.yaml", "docker-compose.yml", "singularity-compose.yaml")
_MIB: Final = 2**20
_OWN: Final = ("/logs", "/tests", "/solution")
"""Directories of every task, besides those of its image."""
SEED: Final = "/.ludus-seed"
"""Where an image keeps what its task's directories contain at first: the root of a container is read-only."""


class HarborSettings(BaseModel):
    """The options of `harbor:`."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: str | None = None
    """The environment's name; that of the folder by default."""
    split: Literal["train", "validation", "test"] = "train"
    """The split that the tasks are in."""
    sandbox: str = "auto"
    """`bubblewrap`, `docker`, `podman`, or another sandbox with images. By default it is bubblewrap for folders whose
    image needs no engine, and otherwise docker."""
    verifier: Literal["task", "shared", "separate"] = "task"
    """Where tests run: as the task says (in the agent's sandbox by default), or always `shared` or `separate`."""
    reward: str | None = None
    """The key of `reward.json` that is the reward, or `mean` of all keys; by default `reward`, or the only key."""
    best: float | None = Field(default=None, gt=0)
    """The reward of a perfect solution, if it is the same for all tasks, and the least reward is 0. `ludus validate`
    then checks that each task's own solution earns it."""
    failed_verifier: Literal["zero", "unscored"] = "zero"
    """What an episode is worth whose tests ran and left no reward that can be read: 0, because the agent's own work
    may be what broke them, or `unscored`, for tests that no work can break. A lost sandbox is unscored in any case."""
    command_seconds: float = Field(default=45.0, gt=0)
    """The most seconds of one command of the agent; keep it below the server's `--tool-seconds`."""
    memory_mb: int = Field(default=2048, ge=64)
    """Memory of tasks that do not say how much they need."""
    storage_mb: int = Field(default=1024, ge=16)
    """Disk of tasks that do not say how much they need; at most that much for any, since files are in memory."""
    network: str = ""
    """Hosts that tasks with a public network may reach, separated by spaces; none by default."""
    unsupported: Literal["refuse", "skip"] = "refuse"
    """What to do with a folder that has tasks which cannot run here: refuse it, or leave those tasks out."""


class Unsupported(Exception):
    """A task cannot run here; the message says why."""


@dataclass
class HarborFolder:
    """A task folder."""

    path: Path
    id: str
    config: TaskConfig
    settings: HarborSettings
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of all commands."""
    verifier_env: Mapping[str, str] = field(default_factory=dict)
    solution_env: Mapping[str, str] = field(default_factory=dict)
    image: PlainImage | None = None
    """What bubblewrap shows; None if the image needs an engine."""
    build: str | None = None
    """The folder that an engine builds the image from, with the links that the task needs; removed at exit."""

    @cached_property
    def instruction(self) -> str:
        """The instruction, without the lines at its beginning that mark it for searches in training data."""
        lines = _read_text(self.path / "instruction.md").split("\n")
        start = 0
        while start < len(lines) and _CANARY.fullmatch(lines[start].strip()):
            start += 1
        while start < len(lines) and not lines[start].strip():
            start += 1
        return "\n".join(lines[start:])

    @property
    def workdir(self) -> str | None:
        """The directory in which commands start; None if only the image says it."""
        return self.config.environment.workdir or (self.image.workdir if self.image is not None else None)

    @property
    def directories(self) -> tuple[str, ...]:
        """The directories at the root that commands can write to."""
        paths = [*_OWN, "/app", self.workdir or "/app", *self.config.artifact_paths]
        if self.image is not None:
            paths += [*self.image.directories, *(file.path for file in self.image.files)]
        tops = {"/" + path.split("/")[1] for path in paths if path.startswith("/")}
        return tuple(sorted(tops - {"/", "/tmp"}))

    def inside(self, path: str) -> str | None:
        """Return a path relative to the sandbox's own work directory; None if the path is somewhere else."""
        absolute = posixpath.normpath("/" + posixpath.join(self.workdir or "/app", path).lstrip("/"))
        return absolute[1:] if "/" + absolute.split("/")[1] in self.directories else None

    @cached_property
    def sandbox(self) -> SandboxSettings:
        """The settings of the task's sandboxes."""
        wanted, settings = self.config.environment, self.settings
        seconds = max(self.config.agent.timeout_sec or 0.0, self.config.verifier.timeout_sec, settings.command_seconds)
        limits = Limits(
            seconds=seconds,
            cpu_seconds=seconds * 4,
            memory=(wanted.memory_mb or settings.memory_mb) * _MIB,
            disk=min(wanted.storage_mb or settings.storage_mb, settings.storage_mb) * _MIB,
            file_size=settings.storage_mb * _MIB,
            processes=256,
        )
        mode, hosts = self.config.network
        network = {"public": tuple(settings.network.split()), "allowlist": hosts, "no-network": ()}[mode]
        common = SandboxSettings(limits=limits, network=network, loopback=True, env=tuple(self.env.items()))
        if self.image is not None:
            return common.but(links=tuple((place, place[1:]) for place in self.directories))
        engine = "docker" if settings.sandbox == "auto" else settings.sandbox
        return common.but(provider=engine, build=self.build)

    @cached_property
    def seed(self) -> bytes:
        """A tar archive of the sandbox's work directory at first."""
        assert self.image is not None
        data = io.BytesIO()
        made: set[str] = set()
        with tarfile.open(fileobj=data, mode="w") as tar:
            for path in (
                *self.directories,
                "/logs/agent",
                "/logs/verifier",
                "/logs/artifacts",
                *self.image.directories,
            ):
                _add_directories(tar, path, made)
            for file in self.image.files:
                _add_directories(tar, posixpath.dirname(file.path), made)
                content = file.source.read_bytes()
                member = tarfile.TarInfo(file.path[1:])
                member.size, member.mode = len(content), 0o755 if file.executable else 0o644
                tar.addfile(member, io.BytesIO(content))
        return data.getvalue()


def _add_directories(tar: tarfile.TarFile, path: str, made: set[str]) -> None:
    parts = [part for part in path.split("/") if part]
    for count in range(1, len(parts) + 1):
        name = "/".join(parts[:count])
        if name not in made:
            made.add(name)
            member = tarfile.TarInfo(name)
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(member)


def read_folders(target: Path, settings: HarborSettings) -> list[HarborFolder]:
    """Return the tasks of a folder: the folder itself, or those below it, by name.

    Raises:
        AuthoringError: there are none, or one cannot run here.
    """
    if not target.is_dir():
        raise AuthoringError(f"harbor: there is no folder {target}; give a task folder, or a folder of task folders")
    paths = [target] if (target / "task.toml").exists() else sorted(file.parent for file in target.glob("*/task.toml"))
    if not paths:
        raise AuthoringError(
            f"harbor: {target} has no task.toml, and neither has a folder in it; give a task folder, or a folder of "
            "task folders"
        )
    folders, refused = [], []
    for path in paths:
        try:
            folders.append(read_folder(path.resolve(), settings))
        except Unsupported as error:
            refused.append(f"{path.name}: {error}")
    if refused and (settings.unsupported == "refuse" or not folders):
        listed = "\n".join(f"  {line}" for line in refused)
        hint = "; leave them out with unsupported=skip" if folders else ""
        raise AuthoringError(f"harbor: {target} has tasks that cannot run here{hint}:\n{listed}")
    return folders


def read_folder(path: Path, settings: HarborSettings) -> HarborFolder:
    """Return the task in a folder.

    Raises:
        AuthoringError: it is no valid task.
        Unsupported: it is one, but it cannot run here.
    """
    config = _read_config(path)
    _refuse(config, path)
    folder = HarborFolder(path, path.name, config, settings)
    try:
        folder.env = resolve_variables(config.environment.env)
        folder.verifier_env = resolve_variables(config.verifier.env)
        folder.solution_env = resolve_variables(config.solution.env)
    except ValueError as error:
        raise Unsupported(str(error)) from None
    for needed in ("instruction.md", "tests/test.sh"):
        if not (path / needed).is_file():
            raise AuthoringError(f"harbor: {path} has no {needed}")
    _read_text(path / "instruction.md")
    _choose_sandbox(folder)
    return folder


def _read_text(file: Path) -> str:
    """Return a text in UTF-8, without the mark at its beginning that some editors write.

    Raises:
        AuthoringError: it cannot be read, or is in another encoding.
    """
    try:
        return file.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AuthoringError(
            f"harbor: {file} is not UTF-8 (byte {error.start}); save it in UTF-8, so that the agent reads all of it"
        ) from None
    except OSError as error:
        raise AuthoringError(f"harbor: {file} cannot be read: {error.strerror}") from None


def _read_config(path: Path) -> TaskConfig:
    file = path / "task.toml"
    try:
        return TaskConfig.model_validate(tomllib.loads(_read_text(file)))
    except tomllib.TOMLDecodeError as error:
        raise AuthoringError(f"harbor: {file} cannot be read: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise AuthoringError(f"harbor: {file}: {where}: {describe_invalid(first)}") from None


def _refuse(config: TaskConfig, path: Path) -> None:
    environment = config.environment
    asked: Sequence[tuple[object, str]] = (
        (config.steps, "it has several steps ([[steps]])"),
        (environment.os.lower() != "linux", f"it is for {environment.os}"),
        (environment.gpus or environment.tpu, "it needs an accelerator"),
        (environment.mcp_servers, "it gives the agent MCP servers ([environment].mcp_servers)"),
        (environment.healthcheck, "it has a health check ([environment].healthcheck)"),
        (config.services, f"it has further containers: {', '.join(sorted(config.services))}"),
        (any((path / "environment" / name).exists() for name in _COMPOSE), "it has further containers (compose)"),
        (config.verifier.environment, "its verifier has an image of its own ([verifier.environment])"),
        (config.verifier_mode == "separate" and (path / "tests" / "Dockerfile").exists(),
         "its verifier has an image of its own (tests/Dockerfile)"),
        (environment.docker_image and not (path / "environment/Dockerfile").exists()
         and any((path / "environment").glob("*")), "its image has no Dockerfile, but further files"),
        ((path / "trajectory.json").exists(), "it continues a conversation (trajectory.json)"),
        (any(path.rglob(".harborignore")), "it has a file .harborignore"),
    )  # fmt: skip
    for wanted, why in asked:
        if wanted:
            raise Unsupported(why)


def _choose_sandbox(folder: HarborFolder) -> None:
    settings, environment = folder.settings, folder.path / "environment"
    image = folder.config.environment.docker_image
    plain = PlainImage(workdir="/app")
    why = f"the image {image}" if image is not None else None
    if image is None and (environment / "Dockerfile").exists():
        try:
            plain = read_dockerfile(environment)
        except NeedsEngine as error:
            why = str(error)
    if settings.sandbox == "bubblewrap" and why is not None:
        raise Unsupported(f"bubblewrap shows this machine's system, and the task needs {why}; use sandbox=docker")
    if settings.sandbox == "bubblewrap" or settings.sandbox == "auto" and why is None:
        folder.image = plain
        folder.env = {**plain.env, **folder.env}
        return
    if image is None and not (environment / "Dockerfile").exists():
        raise Unsupported(f"{settings.sandbox} needs an image, and the task has none; use sandbox=bubblewrap")
    folder.build = _build_folder(folder)


def _build_folder(folder: HarborFolder) -> str:
    """Return a folder to build an image from: the task's, with its directories moved and links in their places."""
    place = Path(tempfile.mkdtemp(prefix="ludus-harbor-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    image = folder.config.environment.docker_image
    if image is not None:
        text = f"FROM {image}\n".encode()
    else:
        shutil.copytree(folder.path / "environment", place, symlinks=True, dirs_exist_ok=True)
        text = (place / "Dockerfile").read_bytes()
    moved = " ".join(folder.directories)
    added = (
        f"\nUSER 0\nRUN mkdir {SEED} && env > {SEED}/.env && pwd > {SEED}/.workdir && cd / && "
        f"for d in {moved}; do if [ -d $d ]; then cp -a $d {SEED}$d && rm -rf $d; else mkdir {SEED}$d; fi; "
        f"ln -s /box$d $d; done; chmod -R a+rX {SEED}\nWORKDIR /\n"
    )
    (place / "Dockerfile").write_bytes(text + added.encode())
    return str(place)


def files_of(folder: Path) -> Iterable[tuple[str, bytes, bool]]:
    """Yield the files of a folder: path, content, and whether it is executable. Links must stay in the folder.

    Raises:
        AuthoringError: a link leads out of the folder.
    """
    root = folder.resolve()
    for path in sorted(folder.rglob("*")):
        if not path.resolve().is_relative_to(root):
            raise AuthoringError(f"harbor: {path} leads out of its folder; copy the file instead")
        if path.is_file():
            executable = bool(path.stat().st_mode & stat.S_IXUSR)
            yield path.relative_to(folder).as_posix(), path.read_bytes(), executable
