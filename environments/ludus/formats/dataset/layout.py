"""Finds the files of a dataset and their splits: by the names of files and folders, or as `save_to_disk` wrote them."""

from __future__ import annotations

import difflib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ludus.formats.dataset.columnar import ArrowTable, ParquetTable
from ludus.formats.dataset.tables import CsvTable, JsonLinesTable, Table
from ludus.protocol.episodes import SplitType
from ludus.protocol.errors import AuthoringError, EnvironmentNotFound
from ludus.protocol.messages import VALIDATION_NAMES

TYPES: Final[Mapping[str, SplitType]] = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    **dict.fromkeys(VALIDATION_NAMES, "validation"),
    "test": "test",
    "testing": "test",
}
"""The types of splits whose names show it."""

_KINDS: Final[Mapping[str, type[Table]]] = {
    ".jsonl": JsonLinesTable,
    ".ndjson": JsonLinesTable,
    ".json": JsonLinesTable,
    ".csv": CsvTable,
    ".tsv": CsvTable,
    ".parquet": ParquetTable,
    ".arrow": ArrowTable,
}
_SHARD: Final = re.compile(r"[-_.]\d+(?:-of-\d+)?$")
_WORDS: Final = re.compile(r"[-_. ]+")
_DICT: Final = "dataset_dict.json"
_STATE: Final = "state.json"


def find_tables(target: str) -> dict[str, list[Table]]:
    """Return the tables of a file or a folder by split, in the order train, validation, test, others.

    Raises:
        EnvironmentNotFound: there is no such file or folder.
        AuthoringError: it holds no data, or its files do not show what the splits are; the message says what to do.
    """
    path = Path(target)
    if not target or not path.exists():
        near = difflib.get_close_matches(path.name, _names(path.parent), n=1)
        hint = f"; did you mean {path.with_name(near[0])}?" if near else ""
        seen = "" if path.is_absolute() else f" (seen from {Path.cwd()})"
        raise EnvironmentNotFound(f"there is no file or folder {target!r}{seen}{hint}", environment=target)
    files = _files_of(path) if path.is_dir() else {_split_of(path) or "train": [path]}
    order = list(TYPES.values())
    names = sorted(files, key=lambda name: order.index(TYPES[name]) if name in TYPES else len(order))
    return {name: [_open(file, path) for file in sorted(files[name])] for name in names}


def _files_of(folder: Path) -> Mapping[str, Sequence[Path]]:
    if (folder / _DICT).is_file():
        return {name: _saved(folder / name) for name in _names_in(folder / _DICT, "splits")}
    if (folder / _STATE).is_file():
        split = _content(folder / _STATE).get("_split")
        return {split if isinstance(split, str) and split else "train": _saved(folder)}
    if files := _data_in(folder):
        return _by_name(folder, files)
    inside = {child.name: files for child in sorted(folder.iterdir()) if child.is_dir() and (files := _data_in(child))}
    if set(inside) == {"data"}:
        return _by_name(folder / "data", inside["data"])
    if not inside:
        raise AuthoringError(f"{folder} holds no data: there must be files of {', '.join(_KINDS)} in it")
    if unknown := [name for name in inside if name.lower() not in TYPES]:
        raise AuthoringError(
            f"{folder} has the folders {_list(inside)}, and {unknown[0]!r} is not the name of a split; name one "
            f"folder, such as {folder / unknown[0]}, or rename them to train, validation and test"
        )
    return {name.lower(): files for name, files in inside.items()}


def _by_name(folder: Path, files: Sequence[Path]) -> Mapping[str, Sequence[Path]]:
    found: defaultdict[str, list[Path]] = defaultdict(list)
    for file in files:
        found[_split_of(file) or _SHARD.sub("", file.stem).lower()].append(file)
    for name, several in found.items():
        if len({file.suffix for file in several}) > 1:
            raise AuthoringError(
                f"{folder} has the split {name!r} in several formats ({_shown(several)}); name one file"
            )
    if len(found) == 1 and not TYPES.keys() & found.keys():
        return {"train": files}
    return found


def _split_of(file: Path) -> str | None:
    """Return the split that a file's name shows, as in `train-00000-of-00002.parquet` and `gsm8k_test.jsonl`."""
    stem = _SHARD.sub("", file.stem).lower()
    words = {word for word in _WORDS.split(stem) if word in TYPES}
    return stem if stem in TYPES else words.pop() if len(words) == 1 else None


def _data_in(folder: Path) -> list[Path]:
    """Return the data files of a folder. JSON files count only where there are no others: many only describe data."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
    data = [file for file in files if file.suffix.lower() in _KINDS]
    return [file for file in data if file.suffix.lower() != ".json"] or data


def _saved(folder: Path) -> list[Path]:
    """Return the files of one dataset that `save_to_disk` wrote."""
    state = _content(folder / _STATE)
    if state.get("_indices_data_files"):
        raise AuthoringError(
            f"{folder} keeps a selection of rows apart from its data; save it again with "
            "dataset.flatten_indices().save_to_disk(…)"
        )
    return [folder / str(one.get("filename")) for one in state.get("_data_files") or () if isinstance(one, dict)]


def _names_in(file: Path, key: str) -> list[str]:
    names = _content(file).get(key)
    if not isinstance(names, list) or not names:
        raise AuthoringError(f"{file} names no {key}")
    return [str(name) for name in names]


def _content(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise AuthoringError(f"{file} cannot be read: {error}") from None
    return found if isinstance(found, dict) else {}


def _open(file: Path, target: Path) -> Table:
    """Return the table of a file, which messages name as seen from the target's folder."""
    kind = _KINDS.get(file.suffix.lower())
    if kind is None:
        raise AuthoringError(f"{file} has no format that is known here; there are {', '.join(_KINDS)}")
    if not file.is_file():
        raise AuthoringError(f"there is no file {file}, which {target} names")
    return kind(file, str(file.relative_to(target)) if file != target else file.name)


def _names(folder: Path) -> list[str]:
    return [child.name for child in folder.iterdir()] if folder.is_dir() else []


def _shown(files: Iterable[Path]) -> str:
    return ", ".join(file.name for file in files)


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
