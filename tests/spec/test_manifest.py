"""The requirement manifest holds in both directions: text to tests, and tests to text."""

from __future__ import annotations

import ast
import importlib.util
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ludus.conformance import CHECKS
from ludus.protocol.modules import Module

ROOT = Path(__file__).resolve().parents[2]


def test_every_sentence_of_the_text_is_in_the_manifest_with_the_same_words_and_vice_versa(manifest: ModuleType) -> None:
    text = {r.id: (r.sentence, r.level, r.chapter) for r in manifest.spec_requirements().values()}
    listed = {r.id: (r.sentence, r.level, r.chapter) for r in manifest.load_manifest().values()}
    assert listed == text


def test_every_must_names_a_test_or_a_check_or_the_reason_why_it_has_neither(manifest: ModuleType) -> None:
    found = [p for p in manifest.problems(manifest.load_manifest()) if "a MUST without a test" in p]
    assert not found, "\n".join(found)


def test_the_tests_named_are_those_that_carry_the_markers(manifest: ModuleType) -> None:
    found = [p for p in manifest.problems(manifest.load_manifest()) if "a MUST without a test" not in p]
    assert not found, "run `python scripts/generate_spec.py`:\n" + "\n".join(found)


def test_every_test_named_in_the_manifest_is_one_that_pytest_would_run(manifest: ModuleType) -> None:
    for requirement in manifest.load_manifest().values():
        for node in requirement.tests:
            path, *names = node.split("::")
            body: list[ast.stmt] = ast.parse((ROOT / path).read_text("utf-8")).body
            for name in names:
                found = [
                    statement
                    for statement in body
                    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                    and statement.name == name
                ]
                assert found, f"{requirement.id}: {node} does not exist"
                body = found[0].body


def test_every_check_named_in_the_manifest_has_a_planted_fault_and_names_the_requirement(manifest: ModuleType) -> None:
    known = {f"{wire}/{check.name}": check for wire, checks in CHECKS.items() for check in checks}
    planted: set[str] = set()
    for path in sorted((ROOT / "tests" / "conformance").glob("test_faults_*.py")):
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        planted |= {check for fault in loaded.faults.all for check in fault.values[0].caught}
    assert planted == manifest.faulted_checks()
    for requirement in manifest.load_manifest().values():
        for check in requirement.checks:
            assert check in planted
            assert requirement.id in known[check].requirements


def test_every_check_has_a_planted_fault_on_one_of_its_wires(manifest: ModuleType) -> None:
    faulted = {name.partition("/")[2] for name in manifest.faulted_checks()}
    assert sorted({check.name for checks in CHECKS.values() for check in checks} - faulted) == []


def test_no_keyword_stands_outside_a_requirement(manifest: ModuleType) -> None:
    stray = {path.name: manifest.unnumbered_keywords(path.read_text("utf-8")) for path in manifest.chapters()}
    assert {name: lines for name, lines in stray.items() if lines} == {}


def test_every_requirement_says_exactly_one_level_and_ends_as_a_sentence(manifest: ModuleType) -> None:
    for requirement in manifest.spec_requirements().values():
        assert requirement.level in ("MUST", "SHOULD", "MAY")
        assert requirement.sentence.endswith("."), requirement.id


def test_an_id_that_is_gone_is_named_among_the_changes(manifest: ModuleType) -> None:
    numbers: dict[str, set[int]] = {}
    for identifier in manifest.spec_requirements():
        prefix, number = identifier.split("-")
        numbers.setdefault(prefix, set()).add(int(number))
    gone = {f"{prefix}-{one}" for prefix, found in numbers.items() for one in range(1, max(found) + 1)} - {
        f"{prefix}-{one}" for prefix, found in numbers.items() for one in found
    }
    changes = (manifest.SPEC_DIR / "versioning.md").read_text("utf-8")
    assert [identifier for identifier in sorted(gone) if not re.search(rf"\b{identifier}\b", changes)] == []


def test_the_core_can_be_read_in_one_sitting(manifest: ModuleType) -> None:
    core = [one for one in manifest.spec_requirements().values() if one.chapter.startswith("core/")]
    assert sum(one.level == "MUST" for one in core) <= 90
    assert manifest.count_words(manifest.core_pages()) <= 5000


def test_every_module_has_a_page_and_every_page_of_a_module_is_one(manifest: ModuleType) -> None:
    pages = {path.relative_to(manifest.SPEC_DIR).as_posix() for path in manifest.SPEC_DIR.glob("modules/*.md")}
    assert pages == {manifest.module_page(module) for module in Module}
    demanding = {one.chapter for one in manifest.spec_requirements().values()}
    assert pages <= demanding


