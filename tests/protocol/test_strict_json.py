"""One reader for signed JSON: what readers could read in two ways is refused."""

from __future__ import annotations

import pytest

from ludus.protocol.errors import ParseError
from ludus.registry.types.strict_json import read_strict

VALUE = {"a": [1, 2.5, None, True, "é \u2028 😀"], "b": {"a": {}}}


def test_json_in_any_layout_is_read() -> None:
    for text in ('{"a":[1,2.5,null,true,"é \\u2028 \\ud83d\\ude00"],"b":{"a":{}}}', ' {\n "b" : {"a": {}},\t"a": '
                 '[1, 2.5, null, true, "\u00e9 \u2028 😀"]}\n'):  # fmt: skip
        assert read_strict(text, "it") == read_strict(text.encode(), "it") == VALUE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"mean":1.0,"mean":0.2}', "the name 'mean' twice"),
        ('{"a":[{"b":{"c":1,"d":2,"c":1}}]}', "the name 'c' twice"),
        ('{"a":1,"\\u0061":2}', "the name 'a' twice"),
        ('{"a":NaN}', "not a finite number"),
        ('{"a":-Infinity}', "not a finite number"),
        ('{"a":1e999}', "not a finite number"),
        ('{"a":[["\\ud800"]]}', "surrogate"),
        ('{"\\udfff":1}', "surrogate"),
        (b'{"a":"\xff"}', "utf-8"),
        (b'\xef\xbb\xbf{"a":1}', "BOM"),
        ('{"a":1} {"a":1}', "Extra data"),
        ('{"a":1,}', "line 1 column"),  # Python 3.13 names the comma
        ("[" * 100_000, "it"),
        ("", "Expecting value"),
    ],
)
def test_a_text_that_two_readers_read_differently_is_refused_with_its_place(text: str | bytes, message: str) -> None:
    with pytest.raises(ParseError, match="the receipt is not JSON that all readers read alike") as refused:
        read_strict(text, "the receipt")
    assert message in refused.value.message
