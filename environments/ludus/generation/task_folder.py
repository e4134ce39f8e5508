"""`tasks:FOLDER`: tasks that `ludus generate tasks` wrote, served as an environment with the code of another one.

The folder holds `tasks.json`, which names that environment, and one file of JSON lines for each split, such as
`train.jsonl`. The rows hold private fields, so the folder belongs with the server, not with what agents can read.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ludus.protocol.episodes import SplitType
from ludus.protocol.errors import AuthoringError, EnvironmentNotFound
from ludus.protocol.messages import describe_invalid
from ludus.protocol.tasks import Task

if TYPE_CHECKING:
    from ludus.server import Environment
    from ludus.server.tasks.formats import FormatSource

MANIFEST: Final = "tasks.json"
FORMAT: Final = "ludus-tasks-1"
Mode = Literal["propose", "template", "backtranslate", "hops"]
"""How a task was made."""
LARGEST_LINE: Final = 16 * 2**20


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class TasksSettings(BaseModel):
    """The options of `tasks:`."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    environment: str | None = None
    """The environment whose code plays the tasks, as NAME, `module:Class` or `file.py:Class`; the one that `tasks.json`
    names by default."""
    any_version: bool = False
    """Whether to serve tasks that were made and checked for another version of the environment."""
    name: str | None = None
    """The published name; that of the environment and `-generated` by default."""


class Calibrated(_Record):
    """How often a policy solved a task before it was kept."""

    policy: str
    passes: int
    attempts: int


class Provenance(_Record):
    """Where a task is from."""

    mode: Mode
    number: int
    """The number of the proposal in its run."""
    seed: int
    """The seed of the run."""
    model: str | None = None
    """The model that wrote it; None if no model was used."""
    prompt: str | None = None
    """The SHA-256 of the request to the model, as 16 hexadecimal digits."""
    source: str | None = None
    """What it was made from: a task of the environment, the template's file, or the number of hops."""
    checks: tuple[str, ...] = ()
    """The checks that it passed."""
    calibration: Calibrated | None = None


class TaskRecord(_Record):
    """A row."""

    id: str = Field(min_length=1, max_length=200)
    fields: dict[str, Any]
    """All fields of the task, private ones included."""
    provenance: Provenance


class Manifest(_Record):
    """What the rows are tasks of."""

    format: Literal["ludus-tasks-1"] = FORMAT
    source: str
    """What `ludus serve` takes; a path is relative to the folder."""
    environment: str
    """The published name, such as that of a variant."""
    version: str
    splits: dict[str, SplitType]
    """The types of the splits; each has a file of its name."""


def resolve(source: FormatSource) -> Sequence[type[Environment[Any]]]:
    """Return the environment of a folder.

    Raises:
        EnvironmentNotFound: there is no such folder, or its environment is not installed.
        AuthoringError: the files, a row or an option cannot be used.
    """
    return [load_tasks(Path(source.target), source.settings(TasksSettings))]


