"""What a target of `mcp:` names: a command, a URL, several of them, or a file that lists servers."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from ludus.formats.mcp.settings import McpSettings
from ludus.protocol.errors import AuthoringError
from ludus.protocol.messages import describe_invalid

EPISODE_DIRECTORY: Final = "{dir}"
"""In arguments and variables: the directory that each server has for itself."""

_NAMED: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9_-]{0,30})=(.+)", re.DOTALL)
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_FILE: Final = re.compile(r"\S+\.(?:json|toml)")


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """One MCP server."""

    name: str = ""
    """Its name among several servers; empty if it is the only one."""
    command: tuple[str, ...] = ()
    """The program and its arguments; of an image, only arguments."""
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str = ""
    """Its address, if it is reached by HTTP."""
    headers: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None

    def __str__(self) -> str:
        what = self.url or self.image or shlex.join(self.command)[:200]
        return f"the MCP server {f'{self.name} ({what})' if self.name else repr(what)}"


class _Listed(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = {}


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    mcpServers: dict[str, _Listed]


def read_target(target: str, settings: McpSettings) -> tuple[ServerSpec, ...]:
    """Return the servers that a target names.

    Raises:
        AuthoringError: it names none, or a program or a file does not exist; the message says which.
    """
    target = target.strip()
    if _FILE.fullmatch(target):
        found = _read_file(Path(target))
    elif " ++ " in target:
        found = tuple(_named(part) for part in target.split(" ++ "))
    else:
        found = (_plain(target),)
    names = [one.name for one in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise AuthoringError(f"mcp: two servers are called {twice[0]!r}; give each a name of its own")
    for one in found:
        if one.command and not settings.is_isolated:
            _find_program(one, settings)
    return found


def _named(part: str) -> ServerSpec:
    found = _NAMED.fullmatch(part)
    if found is None:
        raise AuthoringError(
            f"mcp: {part.strip()!r} has no name; compose servers as `files=COMMAND ++ notes=COMMAND`, because the "
            "names become prefixes of their tools"
        )
    return _plain(found[2].strip(), found[1])


def _plain(target: str, name: str = "") -> ServerSpec:
    if target.startswith(("http://", "https://")):
        if len(target.split()) != 1:
            raise AuthoringError(f"mcp: {target!r} is no URL: it has spaces")
        return ServerSpec(name, url=target)
    try:
        command = tuple(shlex.split(target))
    except ValueError as error:
        raise AuthoringError(f"mcp: the command {target!r} cannot be read: {error}") from None
    if not command:
        raise AuthoringError('mcp: there is no server; write mcp:"COMMAND ARGUMENTS" or mcp:https://HOST/mcp')
    return ServerSpec(name, command)


def _read_file(path: Path) -> tuple[ServerSpec, ...]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise AuthoringError(f"mcp: the file of servers {path} cannot be read: {error}") from None
    try:
        value = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
        listed = _File.model_validate(value).mcpServers
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise AuthoringError(f"mcp: {path}: {place}: {describe_invalid(first)}") from None
    except (ValueError, RecursionError) as error:
        raise AuthoringError(f"mcp: {path} is no {path.suffix[1:].upper()}: {error}") from None
    if not listed:
        raise AuthoringError(f"mcp: {path} lists no server in `mcpServers`")
    several = len(listed) > 1
    return tuple(_of_file(path, name, one, several) for name, one in listed.items())


def _of_file(path: Path, name: str, one: _Listed, several: bool) -> ServerSpec:
    if (one.command is None) == (one.url is None):
        raise AuthoringError(f"mcp: {path}: the server {name!r} needs either `command` or `url`")
    what = f"{path}: the server {name!r}"
    env, headers = _expanded(one.env, what), _expanded(one.headers, what)
    command = () if one.command is None else (one.command, *one.args)
    return ServerSpec(name if several else "", command, env, one.cwd, one.url or "", headers)


def _expanded(values: Mapping[str, str], what: str) -> dict[str, str]:
    """Replace `${NAME}` by variables of this process, so that no file need hold secrets."""

    def value_of(found: re.Match[str]) -> str:
        if found[1] not in os.environ:
            raise AuthoringError(f"mcp: {what} needs the environment variable {found[1]}; set it")
        return os.environ[found[1]]

    return {name: _VARIABLE.sub(value_of, value) for name, value in values.items()}


def _find_program(spec: ServerSpec, settings: McpSettings) -> None:
    program = spec.command[0]
    variables: dict[str, Any] = {**(settings.env or {}), **spec.env}
    place = Path(spec.cwd or settings.cwd or ".")
    if not place.is_dir():
        raise AuthoringError(f"mcp: {spec} should start in {place}, which is no directory")
    if "/" in program:
        if not os.access(place / program, os.X_OK):
            raise AuthoringError(f"mcp: {spec} cannot be started: {program} is no program; check its path")
    elif shutil.which(program, path=variables.get("PATH")) is None:
        raise AuthoringError(
            f"mcp: {spec} cannot be started: there is no program {program!r}; install it, or give its path"
        )
