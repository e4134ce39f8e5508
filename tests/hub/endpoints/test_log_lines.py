"""What a hostile process writes is read by its owner and by the operator of a hub in terminals."""

from __future__ import annotations

from ludus.hub.endpoints.logs import LINE_BYTES, LogRing


async def test_control_characters_in_lines_of_a_process_are_kept_as_escapes() -> None:
    ring = LogRing(1_000_000)
    for line in ("plain é 漢\t1", "\x1b[2J\x9bm\u202eevil\x07", "a\rb\x0bc\x85d\u2028e\nf", "\x00" * LINE_BYTES):
        ring.add(line)
    lines = [line async for line in ring.follow(on=False)]
    assert lines[:3] == ["plain é 漢\t1", "\\x1b[2J\\x9bm\\u202eevil\\x07", "a\\rb\\x0bc\\x85d\\u2028e\\nf"]
    assert len(lines[3]) == LINE_BYTES
    assert all(line.replace("\t", "").isprintable() for line in lines)
