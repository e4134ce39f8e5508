"""The error tree: codes, pickling, and the one way onto the wire and back."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.protocol import errors
from ludus.protocol.errors import ErrorObject, LudusError, from_wire, to_wire

JSON_RPC_CODES = {-32700, -32600, -32601, -32602, -32603}


def tree(kind: type[LudusError] = LudusError) -> list[type[LudusError]]:
    return [kind, *(leaf for child in kind.__subclasses__() for leaf in tree(child))]


KINDS = [kind for kind in tree() if kind.__module__ == errors.__name__]
TRAVELLING = [kind for kind in KINDS if kind.code and (kind is type(from_wire(kind.code, "x")))]
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.from_regex(r"[a-z][A-Za-z]{0,8}", fullmatch=True).filter(lambda name: name not in ("message", "self"))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_codes_lie_outside_the_reserved_range_except_json_rpcs_own(kind: type[LudusError]) -> None:
    assert kind.code in JSON_RPC_CODES or not -32768 <= kind.code <= -32000


def test_each_code_names_one_class_and_comes_back_as_it() -> None:
    codes = [kind.code for kind in TRAVELLING]
    assert len(codes) == len(set(codes))
    assert set(codes) == {kind.code for kind in KINDS} - {0}


def test_the_tree_in_the_docstring_is_the_tree_in_the_code() -> None:
    drawn = dict(re.findall(r"(\w+) +(-?\d{4,5})\b", errors.__doc__ or ""))
    assert drawn == {kind.__name__: str(kind.code) for kind in TRAVELLING}
    assert _drawn_parents() == {kind.__name__: kind.__base__.__name__ for kind in KINDS if kind.__base__}


def _drawn_parents() -> dict[str, str]:
    parents: dict[str, str] = {}
    above: list[tuple[int, str]] = [(-1, "Exception")]
    for match in re.finditer(r"^    ([ │├└─]*)([A-Z]\w+)", errors.__doc__ or "", re.MULTILINE):
        depth, name = len(match[1]), match[2]
        above = [(column, parent) for column, parent in above if column < depth]
        parents[name] = above[-1][1]
        above.append((depth, name))
    return parents


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_survives_pickling_and_copying(kind: type[LudusError]) -> None:
    error = kind("it broke", episode="e_1", retryAfter=2.5, incident="abc")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is kind
        assert str(again) == again.message == "it broke"
        assert again.data == error.data
        assert again.retry_after == 2.5
        assert again.incident == "abc"


def test_an_unpickled_error_keeps_its_notes_out_of_the_way_of_its_arguments() -> None:
    chained = LudusError("outer", code="x")
    assert pickle.loads(pickle.dumps(chained)).data == {"code": "x"}


@pytest.mark.suite("breadth", first=2)
@pytest.mark.parametrize("kind", TRAVELLING, ids=lambda kind: kind.__name__)
@given(message=st.text(), data=st.dictionaries(NAMES, JSON_VALUES, max_size=3))
def test_an_error_comes_off_the_wire_as_it_went_on(kind: type[LudusError], message: str, data: dict[str, Any]) -> None:
    text = to_wire(kind(message, **data)).model_dump_json()
    again = ErrorObject.model_validate_json(text)
    error = from_wire(again.code, again.message, again.data)
    assert type(error) is kind
    assert error.message == message
    assert error.data == data


def test_an_unknown_code_becomes_the_root_class_and_keeps_the_code() -> None:
    error = from_wire(9999, "from the future", {"x": 1})
    assert type(error) is LudusError
    assert error.data == {"x": 1, "code": 9999}


def test_an_error_that_never_travels_is_sent_as_an_internal_one() -> None:
    assert to_wire(errors.AuthoringError("no tools")).code == errors.InternalError.code


@pytest.mark.parametrize("data", [{"message": "again"}, {"self": 1}], ids=["message", "self"])
def test_data_of_a_peer_may_hold_any_key(data: dict[str, Any]) -> None:
    error = from_wire(4044, "no such episode", data)
    assert type(error) is errors.EpisodeNotFound
    assert error.message == "no such episode"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_status_and_code_agree_about_whose_fault_it_is(kind: type[LudusError]) -> None:
    if issubclass(kind, errors.RequestError):
        assert 400 <= kind.http_status < 500
    if issubclass(kind, errors.EpisodeFailed | errors.ServerError):
        assert 500 <= kind.http_status < 600
