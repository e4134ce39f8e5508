"""Write an environment as a package for Gymnasium or as a folder for OpenEnv.

Both are thin: the code is in `ludus.integrations.gymnasium` and `ludus.integrations.openenv`. They hold the address of
a server, or what to serve, and never a token.
"""

from __future__ import annotations

import json
import keyword
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, Final, Literal

from ludus.client import EnvironmentInfo
from ludus.common.distribution import DISTRIBUTION, installed_version
from ludus.integrations.finite_actions import finite_arguments
from ludus.protocol.errors import InvalidParams, Unsupported
from ludus.protocol.text import printable

PackageForm = Literal["gymnasium", "openenv"]
"""The forms of whole environments."""

_RESERVED: Final = frozenset({"client", "gymnasium", "ludus", "models", "openenv", "server"})
"""Names that would hide a module that exported code imports, apart from those of Python."""

_PLACES: Final[Mapping[PackageForm, Mapping[str, str]]] = {
    "gymnasium": {"pyproject.toml": "pyproject", "README.md": "readme", "$module/__init__.py": "init"},
    "openenv": {
        "openenv.yaml": "manifest",
        "pyproject.toml": "pyproject",
        "README.md": "readme",
        "__init__.py": "init",
        "models.py": "models",
        "client.py": "client",
        "server/__init__.py": "server",
        "server/app.py": "app",
        "server/Dockerfile": "dockerfile",
        ".dockerignore": "dockerignore",
        "wheels/README.md": "wheels",
    },
}
"""The templates, by the paths of the files that they become."""


@dataclass(frozen=True, slots=True)
class ExportedEnvironment:
    """What is exported.

    Raises:
        InvalidParams: the name cannot name a Python package, or the action does not fit the tools.
        Unsupported: the environment has neither tools nor graded answers.
    """

    form: PackageForm
    info: EnvironmentInfo
    target: str
    """The address of a server; for Gymnasium also what to serve."""
    split: str
    """The split of an episode that names none."""
    name: str | None = None
    """The name of the package; the environment's own when None."""
    action: str | None = None
    """For Gymnasium, a declaration of a finite action space, see `finite_arguments`."""

    def __post_init__(self) -> None:
        if not self.info.tools and not self.info.gradable:
            raise Unsupported(
                f"the environment {self.info.name!r} lists no tools and grades no answers, so an action could do "
                f"nothing; it cannot be exported as {self.form}"
            )
        name = self.package_name
        if not re.fullmatch(r"[a-z_][a-z0-9_]*", name) or _hides(self.module):
            plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "environment"
            near = f"env_{plain}" if plain[0].isdigit() or _hides(self._module_of(plain)) else plain
            raise InvalidParams(f"{name!r} cannot name a Python package; say --name {near}")
        if self.action is not None:
            finite_arguments(self.info.tools, self.action)

    @property
    def package_name(self) -> str:
        """The name of the package."""
        return self.info.name if self.name is None else self.name

    @property
    def module(self) -> str:
        """The name under which the package is imported."""
        return self._module_of(self.package_name)

    def _module_of(self, name: str) -> str:
        return f"ludus_{name}" if self.form == "gymnasium" else name

    def files(self) -> dict[str, str]:
        """Return the texts of the files, by their paths."""
        words = self._words()
        templates = files("ludus.integrations") / "templates" / self.form
        found = {}
        for place, template in _PLACES[self.form].items():
            text = "" if template == "server" else (templates / f"{template}.txt").read_text(encoding="utf-8")
            found[Template(place).substitute(words)] = Template(text).substitute(words)
        return found

    def _words(self) -> dict[str, str]:
        name, info = self.package_name, self.info
        about = printable(" ".join(info.description.split())) or f"The environment {info.name}."
        env_id = f"ludus/{name}-v0"
        return {
            "name": name,
            "module": self.module,
            "distribution": f"{'ludus' if self.form == 'gymnasium' else 'openenv'}-{name.replace('_', '-').strip('-')}",
            "cls": "".join(part.capitalize() for part in name.split("_") if part),
            "title": info.name,
            "description": about,
            "docstring": _literal(f"{info.name}: {about}"),
            "toml_description": _literal(about[:500]),
            "requirement": DISTRIBUTION if "://" in self.target else f"{DISTRIBUTION}[server]",
            "ludus_version": installed_version(),
            "env_id": env_id,
            "py_env_id": _literal(env_id),
            "py_action": "None" if self.action is None else _literal(self.action),
            "nondeterministic": str(not info.seedable),
            "played": _played(self.target, info.name),
            "actions": self._actions(),
            "environment": info.name,
            "url": self.target,
            "py_url": _literal(self.target),
            "py_environment": _literal(info.name),
            "py_split": _literal(self.split),
            "py_description": _literal(about),
            "py_version": _literal(info.version),
            "example": f"tool={info.tools[0].name!r}, arguments={{…}}" if info.tools else "answer='…'",
            "reward_range": _reward_range(info),
            "task_counts": _task_counts(info),
        }

    def _actions(self) -> str:
        tools = ", ".join(f"`{tool.name}`" for tool in self.info.tools)
        answer = "the final answer, which ends the episode"
        if self.form == "openenv":
            parts = [f"An action calls a tool ({tools})"] if tools else []
            if self.info.gradable:
                parts.append(f"{'or gives' if parts else 'An action gives'} {answer}")
            return " ".join(parts) + "."
        if self.action is not None:
            return f"An action is a number, or several, for the arguments of one tool: `{self.action}`."
        if not tools:
            return f"An action is a text: {answer}."
        more = f"; the next number submits `arguments` as {answer}" if self.info.gradable else ""
        return (
            'An action is `{"tool": number, "arguments": text}`: the number of a tool from 0, and its arguments as '
            f"JSON. The tools: {tools}{more}."
        )


