"""Texts for messages are cut in one way."""

from __future__ import annotations

import pytest

from ludus.protocol.text import truncate


@pytest.mark.parametrize(("text", "expected"), [("", ""), ("abcde", "abcde"), ("abcdef", "abcd…")])
def test_a_text_is_cut_to_the_limit_with_an_ellipsis(text: str, expected: str) -> None:
    assert truncate(text, 5) == expected
