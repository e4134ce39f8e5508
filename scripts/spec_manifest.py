"""The requirement manifest: which sentence of the spec demands what, and which tests and checks prove it.

A requirement is a list item of a page of `spec/` that begins with its id: `- **[STEP-3]** A server MUST …`.
A test claims it with `@pytest.mark.requirement("STEP-3")`. A conformance check names it too, and proves it if
`tests/conformance` plants a fault for the check: our server passes it, and a server with the fault does not.
`scripts/generate_spec.py` joins the three in `spec/requirements.toml`; of that file only the `deferred` lines are
edited by hand.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ludus.conformance import CHECKS
from ludus.protocol.modules import Module

ROOT: Final = Path(__file__).resolve().parent.parent
SPEC_DIR: Final = ROOT / "spec"
TEST_DIR: Final = ROOT / "tests"
FAULT_DIR: Final = TEST_DIR / "conformance"
MANIFEST: Final = SPEC_DIR / "requirements.toml"

KEYWORD: Final = re.compile(r"\b(MUST NOT|MUST|SHALL NOT|SHALL|REQUIRED|SHOULD NOT|SHOULD|RECOMMENDED|MAY|OPTIONAL)\b")
"""The words of RFC 2119; outside requirements they may appear only quoted as code."""

NEGATED: Final = re.compile(
    r"(?:^|[,;:.] (?:and |but |or )?)(?:no|none|neither|nothing|nobody|not)\b[^,;:.]*\b(?:MUST|SHOULD)\b", re.IGNORECASE
)
"""A subject that is denied: "No input MUST stop a server" only says that none is required to (RFC 2119 defines MUST
NOT for a prohibition)."""

ITEM: Final = re.compile(
    r"^- \*\*\[(?P<id>[A-Z]+-[0-9]+)\]\*\* (?P<text>.+?)(?=^- |^\s*$|^#|^```|^<!--|\Z)", re.MULTILINE | re.DOTALL
)

HEADER: Final = """\
# Which tests and which conformance checks prove which sentence of the spec.
# Written by `python scripts/generate_spec.py` from the pages of spec/, from the `requirement` markers in tests/ and from the
# checks of `ludus conform` for which tests/conformance plants a fault.
# Edit only `deferred`: the reason why this version leaves a requirement untested.
"""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One normative sentence."""

    id: str
    level: str
    """`MUST`, `SHOULD` or `MAY`: the strongest keyword in the sentence."""
    chapter: str
    """The page's path in `spec/`, such as `core/3-methods.md`."""
    sentence: str
    """With white space collapsed."""
    tests: tuple[str, ...] = ()
    """Node ids without parameters."""
    checks: tuple[str, ...] = ()
    """Conformance checks for which a fault is planted, as `wire/check`."""
    deferred: str | None = field(default=None)


def chapters() -> list[Path]:
    """The spec's pages in order: the overview, the core, the modules in the order of `Module`, the versions."""
    modules = [SPEC_DIR / module_page(module) for module in Module]
    return [SPEC_DIR / "README.md", *core_pages(), *modules, SPEC_DIR / "versioning.md"]


def core_pages() -> list[Path]:
    """The pages of the core, in order."""
    return sorted((SPEC_DIR / "core").glob("*.md"))


def module_page(module: Module) -> str:
    """The path of a module's page in `spec/`: `groupScoring` is described in `modules/group-scoring.md`."""
    return f"modules/{re.sub('([A-Z])', lambda match: '-' + match[0].lower(), module)}.md"


def count_words(pages: Iterable[Path]) -> int:
    """The number of words on some pages, in text, tables and examples; what has no letter and no digit is no word."""
    return sum(
        any(character.isalnum() for character in word)
        for page in pages
        for word in re.sub(r"<!--.*?-->", "", page.read_text("utf-8"), flags=re.DOTALL).split()
    )


def requirements_in(chapter: str, text: str) -> Iterator[Requirement]:
    """The requirements of one chapter.

    Raises:
        ValueError: a requirement without a keyword.
    """
    for match in ITEM.finditer(text):
        sentence = " ".join(match["text"].split())
        yield Requirement(match["id"], level_of(match["id"], sentence), chapter, sentence)


def level_of(identifier: str, sentence: str) -> str:
    """The strongest keyword in a sentence, without its NOT."""
    found = {word.split()[0] for word in KEYWORD.findall(without_code(sentence))}
    for level in ("MUST", "SHOULD", "MAY"):
        if level in found:
            return level
    raise ValueError(f"{identifier} has none of MUST, SHOULD and MAY: {sentence}")


def unnumbered_keywords(text: str) -> list[str]:
    """The lines that use a keyword outside a requirement."""
    rest = without_code(ITEM.sub("", text))
    return [line for line in rest.splitlines() if KEYWORD.search(line)]


def is_ambiguous(sentence: str) -> bool:
    """Return whether a sentence denies its subject and not its verb, so that it can be read in two ways."""
    return NEGATED.search(without_code(sentence)) is not None


def without_code(text: str) -> str:
    """The text without code spans, code blocks and comments."""
    return re.sub(r"```.*?```|`[^`\n]*`|<!--.*?-->", "", text, flags=re.DOTALL)


def spec_requirements() -> dict[str, Requirement]:
    """Every requirement of the spec by id, in the order of the text.

    Raises:
        ValueError: an id is used twice.
    """
    found: dict[str, Requirement] = {}
    for path in chapters():
        for requirement in requirements_in(path.relative_to(SPEC_DIR).as_posix(), path.read_text("utf-8")):
            if requirement.id in found:
                raise ValueError(
                    f"{requirement.id} is in {found[requirement.id].chapter} and again in {requirement.chapter}"
                )
            found[requirement.id] = requirement
    return found


