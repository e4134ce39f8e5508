"""Difficulty files on the server: splits narrowed to what was measured, and curricula that begin with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludus.protocol.difficulty import DifficultyFile, parse_difficulty
from ludus.protocol.errors import AuthoringError, ParseError

if TYPE_CHECKING:
    from ludus.server.authoring.splits import Split
    from ludus.server.tasks.catalog import Published


def read_difficulty(path: str | Path) -> DifficultyFile:
    """A difficulty file.

    Raises:
        AuthoringError: there is no such file, or it is none.
    """
    try:
        return parse_difficulty(Path(path).read_bytes(), str(path))
    except OSError as error:
        where = "" if Path(path).is_absolute() else f" (seen from {Path.cwd()})"
        raise AuthoringError(f"the difficulty file {path} cannot be read{where}: {error.strerror}") from None
    except ParseError as error:
        raise AuthoringError(error.message) from None


def check_narrowed(names: Sequence[str], version: str, splits: Mapping[str, Split[Any]]) -> None:
    """Refuse splits that were narrowed by a measurement of something else.

    Args:
        names: what the environment is called, and the classes that it inherits its splits from.
        version: the environment's.
        splits: all its splits.

    Raises:
        AuthoringError: a file is of another environment, version or split.
    """
    for name, split in splits.items():
        chain: list[Split[Any]] = [split]
        while (narrowed := chain[-1].narrowed) is not None:
            chain.append(narrowed.base)
        for link in chain[:-1]:
            assert link.narrowed is not None
            file, path = link.narrowed.file, link.narrowed.path
            wrong = file.mismatch(file.environment if file.environment in names else names[0], version)
            if wrong is None and file.split in splits and splits[file.split] not in chain:
                wrong = (
                    f"it was measured on the split {file.split!r}, which is another one; narrow that, or measure this "
                    "one with `ludus calibrate --difficulty`"
                )
            if wrong is not None:
                raise AuthoringError(f"split {name!r} of {names[0]!r} is narrowed by {path}: {wrong}")


def pick(split: Split[Any], file: DifficultyFile, path: str, wanted: Iterable[str]) -> list[Any]:
    """The wanted tasks of a split, in its order.

    Raises:
        AuthoringError: the file tells of tasks that the split does not have.
    """
    places = _places(split, file, path)
    return [split.get(place) for place in sorted(places[task] for task in wanted)]


def prime(catalog: Mapping[str, Published], paths: Iterable[str | Path]) -> None:
    """Let curricula begin with what was measured.

    Raises:
        AuthoringError: a file is none, is of an environment, version, split or tasks that are not served, or two are
            of one split.
    """
    seen: dict[tuple[str, str], str | Path] = {}
    for path in paths:
        file = read_difficulty(path)
        published = catalog.get(file.environment)
        if published is None:
            names = ", ".join(map(repr, catalog))
            raise AuthoringError(
                f"{path} was measured on {file.environment!r}, which is not served here: there is {names}"
            )
        wrong = file.mismatch(published.name, published.cls.version, published.splits)
        if wrong is not None:
            raise AuthoringError(f"{path} cannot be used: {wrong}")
        key = (file.environment, file.split)
        if key in seen:
            raise AuthoringError(f"{seen[key]} and {path} are both of split {file.split!r} of {file.environment!r}")
        seen[key] = path
        _places(published.splits[file.split], file, str(path))
        published.curriculum(file.split).prime(file.counts())


def _places(split: Split[Any], file: DifficultyFile, path: str) -> dict[str, int]:
    places: dict[str, int] = {}
    unknown = []
    for task in file.tasks:
        try:
            places[task] = split.find(task)[0]
        except KeyError:
            unknown.append(task)
    if unknown:
        raise AuthoringError(
            f"{path} tells of {len(unknown)} tasks that the split does not have, {unknown[0]!r} for one: its tasks are "
            "others than those that were measured; measure again with `ludus calibrate --difficulty`"
        )
    return places
