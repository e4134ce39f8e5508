"""Counts the frames of a WebSocket client before they are parsed (RFC 6455), without I/O.

The size of a message is bounded, but a message may come in a million fragments of one byte, and frames without content
are bounded by nothing. `FrameMeter` reads only the heads of frames. It says where the data of a turn ends, and refuses
what no ordinary client sends.
"""

from __future__ import annotations

from typing import Final

FREE_FRAGMENTS: Final = 1_000
"""The fragments of a message that may be of any size; a message with more is refused if they are small on average."""

FRAGMENT_BYTES: Final = 64
"""The least average size of the fragments of a message with more than `FREE_FRAGMENTS`."""

LARGE_BYTES: Final = 64 * 1024
"""The size from which on a message needs room, which is reserved before it is read."""

EMPTY_BURST: Final = 1_000
"""The frames that carry no request (pings, pongs, empty frames) that a client may send at one time."""

EMPTY_PER_SECOND: Final = 100
"""How many of them a client may send in a second, on average."""

POLICY_VIOLATION: Final = 1008
"""The WebSocket close code for a client that breaks a rule of the server."""

TRY_AGAIN_LATER: Final = 1013
"""The close code for a client that may send the same again later (IANA's registry of close codes)."""

_CONTINUATION: Final = 0
_FIRST_CONTROL: Final = 8
_MASKED: Final = 0x80
_WHOLE_TEXT: Final = 0x81
_SMALL_HEAD: Final = 6
_MEDIUM_HEAD: Final = 8
_LONGER: Final = _MASKED + 126


class FrameRefusal(Exception):
    """A client sends frames that the server refuses; the connection is closed with `code`."""

    def __init__(self, reason: str, code: int = POLICY_VIOLATION) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class FrameMeter:
    """Counts the frames of one client.

    Attributes:
        message_bytes: the size of the message that is arriving, as far as its frames have begun.
    """

    __slots__ = ("_changed", "_empty", "_fragments", "_head", "_last", "_left", "message_bytes")

    def __init__(self) -> None:
        self._head = b""
        """The first bytes of a head that is not complete."""
        self._left = 0
        """The bytes that are missing in the frame."""
        self._last = False
        """Whether the frame is the last one of its message."""
        self._fragments = 0
        self.message_bytes = 0
        self._empty = float(EMPTY_BURST)
        self._changed = 0.0

    def cut(self, data: bytes, at: int, most: int, now: float) -> tuple[int, int]:
        """Return where the data of a turn ends, and how many frames begin in it.

        It ends behind the head of a frame that makes its message larger than `LARGE_BYTES`.

        Args:
            data: the data of the client.
            at: where the turn begins in it.
            most: the most frames of the turn.
            now: the time in seconds.

        Raises:
            FrameRefusal: the client sends too many frames that are small or carry nothing.
        """
        end, frames = len(data), 0
        if not (at or self._left or self._head or self.message_bytes) and _is_one_small_text(data):
            return end, 1
        while at < end:
            if self._left:
                step = min(self._left, end - at)
                at += step
                self._left -= step
                if not self._left and self._last:
                    self.message_bytes = 0
                continue
            if frames >= most:
                break
            head = self._head + data[at : at + 14 - len(self._head)]
            size = _head_size(head)
            if len(head) < size:
                self._head = head
                return end, frames
            at += size - len(self._head)
            self._head = b""
            frames += 1
            self._left = _payload_size(head)
            self._note(head[0], self._left, now)
            if not self._left and self._last:
                self.message_bytes = 0
            elif self.message_bytes > LARGE_BYTES and head[0] & 0x0F < _FIRST_CONTROL:
                break
        return at, frames

    def _note(self, first_byte: int, size: int, now: float) -> None:
        opcode, final = first_byte & 0x0F, bool(first_byte & 0x80)
        if opcode >= _FIRST_CONTROL or not size:
            self._note_empty(now)
        self._last = final and opcode < _FIRST_CONTROL
        if opcode >= _FIRST_CONTROL:
            return
        if opcode != _CONTINUATION:
            self._fragments = self.message_bytes = 0
        self._fragments += 1
        self.message_bytes += size
        if self._fragments > FREE_FRAGMENTS and self.message_bytes < FRAGMENT_BYTES * self._fragments and not final:
            raise FrameRefusal(
                f"a message in {self._fragments} fragments of {self.message_bytes / self._fragments:.0f} bytes on "
                f"average; send fragments of {FRAGMENT_BYTES} bytes or more"
            )

    def _note_empty(self, now: float) -> None:
        self._empty = min(EMPTY_BURST, self._empty + EMPTY_PER_SECOND * (now - self._changed)) - 1
        self._changed = now
        if self._empty < 0:
            raise FrameRefusal(
                f"more than {EMPTY_BURST} pings, pongs and empty frames at one time, or {EMPTY_PER_SECOND} per second"
            )


def _is_one_small_text(data: bytes) -> bool:
    """Return whether the data is exactly one frame with a whole text, not empty and of less than 64 KiB."""
    if data[0] != _WHOLE_TEXT or len(data) <= _SMALL_HEAD:
        return False
    size = data[1]
    if size < _LONGER:
        return size == _MASKED + len(data) - _SMALL_HEAD
    return size == _LONGER and data[2] << 8 | data[3] == len(data) - _MEDIUM_HEAD > 0


def _head_size(head: bytes) -> int:
    """Return how many bytes the head of a frame has, as far as its first bytes show."""
    if len(head) < 2:
        return 2
    size = head[1] & 0x7F
    return 2 + (2 if size == 126 else 8 if size == 127 else 0) + (4 if head[1] & _MASKED else 0)


def _payload_size(head: bytes) -> int:
    size = head[1] & 0x7F
    if size < 126:
        return size
    return int.from_bytes(head[2 : 4 if size == 126 else 10], "big")
