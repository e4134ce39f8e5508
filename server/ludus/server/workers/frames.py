"""WebSocket frames (RFC 6455), without I/O, as far as a gateway needs them.

Messages of clients are read whole (`MessageReader`), because their requests go to different workers. Messages of
workers are only cut out of the stream (`FrameSplitter`), because they are passed on unread: neither side uses an
extension, and frames of a server have no mask.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from websockets.utils import apply_mask as _plain_apply_mask

try:
    from websockets.speedups import apply_mask
except ImportError:
    apply_mask = _plain_apply_mask

CONTINUATION: Final = 0
TEXT: Final = 1
BINARY: Final = 2
CLOSE: Final = 8
PING: Final = 9
PONG: Final = 10

NORMAL: Final = 1000
PROTOCOL_ERROR: Final = 1002
NOT_UTF8: Final = 1007
TOO_BIG: Final = 1009
SERVICE_RESTART: Final = 1012

_MOST_CONTROL: Final = 125
_OPCODES: Final = frozenset({CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG})


class FrameError(Exception):
    """The peer broke the protocol; the connection is closed with `code`."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Message(NamedTuple):
    """A whole message, or a control frame."""

    opcode: int
    payload: bytes


def frame(opcode: int, payload: bytes, *, masked: bool = False) -> bytes:
    """Return one frame. A mask of a client is made of zeros: it is there for caches of old proxies, not for secrecy."""
    mask_bit, mask = (0x80, b"\0\0\0\0") if masked else (0, b"")
    size = len(payload)
    if size < 126:
        head = bytes((0x80 | opcode, mask_bit | size))
    elif size < 65536:
        head = bytes((0x80 | opcode, mask_bit | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, mask_bit | 127)) + size.to_bytes(8, "big")
    return head + mask + payload


def close_frame(code: int, reason: str = "", *, masked: bool = False) -> bytes:
    """Return a close frame."""
    return frame(CLOSE, code.to_bytes(2, "big") + reason.encode()[: _MOST_CONTROL - 2], masked=masked)


def _head(data: bytes | bytearray, at: int) -> tuple[int, int, int] | None:
    """Return where a frame's payload begins, its length, and the frame's first byte; None if bytes are missing."""
    if len(data) - at < 2:
        return None
    size, begin = data[at + 1] & 0x7F, at + 2
    if size >= 126:
        begin += 2 if size == 126 else 8
        if len(data) < begin:
            return None
        size = int.from_bytes(data[at + 2 : begin], "big")
    if data[at + 1] & 0x80:
        begin += 4
    return begin, size, data[at]


class MessageReader:
    """Reads messages of a client.

    Args:
        limit: the most bytes of a message.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._data = bytearray()
        self._parts = bytearray()
        self._opcode: int | None = None

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages and control frames that are complete with `data`.

        Raises:
            FrameError: the client broke the protocol.
        """
        self._data += data
        messages: list[Message] = []
        at = 0
        while (head := _head(self._data, at)) is not None:
            begin, size, first_byte = head
            opcode = first_byte & 0x0F
            self._check(first_byte, opcode, size, masked=bool(self._data[at + 1] & 0x80))
            end = begin + size
            if len(self._data) < end:
                break
            with memoryview(self._data) as view:
                payload = apply_mask(bytes(view[begin:end]), bytes(view[begin - 4 : begin]))
            at = end
            if opcode >= CLOSE:
                messages.append(Message(opcode, payload))
                continue
            if (message := self._join(opcode, payload, final=bool(first_byte & 0x80))) is not None:
                messages.append(message)
        del self._data[:at]
        return messages

    def _check(self, first_byte: int, opcode: int, size: int, *, masked: bool) -> None:
        if first_byte & 0x70 or opcode not in _OPCODES:
            raise FrameError(PROTOCOL_ERROR, "reserved bits or an unknown opcode")
        if not masked:
            raise FrameError(PROTOCOL_ERROR, "frames of a client must be masked")
        if opcode >= CLOSE and (size > _MOST_CONTROL or not first_byte & 0x80):
            raise FrameError(PROTOCOL_ERROR, "a control frame is long or fragmented")
        if size + len(self._parts) > self._limit:
            raise FrameError(TOO_BIG, f"a message is larger than {self._limit} bytes")

    def _join(self, opcode: int, payload: bytes, *, final: bool) -> Message | None:
        if (opcode == CONTINUATION) == (self._opcode is None):
            raise FrameError(PROTOCOL_ERROR, "fragments of messages in the wrong order")
        if self._opcode is None and final:
            return Message(opcode, payload)
        self._opcode = self._opcode if self._opcode is not None else opcode
        self._parts += payload
        if not final:
            return None
        message = Message(self._opcode, bytes(self._parts))
        self._opcode = None
        self._parts.clear()
        return message


class FrameSplitter:
    """Cuts the stream of a server into whole data frames, which are passed on, and control frames."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._need = 0
        """How many bytes the rest must have before there is anything new in it."""

    def feed(self, data: bytes) -> tuple[bytes, list[Message]]:
        """Return the data frames that are complete with `data`, as raw bytes, and the control frames."""
        unread = self._rest
        if unread:
            unread += data
            if len(unread) < self._need:
                return b"", []
            data = bytes(unread)
            unread.clear()
        control: list[Message] = []
        passed: list[bytes] = []
        at = since = 0
        self._need = 0
        while (head := _head(data, at)) is not None:
            begin, size, first_byte = head
            end = begin + size
            if len(data) < end:
                self._need = end - at
                break
            if first_byte & 0x0F >= CLOSE:
                passed.append(data[since:at])
                control.append(Message(first_byte & 0x0F, data[begin:end]))
                since = end
            at = end
        if since == 0 and at == len(data):
            return data, control
        passed.append(data[since:at])
        unread += data[at:]
        return b"".join(passed), control
