"""Receive an upload: a multipart form whose file goes to the disk as it arrives, within limits of size and time.

Starlette's own form parser would keep the fields in memory and the file in the system's folder for temporary files.
This one writes the file where the blob store can link it, and hashes it on the way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from ludus.hub.core.blobs import BlobStore, Incoming
from ludus.hub.settings.hub import HubLimits
from ludus.protocol.errors import CapacityError, PayloadTooLarge, RequestError
from ludus.registry.types.errors import UploadRefused

MOST_PARTS = 200
"""The most parts of a form; twine sends one for each line of the metadata."""

HEADER_BYTES = 8 * 1024
"""The most bytes of the head of one part."""


class UploadTimeout(RequestError):
    """An upload that arrived too slowly."""

    http_status = 408


@dataclass
class Form:
    """A received form.

    Attributes:
        fields: the values of each field, by name.
        wheel: the file.
        filename: its name as the client sent it; None as long as there is no file.
    """

    wheel: Incoming
    fields: dict[str, list[str]] = field(default_factory=dict)
    filename: str | None = None

    def one(self, name: str) -> str | None:
        """Return the value of a field; None if there is none.

        Raises:
            UploadRefused: there are several.
        """
        values = self.fields.get(name, [])
        if len(values) > 1:
            raise UploadRefused(f"the upload has the field {name!r} {len(values)} times; send it once")
        return values[0] if values else None


class UploadSlots:
    """Receives uploads, a bounded number at a time.

    Args:
        blobs: where files go.
        limits: the limits on size, time and number.
    """

    def __init__(self, blobs: BlobStore, limits: HubLimits) -> None:
        self._blobs = blobs
        self._limits = limits
        self._slots = asyncio.Semaphore(limits.uploads)

    @asynccontextmanager
    async def receive(
        self, request: Request, file_field: str, known: Collection[str] | None = None
    ) -> AsyncIterator[Form]:
        """Receive the form of a request, and yield it. The file is removed afterwards unless it was kept.

        Args:
            request: the request.
            file_field: the name of the field that holds the file.
            known: the other fields that the form may have; None for any.

        Raises:
            UploadRefused: the request has no such form, or the form is broken.
            PayloadTooLarge: a part is larger than it may be.
            UploadTimeout: it arrives too slowly.
            CapacityError: too many uploads are arriving.
        """
        try:
            await asyncio.wait_for(self._slots.acquire(), self._limits.upload_seconds)
        except TimeoutError:
            raise CapacityError("too many uploads are arriving; try again", retryAfter=10.0) from None
        try:
            with self._blobs.receiving(self._limits.wheel_bytes) as incoming:
                form = Form(incoming)
                try:
                    async with asyncio.timeout(self._limits.upload_seconds):
                        await _Receiver(form, file_field, known, self._limits).run(request)
                except TimeoutError:
                    raise UploadTimeout(
                        f"the upload did not arrive within {self._limits.upload_seconds:g} s; try again"
                    ) from None
                yield form
        finally:
            self._slots.release()


class _Receiver:
    """Reads one form."""

    def __init__(self, form: Form, file_field: str, known: Collection[str] | None, limits: HubLimits) -> None:
        self._form = form
        self._file_field = file_field
        self._known = known
        self._field_bytes = max(limits.manifest_bytes, limits.card_bytes, limits.validation_bytes)
        self._all_fields_bytes = limits.body_bytes - limits.wheel_bytes
        self._fields_size = 0
        self._parts = 0
        self._head: dict[str, str] = {}
        self._header = [bytearray(), bytearray()]
        self._head_size = 0
        self._name = ""
        self._value = bytearray()
        self._done = False

    async def run(self, request: Request) -> None:
        """Read the whole form."""
        kind, options = parse_options_header(request.headers.get("content-type", ""))
        boundary = options.get(b"boundary", b"")
        if kind != b"multipart/form-data" or not 1 <= len(boundary) <= 200:
            raise UploadRefused("this takes a form of the type multipart/form-data with a boundary")
        try:
            parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin,
                    "on_header_field": lambda data, start, end: self._grow(0, data[start:end]),
                    "on_header_value": lambda data, start, end: self._grow(1, data[start:end]),
                    "on_header_end": self._end_header,
                    "on_headers_finished": self._end_head,
                    "on_part_data": lambda data, start, end: self._add(data[start:end]),
                    "on_part_end": self._end_part,
                    "on_end": self._end,
                },
            )
            async for piece in request.stream():
                parser.write(piece)
        except FormParserError as error:
            raise UploadRefused(f"the form cannot be read: {error}") from None
        except ClientDisconnect:
            raise UploadRefused("the client left before the upload had arrived") from None
        if not self._done:
            raise UploadRefused("the form ends before its last boundary")

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise UploadRefused(f"the form has more than {MOST_PARTS} parts")
        self._head, self._head_size, self._value = {}, 0, bytearray()

    def _grow(self, which: int, data: bytes) -> None:
        self._head_size += len(data)
        if self._head_size > HEADER_BYTES:
            raise UploadRefused(f"the head of a part is larger than {HEADER_BYTES} bytes")
        self._header[which] += data

    def _end_header(self) -> None:
        name, value = (bytes(part).decode("latin-1") for part in self._header)
        self._head[name.lower()] = value
        self._header = [bytearray(), bytearray()]

    def _end_head(self) -> None:
        kind, options = parse_options_header(self._head.get("content-disposition", ""))
        self._name = options.get(b"name", b"").decode("utf-8", "replace")
        if kind != b"form-data" or not self._name:
            raise UploadRefused("a part of the form has no name")
        if self._name == self._file_field:
            if self._form.filename is not None:
                raise UploadRefused(f"the upload has two files {self._name!r}; send one")
            filename = options.get(b"filename")
            if filename is None:
                raise UploadRefused(f"the part {self._name!r} is not a file")
            self._form.filename = filename.decode("utf-8", "replace")
        elif self._known is not None and self._name not in self._known:
            raise UploadRefused(
                f"unknown part {ascii(self._name[:60])}; this takes {self._file_field}, {', '.join(self._known)}"
            )

    def _add(self, data: bytes) -> None:
        if self._name == self._file_field:
            self._form.wheel.write(data)
            return
        self._fields_size += len(data)
        self._value += data
        if len(self._value) > self._field_bytes or self._fields_size > self._all_fields_bytes:
            raise PayloadTooLarge(f"the part {ascii(self._name[:60])} is larger than this hub accepts")

    def _end_part(self) -> None:
        if self._name == self._file_field:
            return
        try:
            value = self._value.decode("utf-8")
        except UnicodeDecodeError:
            raise UploadRefused(f"the part {ascii(self._name[:60])} is not UTF-8") from None
        self._form.fields.setdefault(self._name, []).append(value)

    def _end(self) -> None:
        self._done = True


__all__ = ["Form", "UploadSlots", "UploadTimeout"]