def marked_tests(root: Path = TEST_DIR) -> dict[str, tuple[str, ...]]:
    """The node ids (without parameters) that claim each requirement, by requirement."""
    found: dict[str, list[str]] = {}
    for path in sorted(root.rglob("test_*.py")):
        module = path.relative_to(root.parent).as_posix()
        for node_id, identifier in _claims(ast.parse(path.read_text("utf-8")).body, module):
            claims = found.setdefault(identifier, [])
            if node_id not in claims:
                claims.append(node_id)
    return {identifier: tuple(sorted(nodes)) for identifier, nodes in found.items()}


def _claims(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, str]]:
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _claims(node.body, f"{prefix}::{node.name}")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            for identifier in _marks(node.decorator_list):
                yield f"{prefix}::{node.name}", identifier


def _marks(decorators: list[ast.expr]) -> Iterator[str]:
    for decorator in decorators:
        for node in ast.walk(decorator):
            match node:
                case ast.Call(func=ast.Attribute(attr="requirement", value=ast.Attribute(attr="mark")), args=args):
                    for argument in args:
                        yield ast.literal_eval(argument)


def faulted_checks(root: Path = FAULT_DIR) -> frozenset[str]:
    """Return the names (`wire/check`) in `@faults.caught_by(…)`: the checks for which a fault is planted."""
    calls = (
        node
        for path in sorted(root.glob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "caught_by"
    )
    return frozenset(ast.literal_eval(argument) for call in calls for argument in call.args)


def proving_checks() -> dict[str, tuple[str, ...]]:
    """Return the conformance checks that prove each requirement: those for which a fault is planted on some wire."""
    faulted = faulted_checks()
    found: dict[str, list[str]] = {}
    for wire, checks in CHECKS.items():
        for check in checks:
            if (name := f"{wire}/{check.name}") in faulted:
                for identifier in check.requirements:
                    found.setdefault(identifier, []).append(name)
    return {identifier: tuple(sorted(names)) for identifier, names in found.items()}


def load_manifest() -> dict[str, Requirement]:
    """The manifest as it is on disk; empty where there is none."""
    if not MANIFEST.exists():
        return {}
    rows: Mapping[str, Any] = tomllib.loads(MANIFEST.read_text("utf-8"))
    return {
        identifier: Requirement(
            identifier,
            row["level"],
            row["chapter"],
            row["sentence"],
            tuple(row["tests"]),
            tuple(row.get("checks", ())),
            row.get("deferred"),
        )  # fmt: skip
        for identifier, row in rows.items()
    }


def wanted_manifest() -> dict[str, Requirement]:
    """The manifest as text and tests say it should be, with the `deferred` lines of the one on disk."""
    tests, checks, before = marked_tests(), proving_checks(), load_manifest()
    return {
        identifier: Requirement(
            identifier,
            requirement.level,
            requirement.chapter,
            requirement.sentence,
            tests.get(identifier, ()),
            checks.get(identifier, ()),
            before[identifier].deferred if identifier in before else None,
        )
        for identifier, requirement in spec_requirements().items()
    }


def manifest_text(manifest: Mapping[str, Requirement]) -> str:
    """The manifest as TOML."""
    parts = [HEADER]
    for requirement in manifest.values():
        lines = [
            f"[{requirement.id}]",
            f"chapter = {_quoted(requirement.chapter)}",
            f"level = {_quoted(requirement.level)}",
            f"sentence = {_quoted(requirement.sentence)}",
        ]
        if requirement.tests:
            lines += ["tests = [", *(f"    {_quoted(test)}," for test in requirement.tests), "]"]
        else:
            lines.append("tests = []")
        if requirement.checks:
            lines += ["checks = [", *(f"    {_quoted(check)}," for check in requirement.checks), "]"]
        if requirement.deferred is not None:
            lines.append(f"deferred = {_quoted(requirement.deferred)}")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def problems(manifest: Mapping[str, Requirement]) -> list[str]:
    """What is wrong between text, manifest and tests, one sentence each."""
    spec, tests, checks = spec_requirements(), marked_tests(), proving_checks()
    found = [f"{i}: in the text, not in the manifest" for i in spec if i not in manifest]
    found += [f"{i}: in the manifest, not in the text" for i in manifest if i not in spec]
    found += [f"{i}: claimed by {tests[i][0]}, not in the text" for i in tests if i not in spec]
    found += [f"{i}: claimed by the check {checks[i][0]}, not in the text" for i in checks if i not in spec]
    for identifier in (i for i in manifest if i in spec):
        row, sentence = manifest[identifier], spec[identifier]
        if (row.sentence, row.level, row.chapter) != (sentence.sentence, sentence.level, sentence.chapter):
            found.append(f"{identifier}: the manifest's sentence, level or chapter differs from the text")
        if row.tests != tests.get(identifier, ()):
            found.append(f"{identifier}: the manifest's tests differ from the markers in tests/")
        if row.checks != checks.get(identifier, ()):
            found.append(f"{identifier}: the manifest's checks differ from the checks with a planted fault")
        if row.level == "MUST" and not row.tests and not row.checks and row.deferred is None:
            found.append(f"{identifier}: a MUST without a test, and without a check that has a planted fault")
        if row.deferred is not None and (row.tests or row.checks):
            found.append(f"{identifier}: deferred, and yet it has tests or checks")
    return found


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
