"""Checks what a class declares about the durability of its episodes."""

from __future__ import annotations

from typing import Any, get_args

from ludus.protocol.errors import AuthoringError
from ludus.server.authoring.environment import Durable, Environment


def check_durability(cls: type[Environment[Any]], where: str) -> None:
    """Refuse a class whose declarations of durability contradict each other.

    Raises:
        AuthoringError: with what to change.
    """
    if cls.durable not in get_args(Durable):
        raise AuthoringError(f"{where}.durable is {cls.durable!r}; it must be one of {', '.join(get_args(Durable))}")
    if not isinstance(cls.snapshot_every, int) or cls.snapshot_every < 1:
        raise AuthoringError(f"{where}.snapshot_every is {cls.snapshot_every!r}; give a number of steps, at least 1")
    own_snapshot = cls.snapshot is not Environment.snapshot
    if own_snapshot != (cls.restore is not Environment.restore):
        defined, missing = ("snapshot", "restore") if own_snapshot else ("restore", "snapshot")
        raise AuthoringError(f"{where} defines {defined}(self) without {missing}; define both")
    sandboxed = cls.sandbox_settings is not None or cls.chooses_sandboxes()
    if cls.durable == "snapshot":
        if not own_snapshot and not sandboxed:
            raise AuthoringError(
                f'{where} has durable = "snapshot" and nothing to save: define snapshot(self) and restore(self, state)'
            )
        if cls.cassette_settings is not None:
            raise AuthoringError(
                f'{where} has durable = "snapshot" and a cassette, whose place is in no snapshot; use "replay"'
            )
    if cls.outside_effects:
        if cls.durable == "replay":
            raise AuthoringError(
                f'{where} acts on the outside, so its calls must not be repeated: set `durable` to "snapshot" or "none"'
            )
        if cls.forkable or cls.snapshot_every != 1:
            raise AuthoringError(
                f"{where} acts on the outside, so it needs `forkable = False` and `snapshot_every = 1`"
            )
