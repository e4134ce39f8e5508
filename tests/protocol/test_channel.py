"""The channel's frames without a socket: what a sender joins, a receiver splits, and malformed frames are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.protocol.channel import (
    MAX_ID_CHARS,
    failure,
    frames,
    parse_replies,
    parse_requests,
    read_request,
    readable_id,
    reply_id,
    request_template,
    success,
)
from ludus.protocol.errors import InvalidRequest, ParseError, ProtocolViolation, TaskNotFound


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=30), st.integers(min_value=50, max_value=400))
def test_frames_hold_every_message_once_in_order_within_the_limit(texts: list[bytes], limit: int) -> None:
    messages = [success(number, json.dumps(text.hex()).encode()) for number, text in enumerate(texts)]
    found = frames(messages, limit)
    arrays = frames(messages, limit, split_as_arrays=True)
    assert len(messages) == 1 or [json.loads(frame) for frame in arrays] == [parse_replies(f.decode()) for f in found]
    split = [reply for frame in found for reply in parse_replies(frame.decode())]
    assert [(reply["id"], bytes.fromhex(reply["result"])) for reply in split] == list(enumerate(texts))
    for frame in found:
        assert len(frame) <= limit or frame in messages, "only a message that is too long alone exceeds the limit"


def test_a_message_that_is_alone_in_its_frame_is_an_array_only_on_request() -> None:
    messages = [b'{"id":1}', b'{"id":2}', b'"%b"' % (b"x" * 30)]
    assert frames(messages, 20) == [b'[{"id":1},{"id":2}]', messages[2]]
    assert frames(messages, 20, split_as_arrays=True) == [b'[{"id":1},{"id":2}]', b"[%b]" % messages[2]]
    assert frames(messages[:1], 5, split_as_arrays=True) == messages[:1]


def test_a_request_is_read_as_it_was_written() -> None:
    text = (request_template("dev.ludus/episodes/step") % (7, b'{"step":1}')).decode()
    (request,) = parse_requests(text)
    assert read_request(request) == (7, "dev.ludus/episodes/step", {"step": 1})


def test_a_reply_carries_the_id_and_the_error() -> None:
    (reply,) = parse_replies(failure("a", TaskNotFound("there is no task 'x'")).decode())
    assert reply_id(reply) == "a"
    assert reply["error"]["message"] == "there is no task 'x'"
    (reply,) = parse_replies(failure(None, TaskNotFound("x")).decode())
    assert reply_id(reply) is None


@pytest.mark.parametrize("identifier", [1, -(2**53 - 1), 2**53 - 1, "", "ä" * MAX_ID_CHARS])
def test_valid_ids_are_repeated_in_replies(identifier: int | str) -> None:
    request = {"jsonrpc": "2.0", "id": identifier, "method": "m"}
    assert read_request(request) == (identifier, "m", {})
    assert json.loads(success(identifier, b"{}"))["id"] == identifier


@pytest.mark.parametrize("identifier", [None, True, 1.5, 2**53, -(2**53), "x" * (MAX_ID_CHARS + 1), "\ud800", [], {}])
def test_invalid_ids_are_refused_and_not_repeated(identifier: Any) -> None:
    request = {"jsonrpc": "2.0", "id": identifier, "method": "m"}
    assert readable_id(request) is None
    with pytest.raises(InvalidRequest, match="`id` must be"):
        read_request(request)


def test_a_lone_surrogate_does_not_fail_the_other_requests_of_a_frame() -> None:
    good, bad = parse_requests(r'[{"id":1},{"id":2,"method":"\ud800"}]')
    assert (readable_id(good), readable_id(bad)) == (1, 2)


@pytest.mark.parametrize("text", ["", "{", "[NaN]", '["\\ud800", NaN]', "[" * 100_000 + '"\\u0000"'])
def test_a_frame_that_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(ParseError, match="not JSON"):
        parse_requests(text)


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="empty array"):
        parse_requests("[]")


def test_replies_that_are_not_json_are_a_violation_by_the_server() -> None:
    with pytest.raises(ProtocolViolation, match="not JSON"):
        parse_replies("<html>")