def test_references_between_requirements_name_existing_ones(manifest: ModuleType) -> None:
    known = manifest.spec_requirements()
    for path in manifest.chapters():
        for identifier in re.findall(r"(?<!\*)\[([A-Z]+-[0-9]+)\](?!\()", path.read_text("utf-8")):
            if path.name != "README.md":
                assert identifier in known, f"{path.name} refers to {identifier}"


def test_deferred_requirements_say_why(manifest: ModuleType) -> None:
    deferred = [r for r in manifest.load_manifest().values() if r.deferred is not None]
    assert all(len(r.deferred) > 20 for r in deferred)
    assert len(deferred) <= 5, "gaps are data, but few"


def test_a_sentence_keeps_its_words_across_line_breaks(manifest: ModuleType) -> None:
    text = "- **[X-1]** A server MUST\n  answer `MAY`.\n- **[X-2]** A client SHOULD NOT ask.\n\nNo more.\n"
    found = list(manifest.requirements_in("x.md", text))
    assert [(r.id, r.level, r.sentence) for r in found] == [
        ("X-1", "MUST", "A server MUST answer `MAY`."),
        ("X-2", "SHOULD", "A client SHOULD NOT ask."),
    ]


def test_no_requirement_denies_its_subject_where_it_should_deny_its_verb(manifest: ModuleType) -> None:
    found = [r.id for r in manifest.spec_requirements().values() if manifest.is_ambiguous(r.sentence)]
    assert found == [], "write `A server MUST NOT …` in place of `No server MUST …`"


@pytest.mark.parametrize(
    ("sentence", "ambiguous"),
    [
        ("No input over any wire MUST make a server stop.", True),
        ("It answers, and no message MUST hold a reward.", True),
        ("None of them SHOULD be sent.", True),
        ("A message MUST NOT hold a reward.", False),
        ("With neither of them, a server MUST draw the task.", False),
        ("A group that can never fit MUST be refused.", False),
    ],
)
def test_a_denied_subject_is_found(manifest: ModuleType, sentence: str, ambiguous: bool) -> None:
    assert manifest.is_ambiguous(sentence) == ambiguous


def test_a_keyword_in_prose_is_found(manifest: ModuleType) -> None:
    text = "- **[X-1]** A server MUST answer.\n\nIt `MUST` also\nthink, and SHOULD hurry.\n"
    assert manifest.unnumbered_keywords(text) == ["think, and SHOULD hurry."]


def test_markers_are_found_on_functions_methods_and_parameters(manifest: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_x.py").write_text(
        "import pytest\n"
        '@pytest.mark.requirement("X-1", "X-2")\nasync def test_a(): ...\n'
        'class TestB:\n    @pytest.mark.parametrize("v", [pytest.param(1, marks=pytest.mark.requirement("X-3"))])\n'
        "    def test_c(self, v): ...\n"
        '@pytest.mark.requirement("X-9")\ndef helper(): ...\n',
        "utf-8",
    )
    assert manifest.marked_tests(folder) == {
        "X-1": ("tests/test_x.py::test_a",),
        "X-2": ("tests/test_x.py::test_a",),
        "X-3": ("tests/test_x.py::TestB::test_c",),
    }


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda rows: rows.pop(next(iter(rows))), "in the text, not in the manifest"),
        (lambda rows: rows.update({"NOPE-1": next(iter(rows.values()))}), "in the manifest, not in the text"),
    ],
    ids=["lost", "invented"],
)
def test_a_manifest_that_differs_from_the_text_is_a_problem(
    manifest: ModuleType, change: Callable[[dict[str, Any]], object], complaint: str
) -> None:
    rows = manifest.load_manifest()
    change(rows)
    assert any(complaint in problem for problem in manifest.problems(rows))


@pytest.mark.suite("breadth")
def test_a_check_proves_a_requirement_only_while_a_fault_is_planted_for_it(
    manifest: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_checks_alone = {r.id for r in manifest.load_manifest().values() if r.level == "MUST" and not r.tests}
    assert by_checks_alone, "some requirements are proven by checks alone"
    monkeypatch.setattr(manifest, "faulted_checks", frozenset)
    unproven = {p.split(":")[0] for p in manifest.problems(manifest.wanted_manifest()) if "a MUST without a test" in p}
    deferred = {r.id for r in manifest.load_manifest().values() if r.deferred is not None}
    assert unproven == by_checks_alone - deferred


def test_the_manifest_is_toml_that_reads_back_as_written(manifest: ModuleType) -> None:
    rows = manifest.load_manifest()
    again = tomllib.loads(manifest.manifest_text(rows))
    assert {name: row["sentence"] for name, row in again.items()} == {r.id: r.sentence for r in rows.values()}
