"""Who asks, and which packages they may see: the only place where results read packages and principals."""

from __future__ import annotations

from starlette.requests import Request

from ludus.hub.hub import Hub
from ludus.hub.registry.catalog import VersionRecord
from ludus.protocol.errors import Conflict, Forbidden
from ludus.protocol.methods import Scope
from ludus.protocol.results import RunInfo
from ludus.server.auth.principal import Principal


class Access:
    """Reads packages and principals for requests.

    Args:
        hub: the hub.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def submitter(self, request: Request) -> Principal:
        """Return the principal of a request that submits results or plays a run.

        Raises:
            Unauthenticated: there is no valid token.
        """
        return self._hub.authenticator.principal(request)

    def is_moderator(self, principal: Principal) -> bool:
        """Return whether a principal may remove the runs of others: the operator. A publisher competes itself."""
        return principal.may(Scope.ADMIN)

    def version(self, request: Request, owner: str, name: str, version: str | None) -> VersionRecord:
        """Return a version that the sender of a request may see.

        Raises:
            PackageNotFound: there is none, or it is private.
        """
        return self._hub.registry.version(owner, name, version)

    def is_publisher(self, principal: Principal, record: VersionRecord) -> bool:
        """Return whether a principal may publish versions of a package."""
        owner, _, name = record.id.partition("/")
        return principal.name in self._hub.registry.owners(owner, name)

    def check_rollouts(self, request: Request, principal: Principal, run: RunInfo) -> None:
        """Check that a principal may upload the trajectories of a run.

        Raises:
            Forbidden: the run is another account's.
            Conflict: the run was played here, or its split is a test split, whose tasks stay unpublished.
        """
        owner, _, name = run.package.partition("/")
        record = self.version(request, owner, name, run.version)
        if run.by != principal.name:
            raise Forbidden(f"the run {run.key} is of {run.by!r}, not of {principal.name!r}")
        splits = [split for one in record.environments if one.name == run.environment for split in one.splits]
        if any(split.name == run.split and split.type == "test" for split in splits):
            raise Conflict(f"{run.split!r} is a test split: trajectories would publish its tasks")
        if run.level != "reported":
            raise Conflict(f"the run {run.key} was played on this hub; only reported runs take trajectories")

    def check_run(self, request: Request, run: RunInfo) -> RunInfo:
        """Return a run if the sender of a request may see its package.

        Raises:
            NotFound: it is private.
        """
        owner, _, name = run.package.partition("/")
        self.version(request, owner, name, run.version)
        return run
