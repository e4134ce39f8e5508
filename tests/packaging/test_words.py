"""The lint of words reads docstrings, comments and pages, and leaves code and messages alone."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def lint(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import lint_words

    return lint_words


def test_excluded_words_are_found_in_docstrings_and_comments_and_not_in_code(lint: ModuleType) -> None:
    source = '''"""Mend it."""
told = "nobody"  # whoever asks
class A:
    x: int
    """What came of it; see `told`."""
'''
    found = [
        (number, word[0].lower())
        for number, text in lint.texts_of_python(source)
        for word in lint.PATTERN.finditer(lint.without_code(text))
    ]
    assert sorted(found) == [(1, "mend"), (2, "whoever"), (5, "came of")]


def test_excluded_words_are_found_in_names_of_tests(lint: ModuleType) -> None:
    source = "def test_what_is_told(): ...\ndef told(): ...\n"
    assert [text for _, text in lint.names_of_tests(source) if lint.PATTERN.search(text)] == ["test what is told"]


def test_each_excluded_word_has_a_replacement(lint: ModuleType) -> None:
    assert lint.replacement("Mended") == "fix"
    assert lint.replacement("no one") == "nothing, no client"
