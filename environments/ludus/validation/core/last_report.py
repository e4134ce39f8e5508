"""The episodes that a report holds, so that a later run can compare with them, and the reports in a file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from ludus.protocol.actions import Action, Answer, Call
from ludus.validation.core.transcripts import Script, Transcript

FORMAT: Final = "ludus.validation/0.1"
"""The format of reports."""

DIGEST_CHARS: Final = 16

LEFT_OUT: Final = ("task", "tools")
"""Events that may change without another outcome: descriptions, and public fields that no prompt shows."""


class RecordedEpisode(BaseModel):
    """An episode of a report."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    split: str
    task: str
    seed: int | None
    actions: tuple[dict[str, Any], ...]
    outcomes: tuple[tuple[str, str], ...]
    """What the environment gave, in order: names such as `observation 2`, with digests."""

    def script(self) -> Script:
        """Return its actions, to be played again."""
        actions: list[Action] = [
            Answer(action["answer"]) if "answer" in action else Call(action["tool"], action["arguments"])
            for action in self.actions
        ]
        return Script(self.split, self.task, self.seed, tuple(actions), "last report")


class LastReport(BaseModel):
    """What is read of an earlier report."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: Literal["ludus.validation/0.1"]
    environment: str
    version: str
    recorded: tuple[RecordedEpisode, ...] = ()


def read_reports(path: Path) -> Sequence[LastReport]:
    """Return the reports of a file that `ludus validate --out` wrote.

    Raises:
        ValueError: it is no such file.
        OSError: it cannot be read.
    """
    try:
        return TypeAdapter(tuple[LastReport, ...]).validate_json(path.read_bytes())
    except ValidationError as failure:
        reason = failure.errors(include_url=False)[0]["msg"]
        raise ValueError(f"{path} is no report that `ludus validate --out` wrote: {reason}") from None


def record(played: Iterable[tuple[Script, Transcript]]) -> tuple[RecordedEpisode, ...]:
    """Return episodes as a report holds them."""
    return tuple(
        RecordedEpisode(
            split=script.split, task=script.task, seed=script.seed, actions=script.as_json(),
            outcomes=tuple((name, digest_of(value)) for name, value in transcript.without(*LEFT_OUT)),
        )
        for script, transcript in played
    )  # fmt: skip


def digest_of(value: Any) -> str:
    """Return the digest of a part of an outcome."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:DIGEST_CHARS]
