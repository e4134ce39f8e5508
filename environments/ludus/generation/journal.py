"""The append-only record of a run: each reply that was paid for, and each verdict, by its key."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from pydantic import BaseModel, ValidationError

from ludus.protocol.errors import Conflict, InvalidParams

FORMAT: Final = "ludus-generate-1"

FormT = TypeVar("FormT", bound=BaseModel)


class Journal:
    """A file of JSON lines: a header with the run's settings, then entries. One process at a time may hold it.

    Args:
        path: the file; its folder is made if there is none.
        settings: what must be the same for a run to go on.
        resume: whether the file may exist already.

    Raises:
        InvalidParams: the file exists and `resume` is False, or it belongs to a run with other settings.
        Conflict: another process holds it.
        OSError: it cannot be written.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], *, resume: bool) -> None:
        self.path = path
        self._entries: dict[tuple[str, str], Any] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size and not resume:
            raise InvalidParams(f"{path} exists: go on with --resume, or choose another --out")
        self._file = open(path, "a+b")
        try:
            os.chmod(path, 0o600)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise Conflict(f"{path} is in use: another `ludus generate` writes to this folder") from None
            self._read(dict(settings))
        except BaseException:
            self._file.close()
            raise

    def _read(self, settings: dict[str, Any]) -> None:
        self._file.seek(0)
        whole = 0
        header: dict[str, Any] | None = None
        for line in self._file:
            if not line.endswith(b"\n"):
                break  # the process was killed while it wrote this line
            whole += len(line)
            try:
                value = json.loads(line)
                if header is None:
                    header = value["settings"] if value["format"] == FORMAT else {}
                else:
                    self._entries[value["kind"], value["key"]] = value["value"]
            except (ValueError, KeyError, TypeError, RecursionError):
                raise InvalidParams(f"{self.path} is not the journal of a run; choose another --out") from None
        self._file.truncate(whole)
        if header is None:
            self._append({"format": FORMAT, "settings": settings})
            return
        for name, value in settings.items():
            if header.get(name) != value:
                raise InvalidParams(
                    f"{self.path} belongs to a run with {name}={header.get(name)!r}, and this one has {value!r}; "
                    "repeat the command with --resume unchanged, or choose another --out"
                )

    def get(self, kind: str, key: str) -> Any:
        """Return the value of an entry; None if there is none."""
        return self._entries.get((kind, key))

    def values(self, kind: str) -> list[Any]:
        """Return the values of all entries of a kind."""
        return [value for (one, _), value in self._entries.items() if one == kind]

    def read(self, form: type[FormT], value: Any) -> FormT:
        """Return the value of an entry in its form.

        Raises:
            InvalidParams: it has another form, because the file was changed.
        """
        try:
            return form.model_validate(value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"])) or "its value"
            raise InvalidParams(
                f"{self.path} was changed: {place} of an entry is not as this version writes it; restore the file, or "
                "choose another --out"
            ) from None

    def put(self, kind: str, key: str, value: Any) -> None:
        """Add an entry, which is on the disk when this returns."""
        self._entries[kind, key] = value
        self._append({"kind": kind, "key": key, "value": value})

    def _append(self, value: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
