"""A folder that is to be published: its `ludus.toml`, its wheel, its git commit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from ludus.protocol.messages import describe_invalid
from ludus.registry.types.errors import ManifestRefused, PublishFailed
from ludus.registry.types.packages import (
    DESCRIPTION_LENGTH,
    Durability,
    PackageId,
    Provenance,
    Resources,
    Tag,
    VersionText,
    WantedSecret,
)

PROJECT_FILE: Final = "ludus.toml"
"""The file that describes a package."""

BUILD_SECONDS: Final = 900.0
"""How long building the wheel may take."""

_GIT_SECONDS: Final = 30.0


class EnvironmentClaim(BaseModel):
    """What `ludus.toml` says about an environment. The code must agree with it."""

    model_config = ConfigDict(extra="forbid")

    name: str
    splits: dict[str, int | None] | None = None
    """The number of tasks of each split; -1 for an endless one."""
    tools: list[str] | None = None
    """The names of the tools."""
    reward_range: tuple[float, float] | None = None
    durability: Durability | None = None


class ProjectFile(BaseModel):
    """The content of `ludus.toml`. What the code says (splits, tools, rewards) need not be repeated here."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    id: PackageId
    """`owner/name`. The distribution in pyproject.toml must be called `owner-name`."""
    version: VersionText | None = None
    """The version; if it is there, it must be the wheel's."""
    description: Annotated[str, StringConstraints(max_length=DESCRIPTION_LENGTH)] | None = None
    """One line; by default the wheel's summary."""
    license: str | None = None
    """An SPDX expression; by default the wheel's."""
    tags: tuple[Tag, ...] = Field(default=(), max_length=20)
    private: bool = False
    """Whether only the owner, maintainers and readers may know of the package."""
    card: str = "README.md"
    """The Markdown file that the environment's page shows."""
    network: tuple[str, ...] = ()
    """The hosts that the environments connect to."""
    citation: str = ""
    resources: Resources = Resources()
    secrets: tuple[WantedSecret, ...] = ()
    environments: tuple[EnvironmentClaim, ...] = ()
    """What the code must agree with, if it is repeated here."""


def read_project(folder: Path) -> ProjectFile:
    """Return the content of a folder's `ludus.toml`.

    Raises:
        ManifestRefused: there is none, or it is not valid.
    """
    path = folder / PROJECT_FILE
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ManifestRefused(f'there is no {path}; write one with at least: id = "OWNER/NAME"') from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ManifestRefused(f"{path} is not TOML: {error}") from None
    try:
        return ProjectFile.model_validate(fields)
    except ValidationError as error:
        details: list[Any] = error.errors(include_url=False)
        place = ".".join(str(part) for part in details[0]["loc"])
        why = describe_invalid(details[0])
        if details[0]["type"] == "extra_forbidden":
            why = f"there is no such field; there are {', '.join(ProjectFile.model_fields)}"
        raise ManifestRefused(f"{path}: {place}: {why}") from None


def read_version(folder: Path, project: ProjectFile) -> str | None:
    """Return the version that a folder's files say; None if only its wheel will have one."""
    if project.version is not None:
        return project.version
    try:
        fields = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        version = fields["project"]["version"]
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError):
        return None  # the build backend says what is wrong, or finds the version elsewhere
    return version if isinstance(version, str) else None


def read_card(folder: Path, project: ProjectFile) -> str:
    """Return the card; empty if it is the default file and that does not exist.

    Raises:
        ManifestRefused: the named file cannot be read.
    """
    path = folder / project.card
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if "card" not in project.model_fields_set:
            return ""
        raise ManifestRefused(f"{folder / PROJECT_FILE} names the card {project.card}, which does not exist") from None
    except UnicodeDecodeError:
        raise ManifestRefused(f"the card {path} is not UTF-8") from None


def build_wheel(folder: Path, out: Path, *, isolated: bool = True) -> Path:
    """Build the wheel of a folder into another one, and return its path.

    Args:
        folder: the folder, with its pyproject.toml.
        out: an empty folder.
        isolated: whether the build backend is installed into an environment of its own; otherwise it must be here.

    Raises:
        PublishFailed: the build failed; the message has the end of its output.
    """
    if not (folder / "pyproject.toml").is_file():
        raise PublishFailed(f"{folder} has no pyproject.toml, so no wheel can be built of it")
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(out), str(folder)]
    command += [] if isolated else ["--no-isolation"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=BUILD_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise PublishFailed(f"the wheel of {folder} was not built within {BUILD_SECONDS:g} s") from None
    output = done.stdout.decode(errors="replace")
    if "No module named build" in output:
        raise PublishFailed("the package `build` is missing; install it with: pip install 'ludus-rl[registry]'")
    wheels = list(out.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        tail = "\n".join(output.strip().splitlines()[-12:])
        raise PublishFailed(f"the wheel of {folder} could not be built:\n{tail}")
    return wheels[0]


def provenance(folder: Path) -> Provenance:
    """Return the git commit of a folder; an empty value where there is no repository."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None or not re.fullmatch(r"[0-9a-f]{40}([0-9a-f]{24})?", commit):
        return Provenance()
    dirty = _git(folder, "status", "--porcelain", "--", ".")
    remote = _git(folder, "config", "--get", "remote.origin.url")
    return Provenance(repository=web_address(remote or ""), commit=commit, dirty=bool(dirty))


def web_address(remote: str) -> str | None:
    """Return the web address of a git remote, without credentials; None if it has none."""
    match = re.fullmatch(r"(?:ssh://)?git@([\w.-]+)[:/]([\w./-]+?)(?:\.git)?/?", remote)
    if match:
        return f"https://{match[1]}/{match[2]}"
    parts = urlsplit(remote)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}{parts.path.removesuffix('.git')}"


def _git(folder: Path, *arguments: str) -> str | None:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], stdin=subprocess.DEVNULL, capture_output=True, env=variables,
            timeout=_GIT_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else None
