"""The file of a cassette: lines of JSON, which people can read and compare.

How it is laid out:

- The first line names the format and the version of the environment: `{"ludus-cassette":1,"version":"1.2.0"}`.
- Each further line is one answer: the request by which it is found (`http` or `call`), which of several answers to
  equal requests it is (`n`, from 1), and the `answer`: any JSON of a call, or a response over HTTP, whose body is
  `text`, or `base64` if it is not.
- The last line has the number of answers and the digest of all lines before it, so that a file that was cut off or
  changed is noticed. Without `sha256` in it, only the number is checked; so a person can change an answer.
- A file is written next to its place and then renamed, so it is always whole.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ludus.protocol.messages import describe_invalid
from ludus.protocol.text import truncate
from ludus.sandbox.cassettes.requests import canonical
from ludus.sandbox.core.errors import CassetteError

T = TypeVar("T", bound="_Strict")

FORMAT: Final = 1
"""The version of the file's format."""
_MAX_FILE: Final = 1 << 30
_MAX_LINE: Final = 64 << 20


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Head(_Strict):
    format: int = Field(alias="ludus-cassette")
    version: str = ""


class _Http(_Strict):
    method: str
    url: str
    body: str | None = None
    headers: dict[str, str] | None = None


class _Call(_Strict):
    name: str
    arguments: dict[str, Any]


class _Response(_Strict):
    status: int = Field(ge=100, le=999)
    reason: str = ""
    headers: list[Annotated[list[str], Field(min_length=2, max_length=2)]]
    text: str | None = None
    base64: str | None = None


class _Entry(_Strict):
    http: _Http | None = None
    call: _Call | None = None
    n: int = Field(ge=1)
    answer: Any

    @model_validator(mode="after")
    def _check(self) -> _Entry:
        if (self.http is None) == (self.call is None):
            raise ValueError("it must have either `http` or `call`")
        if self.http is not None:
            _Response.model_validate(self.answer)
        return self


class _Tail(_Strict):
    answers: int = Field(ge=0)
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One recorded answer."""

    request: dict[str, Any]
    answer: Any

    @property
    def key(self) -> str:
        """The text by which its request is found."""
        return canonical(self.request)


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A response over HTTP: what a cassette keeps of it."""

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def to_json(self) -> dict[str, Any]:
        """Return the answer as a cassette has it."""
        described: dict[str, Any] = {
            "status": self.status, "reason": self.reason, "headers": [list(pair) for pair in self.headers],
        }  # fmt: skip
        try:
            return {**described, "text": self.body.decode("utf-8")}
        except UnicodeDecodeError:
            return {**described, "base64": base64.b64encode(self.body).decode("ascii")}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> HttpAnswer:
        """Return an answer that `read_cassette` has checked."""
        text = value.get("text")
        body = base64.b64decode(value.get("base64") or "") if text is None else text.encode("utf-8")
        headers = tuple((name, text) for name, text in value["headers"])
        return cls(value["status"], value.get("reason", ""), headers, body)


