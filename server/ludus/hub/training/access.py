"""Who sees and who changes a training run.

A private run is for its account and for administrators. For everyone else it is absent: the condition is part of each
query, so that the same queries run whether a run is private or does not exist.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, false, or_, true

from ludus.hub.database.training_tables import TrainingRun
from ludus.hub.people.viewers import Viewer
from ludus.protocol.errors import Forbidden, NotFound
from ludus.registry.types.people import HubScope


def visible_to(viewer: Viewer) -> ColumnElement[bool]:
    """Return the condition for runs that a viewer sees."""
    return or_(TrainingRun.public, own_of(viewer))


def own_of(viewer: Viewer) -> ColumnElement[bool]:
    """Return the condition for runs that a viewer sees even if they are private: their own, if the token covers them.

    An administrator's are all.
    """
    if viewer.is_admin:
        return true()
    covers = viewer.packages is None and bool({HubScope.READ, HubScope.TRAINING} & viewer.grants)
    return and_(true(), TrainingRun.principal == viewer.name) if covers and not viewer.is_stranger else false()


def require_sender(viewer: Viewer) -> None:
    """Check that a viewer may report training runs.

    Raises:
        Unauthenticated: nothing is known about the sender.
        Forbidden: the token lacks the scope `training`, or is limited to packages.
    """
    viewer.require(HubScope.TRAINING)
    if viewer.packages is not None:
        raise Forbidden("a token that is limited to packages cannot report training runs; make one without a limit")


def require_owner(viewer: Viewer, run: TrainingRun, *, moderates: bool = False) -> None:
    """Check that a visible run is the viewer's own.

    Args:
        viewer: the sender of the request.
        run: the run.
        moderates: whether administrators may do it with the runs of others.

    Raises:
        Forbidden: it is another account's.
    """
    if run.principal != viewer.name and not (moderates and viewer.is_admin):
        raise Forbidden(f"the training run {run.key} is of {run.principal!r}, not of {viewer.name!r}")


def no_run(key: str) -> NotFound:
    """Return the error for a run that does not exist, or that the sender does not see."""
    return NotFound(f"there is no training run {key[:40]!r}, or it is private and not yours")
