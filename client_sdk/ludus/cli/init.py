"""`ludus init`: write the files of a new environment."""

from __future__ import annotations

import keyword
import re
import shlex
import sys
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated, Final

import typer

from ludus.common.distribution import install_source, installed_version
from ludus.common.hub import OWNER_PATTERN

__all__ = ["leftovers"]


COMMANDS: Final = {"init": "Write the files of a new environment."}

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,60}")

_TAKEN: Final = frozenset(
    {
        "Answer", "Call", "Component", "Environment", "Generator", "Private", "RandomPolicy", "Result", "Scramble",
        "Split", "StepResult", "Task", "ToolError",
    }
)  # fmt: skip
"""Class names that the templates already use."""


SHOWN_TEXTS: Final = {
    "pyproject": ('description = "$title, an environment for Ludus."',),
    "ludus": ('tags = ["words"]',),
    "readme": (
        "An environment for Ludus (the distribution `ludus-rl`).",
        "| `wheels/` | wheels for the image that no package index has |",
    ),
    "environment": (
        '"""$title: an environment to start from. Replace the task, the tools and the rewards with your own."""',
        '"""Find the word whose letters were scrambled."""',
    ),
}
"""Lines of the templates that a hub shows and that say nothing about the author's environment, by template."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("init", help=COMMANDS["init"])(init)


def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the environment, or a path that ends in it.")],
    owner: Annotated[
        str | None, typer.Option(help="Your name on a hub; adds what `ludus publish` needs. `local` on your own hub.")
    ] = None,
) -> None:
    """Write the files of a new environment: a class, tests, a Dockerfile and a README, all of them working."""
    folder = Path(name)
    written = scaffold(folder, owner)
    for path in written:
        typer.echo(f"  {path}")
    words = _words(folder.name)
    typer.echo(
        f'Next:\n  cd {folder}\n  pip install -e ".[dev]"    # pytest among others\n  python -m pytest\n'
        f"  ludus play {words['module']}.py:{words['cls']}\n"
        f"  ludus run {words['module']}.py:{words['cls']} --policy oracle"
    )
    if source := install_source():
        typer.echo(f"Before `docker build`:\n  pip wheel --no-deps --wheel-dir wheels {shlex.quote(source)}")


def scaffold(folder: Path, owner: str | None = None) -> list[Path]:
    """Create `folder`, write the files into it, and return their paths.

    Args:
        folder: the folder, whose name is that of the environment.
        owner: the publisher's name on a hub; None for a project that no hub needs to know.

    Raises:
        BadParameter: the folder's name cannot name an environment, the owner's name is not valid, or the folder is
            not empty.
    """
    words = _words(folder.name)
    if owner is not None:
        words |= _hub_words(owner, words["distribution"])
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise typer.BadParameter(f"{folder} exists and is not empty; choose another name")
    targets = {
        f"{words['module']}.py": "environment",
        f"tests/test_{words['module']}.py": "test",
        "pyproject.toml": "pyproject",
        "README.md": "readme",
        "Dockerfile": "dockerfile",
        "wheels/README.md": "wheels",
        ".gitignore": "gitignore",
    }
    if owner is not None:
        targets["ludus.toml"] = "ludus"
    templates = files("ludus.cli") / "templates"
    written: list[Path] = []
    for target, template in targets.items():
        path = folder / target
        path.parent.mkdir(parents=True, exist_ok=True)
        text = (templates / f"{template}.txt").read_text(encoding="utf-8")
        path.write_text(Template(text).substitute(words), encoding="utf-8")
        written.append(path)
    return written


def leftovers(folder: Path, card: str = "README.md") -> list[str]:
    """Return a line for each text of the templates that a hub would show of a package.

    Args:
        folder: the package.
        card: the name of the file that its page shows.
    """
    code = sorted({*folder.glob("*.py"), *folder.glob("*/*.py"), *folder.glob("src/*/*.py")})
    paths = {
        "pyproject": [folder / "pyproject.toml"], "ludus": [folder / "ludus.toml"], "readme": [folder / card],
        "environment": code,
    }  # fmt: skip
    lines: list[str] = []
    for template, texts in SHOWN_TEXTS.items():
        forms = [re.compile(re.sub(r"\\\$[a-z]+", ".+", re.escape(text))) for text in texts]
        for path in paths[template]:
            if not path.is_file():
                continue
            for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
                if any(form.fullmatch(line.strip()) for form in forms):
                    lines.append(f"{path}:{number}: the hub will show what `ludus init` wrote here: {line.strip()}")
    return lines


def class_name(name: str) -> tuple[str, str]:
    """Return the names of the module and the class of an environment.

    Raises:
        BadParameter: the name cannot name an environment.
    """
    words = _words(name)
    return words["module"], words["cls"]


def _hub_words(owner: str, name: str) -> dict[str, str]:
    """Return the forms of the name on a hub.

    Raises:
        BadParameter: the owner's name is not valid.
    """
    if not re.fullmatch(OWNER_PATTERN, owner):
        raise typer.BadParameter(
            f"{owner!r} cannot be an owner's name: it takes 2 to 39 lower-case letters and digits, and begins with a "
            "letter",
            param_hint="--owner",
        )
    return {"package": f"{owner}/{name}", "distribution": f"{owner}-{name}"}


def _suggestion(name: str) -> str:
    """Return a hint with a similar valid name, such as `; how about 'env-2048'?`; an empty string if there is none."""
    plain = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_")[:50]
    near = plain if plain[:1].isalpha() else f"env-{plain}"
    return f"; how about {near!r}?" if plain and _NAME.fullmatch(near) else ""


def _words(name: str) -> dict[str, str]:
    """Return all forms of the name that the templates need.

    Raises:
        BadParameter: the name cannot name an environment.
    """
    if not _NAME.fullmatch(name):
        raise typer.BadParameter(
            f"{name!r} cannot name an environment: a name begins with a lower-case letter, and goes on with at most 60 "
            f"lower-case letters, digits, '_' and '-'{_suggestion(name)}"
        )
    module = name.replace("-", "_")
    if keyword.iskeyword(module) or module in sys.stdlib_module_names or module in {"ludus", "tests"}:
        raise typer.BadParameter(
            f"a module named {module!r} would hide one that Python or Ludus needs; choose another name"
        )
    parts = [part for part in module.split("_") if part]
    cls = "".join(part.capitalize() for part in parts)
    return {
        "name": name,
        "module": module,
        "cls": f"{cls}Environment" if cls in _TAKEN else cls,
        "title": " ".join(parts).capitalize(),
        "distribution": name.replace("_", "-").strip("-"),
        "version": installed_version(),
    }
