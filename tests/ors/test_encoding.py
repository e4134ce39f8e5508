from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.server.transports.ors import encoding

SPACES = " \u0085\u00a0\u1680\u2000\u2028\u2029\u202f\u205f\u3000"


def compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.requirement("ORS-12")
@pytest.mark.requirement("ORS-12")
@given(st.lists(st.one_of(st.text(max_size=50), st.text(alphabet=SPACES + "ab", max_size=3000)), max_size=12))
def test_pieces_join_to_the_same_json_and_none_begins_with_whitespace(texts: list[str]) -> None:
    whole = "".join(texts)
    pieces = encoding.split(compact({"text": whole}))
    assert json.loads("".join(pieces)) == {"text": whole}
    assert all(0 < len(piece) <= encoding.CHUNK_CHARS and not piece[0].isspace() for piece in pieces)


@pytest.mark.parametrize("length", range(4070, 4100))
def test_a_text_of_spaces_survives_every_cut(length: int) -> None:
    pieces = encoding.split(compact({"text": " " * length}))
    assert json.loads("".join(pieces)) == {"text": " " * length}
    assert not any(piece[0].isspace() for piece in pieces)


def test_short_results_are_one_end_event() -> None:
    assert encoding.result_events('{"ok":true}') == b'event: end\r\ndata: {"ok":true}\r\n\r\n'


def test_an_error_message_keeps_its_lines() -> None:
    assert encoding.error_event("a\r\nb\rc\n") == b"event: error\r\ndata: a\r\ndata: b\r\ndata: c\r\ndata: \r\n\r\n"


def test_an_error_message_with_a_lone_surrogate_is_still_utf8() -> None:
    assert encoding.error_event("\ud800") == b"event: error\r\ndata: \\ud800\r\n\r\n"
