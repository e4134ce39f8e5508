"""Texts for messages are cut in one way."""

from __future__ import annotations

import pytest

from ludus.protocol.text import split_lines, truncate


@pytest.mark.parametrize(("text", "expected"), [("", ""), ("abcde", "abcde"), ("abcdef", "abcd…")])
def test_a_text_is_cut_to_the_limit_with_an_ellipsis(text: str, expected: str) -> None:
    assert truncate(text, 5) == expected


def test_only_line_ends_end_a_line_of_json() -> None:
    odd = "a\u2028b\u2029c\u0085d\x0be\x0cf"
    assert split_lines(f"\ufeff{odd}\r\nsecond\rthird\nlast") == [odd, "second", "third", "last"]
    assert split_lines("") == [""]
