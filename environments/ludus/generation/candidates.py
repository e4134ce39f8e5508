"""Candidates for tasks, and why one is not kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from ludus.generation.task_folder import Calibrated
from ludus.protocol.tasks import Task

Reason = Literal[
    "endpoint", "refused", "truncated", "malformed", "schema", "held_out", "contaminated", "duplicate",
    "near_duplicate", "broken", "unsolvable", "unscored", "free_reward", "validate", "too_easy", "too_hard",
    "not_calibrated",
]  # fmt: skip
"""Why a reply or a candidate is not kept."""

REASONS: Final[Mapping[Reason, str]] = {
    "endpoint": "the request to the model failed",
    "refused": "the model or its content filter refused",
    "truncated": "the reply reached its limit of tokens and holds no whole task",
    "malformed": "the reply holds no task as JSON",
    "schema": "the proposal does not fit the form of a task, or the environment refuses it",
    "held_out": "the environment says that it belongs to a split that is not for training",
    "contaminated": "it is a held-out task of the environment, or nearly one",
    "duplicate": "it is a task that exists already",
    "near_duplicate": "it is nearly a task that exists already",
    "broken": "an episode of it failed",
    "unsolvable": "the oracle does not earn the best reward",
    "unscored": "the oracle's episode has no reward",
    "free_reward": "a policy that solves nothing earns more than the random baseline",
    "validate": "`ludus validate` finds a fault in it",
    "too_easy": "the calibrating policy solves it too often",
    "too_hard": "the calibrating policy solves it too rarely",
    "not_calibrated": "the calibrating policy's episodes failed",
}
assert set(REASONS) == set(get_args(Reason))


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a reply or a candidate is not kept."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A task that was proposed."""

    number: int
    task: Task
    model: str | None = None
    prompt: str | None = None
    source: str | None = None

    def with_calibration(self, calibration: Calibrated | None) -> Kept:
        """Return this candidate as one that is kept."""
        return Kept(self, calibration)


@dataclass(frozen=True, slots=True)
class Kept:
    """A candidate that passed every check."""

    candidate: Candidate
    calibration: Calibrated | None


@dataclass(frozen=True, slots=True)
class Rejected:
    """A reply or candidate that is not kept."""

    number: int
    rejection: Rejection
    content: Any
    """The proposal as JSON, or the text of a reply without one."""


def content_digest(fields: Mapping[str, Any]) -> str:
    """Return a hash of a task's fields."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True, default=str).encode("utf-8", "replace")).hexdigest()[:32]
