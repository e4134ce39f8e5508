"""The cassettes of an environment: where their files are, and for which version they are."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from ludus.sandbox.core.cassette_settings import Cassette
from ludus.sandbox.core.errors import CassetteError


def folder_of(cls: type[Any], *declaring: str) -> Path | None:
    """Return the folder of the file of an environment's class; None if it is in no file.

    Args:
        cls: the class.
        declaring: class attributes; the first class in the order of inheritance that has one of them is preferred.
    """
    named = [one for one in cls.__mro__ if set(declaring) & set(vars(one))]
    for one in (*named, *cls.__mro__):
        if one.__module__ == "ludus.server.authoring.environment":
            break
        try:
            return Path(inspect.getfile(one)).resolve().parent
        except (OSError, TypeError):  # a class made without a file, such as a variant
            continue
    return None


def located_cassette(cls: type[Any], cassette: Cassette, *declaring: str) -> Cassette:
    """Return a cassette of a class with an absolute path, and with the version of the class unless it has its own.

    Raises:
        CassetteError: the path is relative, and the class is in no file.
    """
    path = Path(cassette.path)
    if not path.is_absolute():
        folder = folder_of(cls, *declaring)
        if folder is None:
            raise CassetteError(
                f"{cls.__qualname__} is in no file, so the path {cassette.path!r} of its cassette cannot be relative "
                "to one; give an absolute path"
            )
        path = folder / path
    return cassette.but(path=str(path), version=cassette.version or cls.version)
