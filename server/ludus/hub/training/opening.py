"""Opening and continuing training runs: what is written when a sender begins."""

from __future__ import annotations

import json
import secrets
from datetime import datetime
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from ludus.hub.database.tables import BlockedWheel, Package, Version, version_identity
from ludus.hub.database.training_tables import TrainingRun
from ludus.hub.people.audit import note
from ludus.hub.people.viewers import Viewer
from ludus.hub.registry.visibility import Sight
from ludus.hub.training.limits import TrainingLimits
from ludus.protocol.errors import CapacityError, InvalidParams, PayloadTooLarge
from ludus.protocol.text import truncate
from ludus.registry.types.errors import VersionBlocked
from ludus.registry.types.secrets import find_secret
from ludus.registry.types.training import CONFIG_BYTES, OpenTraining, TrainingEnvironment

LARGEST_DEPTH: Final = 20
"""The deepest nesting of a configuration."""


def check_config(sent: OpenTraining) -> str:
    """Return the configuration of a request as JSON.

    Raises:
        PayloadTooLarge: it is too large.
        InvalidParams: it nests too deep, or has what looks like a secret.
    """
    if _depth(sent.config) > LARGEST_DEPTH:
        raise InvalidParams(f"the configuration nests deeper than {LARGEST_DEPTH} levels")
    text = json.dumps(sent.config, allow_nan=False)
    if len(text) > CONFIG_BYTES:
        raise PayloadTooLarge(
            f"the configuration has {len(text):,} bytes as JSON; {CONFIG_BYTES:,} are possible: leave out what is long",
            limit="config_bytes",
        )
    found = find_secret(sent.config)
    if found is not None:
        raise InvalidParams(f"config.{found} looks like a secret; remove it from the configuration and send it again")
    return text


def check_environments(session: Session, viewer: Viewer, sent: OpenTraining) -> None:
    """Check that a run trains on no version whose wheel is blocked.

    Raises:
        VersionBlocked: it does.
    """
    named = [(each.package, each.version) for each in sent.environments if each.package and each.version]
    for package, version in named:
        owner, _, name = package.partition("/")
        query = (
            select(BlockedWheel.reason)
            .join(Version, Version.sha256 == BlockedWheel.sha256)
            .join(Package, Package.id == Version.package_id)
            .where(Package.owner == owner, Package.name == name, Version.identity == version_identity(version))
        )
        reason = session.scalars(query.where(Sight(viewer).visible())).first()
        if reason is not None:
            raise VersionBlocked.of(f"{package} {version}", reason)


def end_blocked(session: Session, package: str, version: str, reason: str, now: datetime) -> None:
    """End the running training runs of a version whose wheel is blocked."""
    running = select(TrainingRun).where(TrainingRun.state == "running", TrainingRun.environments.contains(package))
    for run in session.scalars(running.with_for_update()):
        environments = map(TrainingEnvironment.model_validate, json.loads(run.environments))
        versions = [each.version for each in environments if each.package == package and each.version is not None]
        if version_identity(version) in map(version_identity, versions):
            run.state, run.ended_at = "failed", now
            run.reason = truncate(f"{package} {version} is blocked on this hub: {reason}", 500)


def open_run(
    session: Session,
    limits: TrainingLimits,
    principal: str,
    sent: OpenTraining,
    config: str,
    now: datetime,
    address: str,
) -> tuple[TrainingRun, bool]:
    """Return the run that a sender opens, and whether it is new.

    Raises:
        CapacityError: the account has too many runs, or this one was continued too often.
    """
    query = select(TrainingRun).where(TrainingRun.principal == principal, TrainingRun.sender_key == sent.sender_key)
    run = session.scalars(query.with_for_update()).first()
    if run is None:
        return _add(session, limits, principal, sent, config, now, address), True
    if run.attempt == sent.attempt:
        return run, False
    attempts = json.loads(run.attempts)
    if len(attempts) >= limits.attempts:
        raise CapacityError(f"the run {run.key} was continued {len(attempts)} times already", limit="attempts")
    run.attempts = json.dumps([*attempts, [sent.resumed_from, now.timestamp()]])
    run.attempt, run.state, run.reason, run.ended_at = sent.attempt, "running", "", None
    run.config, run.trainer, run.steps, run.heard_at = config, sent.trainer, sent.steps, now
    run.environments = _environments(sent)
    run.summary, run.summary_upto, run.summary_values = None, 0, 0
    run.last_step = min(run.last_step, sent.resumed_from) if run.last_step is not None else None
    return run, False


def _add(
    session: Session, limits: TrainingLimits, principal: str, sent: OpenTraining, config: str, now: datetime,
    address: str,
) -> TrainingRun:  # fmt: skip
    count = session.scalar(select(func.count()).where(TrainingRun.principal == principal)) or 0
    if count >= limits.runs:
        raise CapacityError(
            f"{principal} has {count} training runs, the most of an account; delete some on the page /training",
            limit="training_runs",
        )
    run = TrainingRun(
        key=secrets.token_urlsafe(16), principal=principal, sender_key=sent.sender_key, name=sent.name,
        public=sent.visibility == "public", trainer=sent.trainer, config=config, environments=_environments(sent),
        steps=sent.steps, state="running", reason="", attempt=sent.attempt,
        attempts=json.dumps([[0, now.timestamp()]]), next_batch=0, points=0, values=0, size=0, metrics="[]",
        last_step=None, dropped=0, rollouts=0, created_at=now, heard_at=now, ended_at=None, summary=None,
        summary_upto=0, summary_values=0,
    )  # fmt: skip
    session.add(run)
    session.flush()
    note(session, "training run created", f"{run.key} {sent.name}", actor=principal, account=principal, address=address)
    return run


def _environments(sent: OpenTraining) -> str:
    return json.dumps([one.model_dump(mode="json", by_alias=True) for one in sent.environments])


def _depth(value: object) -> int:
    """Return how deep a JSON value nests, up to one more than what is allowed."""
    level: list[object] = [value]
    depth = 0
    while level and depth <= LARGEST_DEPTH:
        depth += 1
        level = [
            inner
            for one in level
            if isinstance(one, (dict, list))
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return depth