def load_tasks(folder: Path, settings: TasksSettings) -> type[Environment[Any]]:
    """Return the environment of a folder; see `resolve`."""
    from ludus.server import Split
    from ludus.server.authoring.generation import read_task, task_class
    from ludus.server.tasks.catalog import Catalog
    from ludus.server.tasks.loading import load_environments

    manifest = read_manifest(folder)
    if settings.environment is not None:
        catalog = Catalog(load_environments([settings.environment]))
        name = manifest.environment if manifest.environment in catalog else next(iter(catalog))
        base = catalog[name]
    else:
        base = Catalog(load_environments([_located(manifest.source, folder)])).find(manifest.environment)
    if base.cls.version != manifest.version and not settings.any_version:
        raise AuthoringError(
            f"the tasks in {folder} were checked with version {manifest.version} of {base.name!r}, and this is version "
            f"{base.cls.version}: generate them again, or serve them unchecked with tasks:{folder}#any_version=true"
        )
    model, digest = task_class(base.cls), hashlib.blake2b(digest_size=4)
    splits: dict[str, Split[Any]] = {}
    for split, kind in manifest.splits.items():
        tasks: list[Task] = []
        for place, record in read_records(folder / f"{split}.jsonl"):
            try:
                tasks.append(read_task(model, record.id, record.fields))
            except ValueError as error:
                raise AuthoringError(f"{place} is no task of {base.name!r}: {error}") from None
            digest.update(json.dumps([split, record.id, record.fields], sort_keys=True).encode())
        splits[split] = Split(tasks, kind)
    fields: dict[str, Any] = {
        "__doc__": f"{(base.cls.__doc__ or base.name).strip()}\n\nIts tasks were generated: {folder.name}.",
        "__module__": base.cls.__module__,
        "name": settings.name or f"{base.name}-generated",
        "version": f"{base.cls.version}+{digest.hexdigest()}",
        "splits": splits,
        "variants": {},
    }
    return cast("type[Environment[Any]]", type(f"Generated{base.cls.__name__}", (base.cls,), fields))


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder.

    Raises:
        EnvironmentNotFound: the folder has none.
        AuthoringError: it cannot be used.
    """
    path = folder / MANIFEST
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise EnvironmentNotFound(
            f"there is no {path}; tasks:FOLDER names a folder that `ludus generate tasks` wrote",
            environment=str(folder),
        ) from None
    except OSError as error:
        raise AuthoringError(f"{path} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        raise AuthoringError(f"{path} is not a list of splits: {_first(error)}") from None


def read_records(path: Path) -> Iterator[tuple[str, TaskRecord]]:
    """Yield the rows of a file, each with its place for messages.

    Raises:
        AuthoringError: the file cannot be read, or a row is malformed.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(LARGEST_LINE + 1), b""), 1):
                if len(line) > LARGEST_LINE:
                    raise AuthoringError(f"{path}:{number} has more than {LARGEST_LINE // 2**20} MiB")
                if line.strip():
                    try:
                        yield f"{path}:{number}", TaskRecord.model_validate_json(line)
                    except ValidationError as error:
                        raise AuthoringError(f"{path}:{number} is malformed: {_first(error)}") from None
    except OSError as error:
        raise AuthoringError(f"{path} cannot be read: {error.strerror}") from None


def write_tasks(folder: Path, manifest: Manifest, rows: Mapping[str, Sequence[TaskRecord]]) -> None:
    """Write a folder that `resolve` reads, each file at once. Only its owner may read the rows.

    Raises:
        OSError: it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for split, records in rows.items():
        replace_private(folder / f"{split}.jsonl", "".join(f"{record.model_dump_json()}\n" for record in records))
    replace_private(folder / MANIFEST, manifest.model_dump_json(indent=2) + "\n")


def portable(source: str, folder: Path) -> str:
    """Return a source in which a path is relative to a folder, so that both can be moved together."""
    from ludus.server.tasks.formats import parse_source

    found = parse_source(source)
    if found is not None:
        if not Path(found.target).exists():
            return source
        return str(type(found)(found.format, os.path.relpath(found.target, folder), found.options))
    place, colon, name = source.rpartition(":") if not source.endswith(".py") else (source, "", "")
    return f"{os.path.relpath(place, folder)}{colon}{name}" if place.endswith(".py") else source


def _located(source: str, folder: Path) -> str:
    """Return a source of `portable` so that it names its file from the working directory."""
    from ludus.server.tasks.formats import parse_source

    found = parse_source(source)
    if found is not None:
        path = folder / found.target
        return str(type(found)(found.format, str(path), found.options)) if path.exists() else source
    place, colon, name = source.rpartition(":") if not source.endswith(".py") else (source, "", "")
    return f"{folder / place}{colon}{name}" if place.endswith(".py") else source


def replace_private(path: Path, text: str) -> None:
    """Write a file at once, so that only its owner may read it."""
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    temporary.replace(path)


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    what = describe_invalid(first)
    return f"{place}: {what}" if place else what