def write_package(exported: ExportedEnvironment, out: Path, *, overwrite: bool = False) -> None:
    """Write a folder, which appears as a whole or not at all.

    Raises:
        InvalidParams: the folder exists and may not be replaced, or cannot be written.
    """
    if out.exists():
        if not out.is_dir() or (any(out.iterdir()) and not overwrite):
            raise InvalidParams(f"{out} exists; say --overwrite or another --out")
        if any(out.iterdir()) and not _was_exported(out):
            raise InvalidParams(f"{out} was not written by ludus export, so it is not overwritten; say another --out")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".ludus-export-", dir=out.parent) as part:
            new = Path(part, "new")
            for place, text in exported.files().items():
                path = new / place
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            if out.exists():
                shutil.move(out, Path(part, "old"))
            new.rename(out)
    except OSError as error:
        raise InvalidParams(f"cannot write {out}: {error.strerror}") from None


def _was_exported(folder: Path) -> bool:
    try:
        table: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return "ludus-export" in table.get("tool", {})


def _hides(name: str) -> bool:
    return keyword.iskeyword(name) or name in _RESERVED or name in sys.stdlib_module_names


def _literal(text: str) -> str:
    """Return a text as a literal in double quotes, for Python and TOML."""
    return json.dumps(text, ensure_ascii=False)


def _played(target: str, environment: str) -> str:
    if "://" in target:
        return f"Episodes of `{environment}` are played on the server at {target}."
    return f"While the environment is open, a server of its own runs for `{target}` on this machine."


def _reward_range(info: EnvironmentInfo) -> str:
    if info.reward_range is None or info.reward_range[0] >= info.reward_range[1]:
        return "    # The environment declares no range of rewards; say it here if OpenEnv's default is wrong.\n"
    low, high = info.reward_range
    return f"    range: [{low!r}, {high!r}]\n"


def _task_counts(info: EnvironmentInfo) -> str:
    lines = [f"      {json.dumps(split.name)}: {split.count}" for split in info.splits if split.count is not None]
    return "\n".join(["    declared_task_count:", *lines, ""]) if lines else ""
