"""The blueprint of a family of repositories: sources, visible and hidden tests, and faults, with names left open.

A blueprint is a text file in `templates`, so that it reads as what it makes. A line that begins with `===` begins a
section, one that begins with `---` a part of it:

    === about           what the repositories are, in a line
    === domain          words for the names, one set: item=crate place=dock
    === numbers         ranges for the constants: limit=3..9
    === readme          README.md
    === file PATH       a module of the package
    === test PATH       a module of the visible tests, which ends with a class of tests
    === check NAME      a hidden test; see `inside.run_check`
    === fault NAME KIND the title of a report; KIND is `bug` or `feature`

The parts of a fault are `report`, what a user writes; `hint`, where to look, which only easy tasks say; pairs of
`right PATH` and `wrong`, a piece of a module and what replaces it; `example PATH`, a method that is added to the
visible tests of an easy task and fails; `check`, a hidden test that fails with the fault; and `apart`, the names of
faults with which it does not, so that no task has both.

Names are open in all of them: `$pkg` is the package, and a word `item=crate` of a domain gives `$item`, `$items`,
`$Item`, `$Items` and `$ITEM`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from string import Template as Text
from typing import Final, Literal, NamedTuple, cast

FaultKind = Literal["bug", "feature"]
EXTRAS: Final = "extras"
"""The blueprint of modules that other repositories get in addition."""
_ARTICLE: Final = re.compile(r"\b([Aa])(\s+\$\{?(\w+))")


class Edit(NamedTuple):
    """A piece of a module, and the piece that replaces it in a faulty repository."""

    path: str
    right: str
    wrong: str


@dataclass(slots=True)
class Fault:
    """A fault, or a feature that is left out.

    Attributes:
        name: its name, which may say what is wrong, so no policy sees it.
        kind: whether something is wrong or missing.
        title: the title of the report.
        report: what a user writes.
        hint: where to look.
        edits: how a right repository becomes faulty.
        examples: methods to add to the visible tests, by the path of the module.
        check: the hidden test that fails with it.
        apart: faults that hide this one, so that no task has both.
        derived: whether it is made from the sources (`mutations.py`); then title, report, example and hidden tests
            follow from what it does.
    """

    name: str
    kind: FaultKind
    title: str
    report: str = ""
    hint: str = ""
    edits: list[Edit] = field(default_factory=list)
    examples: dict[str, str] = field(default_factory=dict)
    check: str = ""
    apart: tuple[str, ...] = ()
    derived: bool = False


@dataclass(slots=True)
class Blueprint:
    """A family of repositories; see the module's text."""

    name: str
    about: str = ""
    domains: list[dict[str, str]] = field(default_factory=list)
    numbers: dict[str, tuple[int, int]] = field(default_factory=dict)
    readme: str = ""
    files: dict[str, str] = field(default_factory=dict)
    tests: dict[str, str] = field(default_factory=dict)
    checks: dict[str, str] = field(default_factory=dict)
    faults: dict[str, Fault] = field(default_factory=dict)


@cache
def blueprint(name: str) -> Blueprint:
    """Return the blueprint of a name."""
    folder = resources.files("ludus.environments.swe") / "templates"
    return parse(name, (folder / f"{name}.txt").read_text("utf-8"))


@cache
def names() -> tuple[str, ...]:
    """Return the names of all blueprints, sorted."""
    folder = resources.files("ludus.environments.swe") / "templates"
    found = (one.name.removesuffix(".txt") for one in folder.iterdir() if one.name.endswith(".txt"))
    return tuple(sorted(name for name in found if name != EXTRAS))


def parse(name: str, text: str) -> Blueprint:
    """Return the blueprint that a text describes.

    Raises:
        ValueError: a section has a name that no section has.
    """
    made = Blueprint(name)
    for head, body in _pieces(text, "==="):
        kind, _, rest = head.partition(" ")
        if kind == "about":
            made.about = body.strip()
        elif kind == "domain":
            made.domains.append(dict(re.findall(r"(\w+)=(\S+)", body)))
        elif kind == "numbers":
            made.numbers = {key: (int(low), int(high)) for key, low, high in re.findall(r"(\w+)=(\d+)\.\.(\d+)", body)}
        elif kind == "readme":
            made.readme = body
        elif kind in ("file", "test", "check"):
            {"file": made.files, "test": made.tests, "check": made.checks}[kind][rest] = body
        elif kind == "fault":
            fault_name, _, fault_kind = rest.partition(" ")
            made.faults[fault_name] = _fault(fault_name, fault_kind, body)
        else:
            raise ValueError(f"blueprint {name}: unknown section {head!r}")
    return made


def _fault(name: str, kind: str, body: str) -> Fault:
    title, *_ = body.partition("\n---")
    made = Fault(name, cast(FaultKind, kind), title.strip())
    path = right = ""
    for head, text in _pieces(body, "---"):
        part, _, rest = head.partition(" ")
        if part == "report":
            made.report = text.strip()
        elif part == "hint":
            made.hint = text.strip()
        elif part == "right":
            path, right = rest, text
        elif part == "wrong":
            made.edits.append(Edit(path, right, text))
        elif part == "example":
            made.examples[rest] = text
        elif part == "check":
            made.check = text
        elif part == "apart":
            made.apart = tuple(text.split())
        else:
            raise ValueError(f"fault {name}: unknown part {head!r}")
    return made


def _pieces(text: str, mark: str) -> Iterator[tuple[str, str]]:
    """Yield the heads and bodies of the sections that a mark begins."""
    for piece in re.split(rf"(?:^|\n){mark} ", text)[1:]:
        head, _, body = piece.partition("\n")
        yield head.strip(), body.rstrip("\n") + "\n" if body.strip() else ""


def words_of(domain: Mapping[str, str]) -> dict[str, str]:
    """Return the names that the words of a domain give."""
    found: dict[str, str] = {}
    for key, word in domain.items():
        many = plural(word)
        found |= {key: word, f"{key}s": many, key.capitalize(): word.capitalize()}
        found |= {f"{key.capitalize()}s": many.capitalize(), key.upper(): word.upper()}
    return found


def plural(word: str) -> str:
    """Return the plural of an English word."""
    if word.endswith("y") and word[-2] not in "aeiou":
        return f"{word[:-1]}ies"
    if word.endswith("lf"):
        return f"{word[:-1]}ves"
    return f"{word}es" if word.endswith(("s", "x", "ch", "sh")) else f"{word}s"


def fill(text: str, words: Mapping[str, str]) -> str:
    """Return a text with its open names filled in, where `a` before a name becomes `an` as its word needs it.

    Raises:
        KeyError: a name has no word.
    """

    def article(found: re.Match[str]) -> str:
        return f"{found[1]}n{found[2]}" if words[found[3]][0] in "aeioAEIO" else found[0]

    return Text(_ARTICLE.sub(article, text)).substitute(words)
