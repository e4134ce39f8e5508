"""The results of a hub for clients: uploads of evaluations, played runs, boards and receipts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from pydantic import ValidationError

from ludus.protocol.errors import InvalidParams, NotFound, ParseError
from ludus.protocol.messages import describe_invalid
from ludus.registry.client import TRANSFER_SECONDS, RegistryClient
from ludus.registry.types.receipts import Receipt
from ludus.registry.types.results import (
    Board,
    BoardKey,
    EndEpisodeParams,
    EpisodeEnd,
    NextEpisode,
    OpenTickets,
    RunEpisode,
    RunEpisodes,
    RunInfo,
    RunParams,
    Submission,
)
from ludus.registry.types.strict_json import read_strict

START_SECONDS: Final = 300.0
"""How long the start of an endpoint and of an episode may take."""

LARGEST_RECEIPT: Final = 64 * 1024 * 1024
"""The largest receipt that is read, in bytes."""


class ResultsClient(RegistryClient):
    """A connection to a hub, with its results; see `RegistryClient`."""

    async def submit(self, package: str, version: str, submission: Submission) -> RunInfo:
        """Upload the results of an evaluation.

        Raises:
            Conflict: the version is yanked, or another account has uploaded exactly this.
            DigestMismatch: the results are about another wheel than that of the version.
            InvalidParams: they contradict themselves or the environment.
        """
        where = f"{version_path(package, version)}/results"
        return await self._call(
            "POST", where, RunInfo, seconds=TRANSFER_SECONDS, data=submission.model_dump_json(by_alias=True),
        )  # fmt: skip

    async def upload_rollouts(self, run: str, file: Path) -> RunInfo:
        """Upload the trajectories of a reported run, for all to see.

        Raises:
            Conflict: the split is a test split, whose tasks stay unpublished.
            PayloadTooLarge: the file is larger than the hub keeps.
        """
        with file.open("rb") as data:
            return await self._call("POST", f"{_run(run)}/rollouts", RunInfo, seconds=TRANSFER_SECONDS, data=data)

    async def register(self, package: str, version: str, params: RunParams) -> RunInfo:
        """Register a played run. The hub starts the version's endpoint and draws the tasks.

        Raises:
            CapacityError: the account or the hub has too many runs.
            InvalidParams: the split has too few tasks, or the run would be too large.
        """
        where = f"{version_path(package, version)}/runs"
        return await self._call(
            "POST", where, RunInfo, seconds=START_SECONDS, data=params.model_dump_json(by_alias=True)
        )

    async def next_episode(self, run: str) -> NextEpisode:
        """Let the hub start the next episode of a run."""
        return await self._call("POST", f"{_run(run)}/episodes", NextEpisode, seconds=START_SECONDS)

    async def open_episodes(self, run: str) -> OpenTickets:
        """Return the open episodes of a run."""
        return await self._call("GET", f"{_run(run)}/episodes", OpenTickets)

    async def end_episode(self, run: str, place: int, params: EndEpisodeParams) -> EpisodeEnd:
        """Say that an episode is done. If it still runs, the hub closes it, and it counts with the lowest reward."""
        where = f"{_run(run)}/episodes/{place}/end"
        return await self._call("POST", where, EpisodeEnd, data=params.model_dump_json(by_alias=True))

    async def end_run(self, run: str) -> RunInfo:
        """End a run. What is missing counts with the lowest reward."""
        return await self._call("POST", f"{_run(run)}/end", RunInfo, seconds=START_SECONDS)

    async def run(self, run: str) -> RunInfo:
        """Return a run."""
        return await self._call("GET", _run(run), RunInfo)

    async def rows(self, run: str, page: int = 1) -> RunEpisodes:
        """Return one page of the episodes of an ended run."""
        return await self._call("GET", f"{_run(run)}/rows", RunEpisodes, params=[("page", str(page))])

    async def receipt(self, run: str) -> Receipt:
        """Return the signed receipt of an ended played run."""
        return await self._call("GET", f"{_run(run)}/receipt", Receipt)

    async def board(self, key: BoardKey) -> Board:
        """Return a board."""
        query = [("environment", key.environment), ("split", key.split), ("level", key.level)]
        return await self._call("GET", f"{version_path(key.package, key.version)}/board", Board, params=query)

    async def remove_run(self, run: str, reason: str) -> RunInfo:
        """Take a run off its board."""
        return await self._call("POST", f"{_run(run)}/remove", RunInfo, json={"reason": reason})


def read_receipt(path: Path) -> Receipt:
    """Read a receipt file.

    Raises:
        NotFound: it cannot be read.
        ParseError: it is no receipt, or readers read it in different ways; the message names the field.
    """
    data = read_receipt_file(path)
    read_strict(data, f"the receipt {path}")
    try:
        return Receipt.model_validate_json(data)
    except ValidationError as error:
        raise invalid_file(path, "a receipt", error) from None


def read_rows(path: Path) -> tuple[RunEpisode, ...]:
    """Read the rows of a run: an answer of the hub's API, `{"episodes": […]}`, or one row in each line.

    Raises:
        NotFound: the file cannot be read.
        ParseError: it has no rows; the message names the field.
    """
    data = read_receipt_file(path)
    try:
        if _has_episodes(data):
            read_strict(data, f"the file {path}")
            return RunEpisodes.model_validate_json(data).episodes
        lines = [line for line in data.splitlines() if line.strip()]
        for number, line in enumerate(lines, start=1):
            read_strict(line, f"row {number} of {path}")
        return tuple(RunEpisode.model_validate_json(line) for line in lines)
    except ValidationError as error:
        raise invalid_file(path, "the rows of a run", error) from None


def read_receipt_file(path: Path) -> bytes:
    """Return the bytes of a file with a receipt or rows.

    Raises:
        NotFound: it cannot be read.
        InvalidParams: it is too large.
    """
    try:
        if path.stat().st_size > LARGEST_RECEIPT:
            raise InvalidParams(f"{path} is larger than {LARGEST_RECEIPT >> 20} MiB, so it is not read")
        return path.read_bytes()
    except OSError as error:
        raise NotFound(f"cannot read {path}: {error.strerror}") from None


def _has_episodes(data: bytes) -> bool:
    try:
        whole: Any = json.loads(data)
    except ValueError:
        return False
    return isinstance(whole, dict) and "episodes" in whole


def invalid_file(path: Path, what: str, error: ValidationError) -> ParseError:
    """Return the error for a file that does not hold what it should."""
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    return ParseError(f"{path} does not hold {what}: {field + ': ' if field else ''}{describe_invalid(first)}")


def version_path(package: str, version: str) -> str:
    """Return the path of a version in a hub's API.

    Raises:
        InvalidParams: the package is not written as owner/name.
    """
    owner, slash, name = package.partition("/")
    if not (owner and slash and name) or "/" in name:
        raise InvalidParams(f"{package!r} is not the name of an environment on a hub; write it as owner/name")
    return f"/environments/{quote(owner, safe='')}/{quote(name, safe='')}/versions/{quote(version, safe='')}"


def _run(run: str) -> str:
    return f"/runs/{quote(run, safe='')}"
