"""The settings of a cassette, and the environment variable that changes the mode of all of them."""

from __future__ import annotations

import os
import re
from typing import Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator

from ludus.sandbox.core.errors import CassetteError

CassetteMode = Literal["replay", "record", "record-missing"]

MODE_VARIABLE: Final = "LUDUS_CASSETTE"
"""The environment variable with the mode of all cassettes of a server, which overrides that in their settings."""

_MIB: Final = 1024 * 1024
_IGNORED: Final = re.compile(r"(query|body|argument):\S+|body")


class Cassette(BaseModel):
    """A file of recorded answers: of web servers to a sandbox's requests, or of calls that an environment makes."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    path: str = Field(min_length=1)
    """The file. A relative path starts at the folder of the environment's file."""
    mode: CassetteMode = "replay"
    """"replay" answers from the file alone and sends nothing outside; "record" asks again and replaces the file;
    "record-missing" asks only what the file lacks. The environment variable LUDUS_CASSETTE overrides it."""
    miss: Literal["unscored", "refuse"] = "unscored"
    """What happens when a sandbox requests what is not in the file: the episode ends unscored; or the request is
    refused with status 504 and the episode goes on, so that the policy pays for it. A call always raises
    `CassetteMiss`, which leaves the episode unscored."""
    repeat: bool = True
    """Whether the last answer is given again when an episode asks the same more often than it was recorded."""
    ignore: tuple[str, ...] = (
        "query:access_token", "query:api_key", "query:apikey", "query:password", "query:secret", "query:signature",
    )  # fmt: skip
    """Parts of a request that may differ, and are not written: `query:NAME`, `body` for all of it, `body:NAME` for a
    field of a JSON object, `argument:NAME` for an argument of a call."""
    headers: tuple[str, ...] = ()
    """The headers of a request that must be equal too, and are written. Others are neither compared nor written."""
    body_bytes: int = Field(default=16 * _MIB, ge=0)
    """The maximum size of a request's body, and of an answer's."""
    version: str = ""
    """The version that the file is for; a file that was recorded for another one is refused. The server puts the
    version of the environment here unless it is set."""

    @field_validator("path")
    @classmethod
    def _check_path(cls, path: str) -> str:
        if "\0" in path:
            raise ValueError("a path has no null bytes")
        return path

    @field_validator("ignore")
    @classmethod
    def _check_ignored(cls, ignore: tuple[str, ...]) -> tuple[str, ...]:
        for part in ignore:
            if not _IGNORED.fullmatch(part):
                raise ValueError(
                    f"{part!r} is no part of a request: write query:NAME, body, body:NAME or argument:NAME"
                )
        return ignore

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, headers: tuple[str, ...]) -> tuple[str, ...]:
        names = tuple(name.lower() for name in headers)
        if secret := {"authorization", "cookie", "proxy-authorization"} & set(names):
            raise ValueError(f"the header {min(secret)!r} is secret, and would be written to the file")
        return names

    def but(self, **changes: Any) -> Cassette:
        """Return a copy of these settings with the given changes."""
        return Cassette(**{**dict(self), **changes})


def mode_of(settings: Cassette) -> CassetteMode:
    """Return the mode of a cassette: that of the environment variable, or else of its settings.

    Raises:
        CassetteError: the variable names no mode.
    """
    named = os.environ.get(MODE_VARIABLE, "")
    if not named:
        return settings.mode
    for mode in get_args(CassetteMode):
        if named == mode:
            return mode  # type: ignore[no-any-return]
    raise CassetteError(f"{MODE_VARIABLE} is {named!r}; it must be one of {', '.join(get_args(CassetteMode))}")