def read_cassette(path: Path, version: str) -> list[Entry]:
    """Read a cassette.

    Args:
        path: the file.
        version: the version of the environment that it must be for; "" for any.

    Raises:
        CassetteError: the file cannot be read, was changed or cut off, or is for another version. The message names the
            line.
    """
    try:
        if path.stat().st_size > _MAX_FILE:
            raise CassetteError(f"the cassette {path} is larger than {_MAX_FILE >> 20:,} MiB")
        data = path.read_bytes()
    except OSError as error:
        raise CassetteError(
            f"the cassette {path} cannot be read: {error.strerror}; record it with LUDUS_CASSETTE=record"
        ) from None
    *lines, remainder = data.split(b"\n")
    if remainder or len(lines) < 2:
        raise CassetteError(f"the cassette {path} is cut off after {len(lines)} lines: restore it, or record it again")
    head = _parsed(_Head, lines[0], path, 1)
    if head.format != FORMAT:
        raise CassetteError(f"the cassette {path} has format {head.format}, and this Ludus reads format {FORMAT}")
    if version and head.version and head.version != version:
        raise CassetteError(
            f"the cassette {path} was recorded for version {head.version} of the environment, which now is {version}: "
            "record it again with LUDUS_CASSETTE=record, or change the version in its first line if it still applies"
        )
    tail = _parsed(_Tail, lines[-1], path, len(lines))
    numbered = [_entry(line, path, number) for number, line in enumerate(lines[1:-1], 2)]
    entries = [entry for entry, _ in numbered]
    if tail.answers != len(entries):
        raise CassetteError(f"the cassette {path} has {len(entries)} answers, and its last line says {tail.answers}")
    if tail.sha256 is not None and tail.sha256 != _digest(lines[:-1]):
        raise CassetteError(
            f"the cassette {path} was changed after it was recorded: restore it, or, if it was changed on purpose, "
            "remove `sha256` from its last line"
        )
    _check_order(numbered, path)
    return entries


def write_cassette(path: Path, version: str, entries: list[Entry]) -> None:
    """Write a cassette in place of the one that exists.

    Raises:
        CassetteError: the file cannot be written.
    """
    counts: dict[str, int] = {}
    lines = [_line({"ludus-cassette": FORMAT, "version": version})]
    for entry in entries:
        number = counts[entry.key] = counts.get(entry.key, 0) + 1
        lines.append(_line({**entry.request, "n": number, "answer": entry.answer}))
    lines.append(_line({"answers": len(entries), "sha256": _digest(lines)}))
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as file:
            temporary = file.name
            file.write(b"".join(line + b"\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)
        raise CassetteError(f"the cassette {path} cannot be written: {error.strerror}") from None


def _line(value: dict[str, Any]) -> bytes:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    try:
        return text.encode()
    except UnicodeEncodeError:  # a lone surrogate, which only an escape can write
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _digest(lines: list[bytes]) -> str:
    return hashlib.sha256(b"".join(line + b"\n" for line in lines)).hexdigest()


def _parsed(kind: type[T], line: bytes, path: Path, number: int) -> T:
    try:
        if len(line) > _MAX_LINE:
            raise ValueError(f"it is longer than {_MAX_LINE >> 20} MiB")
        return kind.model_validate(json.loads(line, parse_constant=_no_constant))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        location = ".".join(map(str, problem["loc"])) or "it"
        reason = f"{location}: {describe_invalid(problem)}"
    except (ValueError, RecursionError) as error:
        reason = f"it is not JSON: {error}" if not isinstance(error, RecursionError) else "it is nested too deeply"
    raise CassetteError(f"line {number} of the cassette {path} cannot be read: {truncate(reason, 300)}")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _entry(line: bytes, path: Path, number: int) -> tuple[Entry, int]:
    parsed = _parsed(_Entry, line, path, number)
    request: dict[str, Any]
    if parsed.http is not None:
        request = {"http": parsed.http.model_dump(exclude_none=True)}
        text, encoded = parsed.answer.get("text"), parsed.answer.get("base64")
        if (text is None) == (encoded is None):
            raise CassetteError(f"line {number} of the cassette {path} must have either `text` or `base64`")
        try:
            base64.b64decode(encoded or "", validate=True)
            (text or "").encode()
        except (binascii.Error, ValueError):
            raise CassetteError(f"line {number} of the cassette {path} has a body that cannot be decoded") from None
    else:
        assert parsed.call is not None
        request = {"call": parsed.call.model_dump()}
    return Entry(request, parsed.answer), parsed.n


def _check_order(entries: list[tuple[Entry, int]], path: Path) -> None:
    counts: dict[str, int] = {}
    for line, (entry, number) in enumerate(entries, 2):
        expected = counts[entry.key] = counts.get(entry.key, 0) + 1
        if number != expected:
            raise CassetteError(f"line {line} of the cassette {path} has answer {number} where {expected} must follow")
