"""The checker of types that runs in each run of CI finds errors of every kind that its settings must let it find."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
HEAD = """from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, NotRequired, ParamSpec, Protocol, Self, TypedDict, cast

from pydantic import BaseModel

P = ParamSpec("P")


class Row(TypedDict):
    size: int
    name: NotRequired[str]


class Limits(BaseModel, frozen=True, extra="forbid"):
    size: int


@dataclass(frozen=True)
class Point:
    x: int


class Sized(Protocol):
    def size(self) -> int: ...


class Base:
    def size(self) -> int:
        return 1


class Color(Enum):
    RED = 1
    BLUE = 2


def mode(name: Literal["a", "b"], *, size: int | None) -> int | None:
    return size


async def score() -> float:
    return 1.0


async def numbers() -> AsyncIterator[int]:
    yield 1


def shown(function: Callable[P, int]) -> Callable[P, str]:
    def inner(*args: P.args, **kwargs: P.kwargs) -> str:
        return str(function(*args, **kwargs))

    return inner


"""
PLANTED = {
    "argument": ("bad-argument-type", 'Point("x")'),
    "literal": ("bad-argument-type", 'mode("c", size=1)'),
    "keyword": ("missing-argument", 'mode("a")'),
    "unknown keyword": ("unexpected-keyword", 'mode("a", size=1, sise=2)'),
    "attribute": ("missing-attribute", "Point(1).y"),
    "attribute of None": ("missing-attribute", 'mode("a", size=1).real'),
    "operand": ("unsupported-operation", 'mode("a", size=1) + 1'),
    "field of a model": ("bad-argument-type", "Limits(size=[])"),
    "missing field of a model": ("missing-argument", "Limits()"),
    "unknown field of a model": ("unexpected-keyword", "Limits(size=1, sise=1)"),
    "frozen": ("read-only", "def set_size(limits: Limits) -> None:\n    limits.size = 3"),
    "key": ("bad-typed-dict-key", 'def of(row: Row) -> object:\n    return row["sise"]'),
    "key that may be absent": ("not-required-key-access", 'def of(row: Row) -> str:\n    return row["name"]'),
    "return": ("bad-return", "def of() -> int:\n    return str(1)"),
    "missing return": ("bad-return", "def of(flag: bool) -> int:\n    if flag:\n        return 1"),
    "missing await": ("bad-return", "async def of() -> float:\n    return score()"),
    "unused coroutine": ("unused-coroutine", "async def of() -> None:\n    score()"),
    "async iterator": ("not-iterable", "async def of() -> list[int]:\n    return [one for one in numbers()]"),
    "override": ("bad-override", 'class Sub(Base):\n    def size(self) -> str:\n        return ""'),
    "protocol": ("bad-return", "def of() -> Sized:\n    return Point(1)"),
    "method of self": ("missing-attribute", "class Other:\n    def of(self) -> int:\n        return self.size()"),
    "self": ("bad-return", "class Other:\n    def of(self) -> Self:\n        return Other()"),
    "generic": ("bad-assignment", "ints = [1]\nfloats: list[float] = ints"),
    "decorated": ("bad-argument-type", "@shown\ndef of(text: str) -> int:\n    return len(text)\n\n\nof(3)"),
    "unbound": ("unbound-name", "def of(flag: bool) -> int:\n    if flag:\n        size = 1\n    return size"),
    "parameter without a type": ("implicit-any-parameter", "def of(size) -> int:\n    return 1"),
    "no return type": ("unannotated-return", "def of(size: int):\n    return size"),
    "bare generic": ("implicit-any-type-argument", "def of(sizes: list) -> int:\n    return len(sizes)"),
    "returned Any": ("no-any-return-explicit", 'def of() -> int:\n    return json.loads("1")'),
    "untyped decorator": ("untyped-function-decorator", "of: Any = shown\n\n\n@of\ndef size() -> int:\n    return 1"),
    "cast": ("redundant-cast", "def of(size: int) -> int:\n    return cast(int, size)"),
    "equality": ("incompatible-comparison", 'def of(size: int) -> bool:\n    return size == "x"'),
    "identity": ("unnecessary-comparison", "def of(size: Literal[1]) -> bool:\n    return size is None"),
    "match": (
        "non-exhaustive-match",
        "def of(color: Color) -> int:\n    match color:\n        case Color.RED:\n            return 1\n    return 2",
    ),
    "name that is not public": ("implicit-reexport", "from ludus.protocol.rewards import WireModel"),
    "missing module": ("missing-import", "import ludus.protocol.rewardz"),
    "except": (
        "unreachable-except-clause",
        "try:\n    asyncio\nexcept OSError:\n    pass\nexcept FileNotFoundError:\n    pass",
    ),
}


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


@pytest.fixture(scope="module")
def found(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The kinds of errors in each file of a package that has one error in each file, with the project's settings."""
    folder = tmp_path_factory.mktemp("planted")
    (folder / "clean.py").write_text(HEAD)
    for name, (_, code) in PLANTED.items():
        (folder / f"planted_{name.replace(' ', '_')}.py").write_text(f"{HEAD}{code}\n")
    own = settings["tool"]["pyrefly"]
    errors = "".join(f'{kind} = "{severity}"\n' for kind, severity in own["errors"].items())
    (folder / "pyrefly.toml").write_text(
        f'project-includes = ["*.py"]\nsearch-path = ["{ROOT}/protocol"]\n'
        f'python-interpreter-path = "{sys.executable}"\npython-version = "{own["python-version"]}"\n[errors]\n{errors}'
    )
    done = subprocess.run(
        [sys.executable, "-m", "pyrefly", "check", "--output-format", "min-text", "--min-severity", "error"],
        cwd=folder, capture_output=True, text=True,
    )  # fmt: skip
    kinds: dict[str, set[str]] = {}
    for file, kind in re.findall(r"^\s*ERROR (?:planted_)?(\w+)\.py:.* \[([\w-]+)\]$", done.stdout, re.MULTILINE):
        kinds.setdefault(file.replace("_", " "), set()).add(kind)
    assert done.returncode == 1, done.stdout + done.stderr
    return kinds


def test_each_planted_error_is_found_and_nothing_else(found: dict[str, set[str]]) -> None:
    assert found == {name: {kind} for name, (kind, _) in PLANTED.items()}


def test_all_checkers_of_types_read_the_same_files(settings: dict[str, Any]) -> None:
    mypy, pyright, pyrefly = (settings["tool"][name] for name in ("mypy", "pyright", "pyrefly"))
    assert mypy["files"] == pyright["include"] == pyrefly["project-includes"]
    assert mypy["mypy_path"] == pyright["extraPaths"] == pyrefly["search-path"]
    assert pyright["exclude"] == pyrefly["project-excludes"]
