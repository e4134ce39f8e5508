"""A newcomer's walk: from a fresh clone, every command of these pages runs and prints what the page shows."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from suite_selection import selected_suites
from walking import ROOT, Block, Walk, WalkError, agrees, blocks_of, fault_of, make_clone

PAGES = ["README.md", "docs/tutorial.md", "docs/train-your-own.md", "examples/README.md"]
LONG = ("docs/tutorial.md", "docs/train-your-own.md")
"""Pages whose walk takes seconds; `make test` follows the others."""
WRITTEN = [page for page in PAGES if (ROOT / page).exists()]

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of the repository, as it is here, with a virtual environment of its own."""
    clone = make_clone(tmp_path_factory.mktemp("clone"))
    # `make venv` installs this command; the clone shares the libraries of this environment, but not their commands.
    command = clone / ".venv/bin/pytest"
    command.write_text(f'#!/bin/sh\nexec "{clone}/.venv/bin/python" -m pytest "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    return clone


def test_the_clone_runs_its_own_code(clone: Path) -> None:
    script = "import ludus.server, ludus.client, ludus.trainer; print(ludus.server.__file__, ludus.trainer.__file__)"
    done = subprocess.run([clone / ".venv/bin/python", "-c", script], cwd=clone, capture_output=True, text=True)
    assert done.stdout.split() == [
        str(clone / "server/ludus/server/__init__.py"),
        str(clone / "trainer/ludus/trainer/__init__.py"),
    ], done.stderr


@pytest.mark.suite("walk", sample=True)
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.suite("walk")) if page in LONG else page for page in WRITTEN]
)
def test_a_newcomer_gets_what_the_page_shows(clone: Path, tmp_path: Path, page: str) -> None:
    folder = tmp_path if page.startswith("docs/") else clone
    with Walk(page, folder, clone) as walk:
        assert walk.follow((ROOT / page).read_text(encoding="utf-8"), slow="walk" in selected_suites()) > 0


@pytest.mark.parametrize("page", WRITTEN)
def test_every_block_says_whether_it_is_run(page: str) -> None:
    blocks = blocks_of((ROOT / page).read_text(encoding="utf-8"))
    assert [f"{page}:{block.line}: {fault}" for block in blocks if (fault := fault_of(block))] == []


def test_a_block_gets_the_mark_right_above_it() -> None:
    page = (
        "<!-- walk: run slow -->\n```bash\nls\n```\n\n```text\nx\n```\n"
        "<!-- walk: save a.py -->\n<!-- begin: docs/a.py -->\n```python\n1\n```\n<!-- end -->\n"
    )
    assert blocks_of(page) == [
        Block(2, "ls\n", "run", slow=True),
        Block(6, "x\n", "unmarked"),
        Block(11, "1\n", "save", "a.py"),
    ]


@pytest.mark.parametrize(
    "block",
    [Block(1, "", "unmarked"), Block(1, "", "skip", "no"), Block(1, "", "save"), Block(1, "", "walk")],
)
def test_a_wrong_mark_is_a_fault(block: Block) -> None:
    assert fault_of(block)


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("1 passed in …s\n", "1 passed in 0.31s\n", True),
        ("1 passed in …s\n", "1 failed in 0.31s\n", False),
        ("a\n…\nz\n", "a\nb\nc\nz\n", True),
        ("a\n…\nz\n", "a\nb\nc\n", False),
        ("a\n", "a\nb\n", False),
        ("a.c\n", "abc\n", False),
        ("table   \n", "table\n", True),
    ],
)
def test_output_is_compared_line_by_line(shown: str, printed: str, same: bool) -> None:
    assert agrees(shown, printed) is same


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("<!-- walk: run -->\n```bash\nexit 3\n```\n", "page.md:2: exited with 3"),
        ("<!-- walk: run -->\n```bash\necho a\n```\n<!-- walk: output -->\n```text\nb\n```\n", "page.md:6: shows"),
        ("```bash\nls\n```\n", "page.md:1: it has no mark"),
        ("<!-- walk: serve -->\n```bash\nludus serve nothing.py:Nothing\n```\n", "page.md:2: the server did not start"),
    ],
)
def test_a_page_that_is_wrong_fails_its_walk(clone: Path, tmp_path: Path, page: str, said: str) -> None:
    with Walk("page.md", tmp_path, clone) as walk, pytest.raises(WalkError, match=said):
        walk.follow(page, slow=True)
