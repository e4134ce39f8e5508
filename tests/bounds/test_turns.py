"""Fair turns of the event loop, and the frames of a client, counted before they are parsed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from flood_frames import ws_frame
from hypothesis import given
from hypothesis import strategies as st

from ludus.server.web.frame_meter import EMPTY_BURST, EMPTY_PER_SECOND, FREE_FRAGMENTS, FrameMeter, FrameRefusal
from ludus.server.web.turns import FLOW, SHARE_COST, TURN_COST, FairTransport, Turns
from ludus.server.workers.connection import ClientConnection

LOOPS = 5_000


class Pipe:
    """A transport that notes whether it is read."""

    def __init__(self) -> None:
        self.reads = True
        self.closed = False

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: bytes) -> None:
        """Write nothing."""

    def get_extra_info(self, name: str) -> Any:
        """Know nothing."""


class Parser:
    """Takes a byte as a piece, and notes the turns in which it got any."""

    def __init__(self, cost: int) -> None:
        self.pipe = Pipe()
        self.cost = cost
        self.pieces: list[bytes] = []
        self.transport = FairTransport(self.pipe, self.piece)  # type: ignore[arg-type]

    def piece(self, data: bytes, at: int) -> tuple[int, int]:
        self.pieces.append(data[at : at + 1])
        return at + 1, self.cost


async def turn_by_turn(parsers: list[Parser], done: Any) -> list[int]:
    """The cost of each turn of the loop until `done()`."""
    costs = []
    for _ in range(LOOPS):
        before = sum(parser.cost * len(parser.pieces) for parser in parsers)
        await asyncio.sleep(0)
        costs.append(sum(parser.cost * len(parser.pieces) for parser in parsers) - before)
        if done():
            return costs
    raise AssertionError("the data was not parsed")


async def test_no_turn_costs_more_than_its_budget_and_everyone_gets_a_share_in_order() -> None:
    parsers = [Parser(100) for _ in range(50)]
    for parser in parsers:
        parser.transport.received(b"x" * 100)
    costs = await turn_by_turn(parsers, lambda: not any(parser.transport.behind for parser in parsers))
    assert max(costs) <= TURN_COST + SHARE_COST
    assert all(b"".join(parser.pieces) == b"x" * 100 for parser in parsers)
    assert all(parser.pipe.reads for parser in parsers)


async def test_who_comes_while_others_flood_waits_for_a_turn_and_not_for_their_round() -> None:
    flooding = [Parser(100) for _ in range(50)]
    for parser in flooding:
        parser.transport.received(b"x" * 10_000)
    assert not any(parser.pipe.reads for parser in flooding), "who has data that waits is not read"
    await turn_by_turn(flooding, lambda: all(parser.pieces for parser in flooding))
    late = Parser(100)
    late.transport.received(b"y")
    costs = await turn_by_turn(flooding, lambda: bool(late.pieces))
    assert len(costs) <= 3


async def test_who_floods_gets_turns_while_new_ones_come_all_the_time() -> None:
    flooding = Parser(100)
    flooding.transport.received(b"x" * 400)
    others = [Parser(100) for _ in range(2000)]
    for parser in others:
        parser.transport.received(b"yyyy")
    costs = await turn_by_turn([flooding], lambda: not flooding.transport.behind)
    assert len(costs) < 150, "a quarter of each turn is left for those who have had a share"
    assert any(parser.transport.behind for parser in others)


async def test_a_pause_holds_what_waits_and_keeps_its_order() -> None:
    parser = Parser(1)
    parser.transport.hold(FLOW)
    parser.transport.received(b"ab")
    parser.transport.received(b"cd")
    assert (parser.pieces, parser.pipe.reads) == ([], False)
    parser.transport.release(FLOW)
    await turn_by_turn([parser], lambda: not parser.transport.behind)
    assert (b"".join(parser.pieces), parser.pipe.reads) == (b"abcd", True)


async def test_work_that_waits_for_a_turn_begins_in_order() -> None:
    turns = Turns(asyncio.get_running_loop())
    began: list[int] = []

    async def work(number: int) -> None:
        await turns.wait(TURN_COST)
        began.append(number)

    await asyncio.gather(*map(work, range(20)))
    assert began == list(range(20))
    assert turns.most_spent == TURN_COST


def count(meter: FrameMeter, data: bytes, now: float = 0.0) -> int:
    """How many frames begin in data that arrives at one time."""
    frames, at = 0, 0
    while at < len(data):
        at, more = meter.cut(data, at, 10**9, now)
        frames += more
    return frames


FRAMES = st.lists(
    st.tuples(st.sampled_from([0, 1, 2, 9, 10]), st.sampled_from([0, 1, 125, 126, 300, 70_000])), min_size=1, max_size=8
)


@given(FRAMES, st.lists(st.integers(1, 400), min_size=1, max_size=50), st.integers(1, 4))
def test_frames_are_counted_alike_however_their_bytes_arrive(
    frames: list[tuple[int, int]], sizes: list[int], most: int
) -> None:
    data = b"".join(ws_frame(b"x" * size, opcode) for opcode, size in frames)
    meter, counted, at = FrameMeter(), 0, 0
    turn = 0
    while at < len(data):
        read = data[at : at + sizes[turn % len(sizes)] * (300 if turn > 200 else 1)]
        turn += 1
        done = 0
        while done < len(read):
            end, count = meter.cut(read, done, most, 0.0)
            assert count <= most
            assert end > done
            counted += count
            done = end
        at += len(read)
    assert counted == len(frames)


@pytest.mark.parametrize("size", [0, 1, 63])
def test_a_message_in_many_small_fragments_is_refused_and_one_in_large_ones_is_not(size: int) -> None:
    small = ws_frame(b"[", final=False) + ws_frame(b"x" * size, 0, final=False) * (FREE_FRAGMENTS + 1)
    with pytest.raises(FrameRefusal, match=r"fragments of \d+ bytes on average|empty frames"):
        count(FrameMeter(), small)
    large = ws_frame(b"[", final=False) + ws_frame(b"x" * 100, 0, final=False) * (2 * FREE_FRAGMENTS)
    few = (
        ws_frame(b"[", final=False) + ws_frame(b"x" * size, 0, final=False) * (FREE_FRAGMENTS - 10) + ws_frame(b"]", 0)
    )
    assert count(FrameMeter(), large) == 2 * FREE_FRAGMENTS + 1
    assert count(FrameMeter(), few) == FREE_FRAGMENTS - 8


@pytest.mark.parametrize("opcode", [1, 2, 9, 10])
def test_frames_that_carry_nothing_have_a_rate(opcode: int) -> None:
    meter, one = FrameMeter(), ws_frame(b"", opcode)
    meter.cut(one * EMPTY_BURST, 0, 10**9, 1000.0)
    with pytest.raises(FrameRefusal, match="pings, pongs and empty frames"):
        meter.cut(one, 0, 1, 1000.0)
    meter.cut(one * EMPTY_PER_SECOND, 0, 10**9, 1002.0)


def test_an_hour_of_usual_pings_is_never_refused() -> None:
    meter, pings = FrameMeter(), ws_frame(b"ping", 9) * 5
    taken = [meter.cut(pings, 0, 10, float(second)) for second in range(3600)]
    assert taken == [(len(pings), 5)] * 3600


async def test_a_tunnel_without_room_is_not_written_to_and_the_socket_is_not_read_meanwhile() -> None:
    written: list[bytes] = []
    pipe, connection = Pipe(), ClientConnection.__new__(ClientConnection)
    connection.lost, connection._refusal = False, None
    connection._tunnel = SimpleNamespace(transport=SimpleNamespace(write=written.append))  # type: ignore[assignment]
    connection.transport = FairTransport(pipe, connection._piece)  # type: ignore[arg-type]
    connection.data_received(b"first")
    connection.transport.pause_reading()
    connection.data_received(b"second")
    assert (written, pipe.reads) == ([b"first"], False)
    connection.transport.resume_reading()
    for _ in range(LOOPS):
        if pipe.reads:
            break
        await asyncio.sleep(0)
    assert (written, pipe.reads) == ([b"first", b"second"], True)
