"""Loads difficulty files, so that curricula start from measured pass rates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ludus.protocol.errors import AuthoringError
from ludus.server.authoring.splits import indices_of, read_difficulty
from ludus.server.tasks.catalog import Published


def load_difficulty_files(catalog: Mapping[str, Published], paths: Iterable[str | Path]) -> None:
    """Add the pass rates in difficulty files to the curricula.

    Raises:
        AuthoringError: a file is not a difficulty file; its environment, version, split or tasks are not served; or
            two files are for one split.
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
        indices_of(published.splits[file.split], file, str(path))
        published.curricula[file.split].add_measured(file.counts())
