"""Any text frame gets a reply in the protocol's form, and the server continues to serve."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from threaded import server_in_thread
from waiting import block_until
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as open_socket
from worlds import Playground

from ludus.protocol.errors import InternalError
from ludus.protocol.identifiers import CHANNEL_PATH, CHANNEL_SUBPROTOCOL
from ludus.protocol.jsonrpc import Failure, Success
from ludus.protocol.methods import METHODS
from ludus.server import ServerLimits

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
FIELDS = sorted({field.alias or name for m in METHODS.values() for name, field in m.params.model_fields.items()})
PLAUSIBLE: st.SearchStrategy[Any] = (
    st.sampled_from(["playground", "train", "r-1", "add", "k", 0, 1, 2, -1, None, "e_x", [], {}, 2**70]) | JSON
)
PARAMS = st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=6), PLAUSIBLE, max_size=6)
REQUESTS = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0") | JSON, "id": st.integers(0, 99) | st.text(max_size=5) | JSON},
    optional={"method": st.sampled_from(sorted(METHODS)) | st.text() | JSON, "params": PARAMS | JSON, "x": JSON},
)
LIKELY = st.builds(
    lambda identifier, method, params: {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params},
    st.integers(0, 99),
    st.sampled_from(sorted(METHODS)),
    PARAMS,
)
FRAMES = st.one_of(
    LIKELY.map(json.dumps),
    st.lists(LIKELY | REQUESTS, min_size=1, max_size=5).map(json.dumps),
    REQUESTS.map(json.dumps),
    JSON.map(json.dumps),
    st.text().filter(lambda text: not _surrogates(text)),
)
PROBE = json.dumps({"jsonrpc": "2.0", "id": "probe", "method": "dev.ludus/environments/list", "params": {}})


def _surrogates(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    limits = ServerLimits(max_episodes=50, queue_seconds=0.01, idle_seconds=2, grace_seconds=0.2)
    with server_in_thread(Playground, limits=limits) as server:
        yield server


@pytest.fixture(scope="module")
def socket(server: Any) -> Iterator[ClientConnection]:
    url = server.url.replace("http", "ws", 1) + CHANNEL_PATH
    with open_socket(url, subprotocols=[CHANNEL_SUBPROTOCOL], max_size=None) as connection:  # type: ignore[list-item]
        yield connection


def _expected(frame: str) -> int:
    """How many replies a frame gets."""
    try:
        parsed = json.loads(frame)
    except ValueError:
        return 1
    return max(1, len(parsed)) if isinstance(parsed, list) else 1


def _replies(socket: ClientConnection, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        parsed = json.loads(socket.recv(timeout=20))
        found += parsed if isinstance(parsed, list) else [parsed]
    return found


@pytest.mark.suite("breadth")
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(frame=FRAMES)
def test_every_frame_is_answered_in_form_and_the_channel_goes_on(socket: ClientConnection, frame: str) -> None:
    socket.send(frame)
    replies = _replies(socket, _expected(frame))
    for reply in replies:
        if "error" in reply:
            failure = Failure.model_validate(reply)
            assert failure.error.message
            assert failure.error.code != InternalError.code, failure
        else:
            Success.model_validate(reply)
    socket.send(PROBE)
    assert _replies(socket, 1)[0]["id"] == "probe"


def test_no_episode_is_left_after_its_idle_time(server: Any) -> None:
    host = server.app.context.host
    block_until(lambda: host.stats().running == 0)
