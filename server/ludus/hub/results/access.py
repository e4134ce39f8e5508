"""Who asks, and which packages they may see: all requests about results read packages and principals here."""

from __future__ import annotations

from sqlalchemy import Select, select
from starlette.requests import Request

from ludus.hub.access.viewers import Viewer
from ludus.hub.access.visibility import Sight
from ludus.hub.core.peers import public_of
from ludus.hub.database.tables import Package
from ludus.hub.endpoints.hosts import PlayAddress
from ludus.hub.parts.hub import Hub
from ludus.hub.registry.catalog import VersionRecord
from ludus.hub.results.store import no_run
from ludus.protocol.errors import Conflict, Forbidden
from ludus.protocol.methods import Scope
from ludus.registry.types.errors import PackageNotFound
from ludus.registry.types.people import HubScope
from ludus.registry.types.results import RunInfo
from ludus.server.auth.principal import Principal


class Access:
    """Reads packages and principals for requests.

    Args:
        hub: the hub.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def submitter(self, request: Request, package: str | None = None) -> Viewer:
        """Return the sender of a request that submits results or plays a run.

        Args:
            request: the request.
            package: the package that it is about, as `owner/name`; None if it names a run.

        Raises:
            Unauthenticated: there is no valid token.
            Forbidden: the token lacks the scope `results`, or is limited to other packages.
        """
        viewer = self._hub.authenticator.principal(request)
        viewer.require(HubScope.RESULTS, package)
        return viewer

    def is_moderator(self, principal: Principal) -> bool:
        """Return whether a principal may remove the runs of others: the operator. A publisher competes itself."""
        return principal.may(Scope.ADMIN)

    def version(self, request: Request, owner: str, name: str, version: str | None) -> VersionRecord:
        """Return a version that the sender of a request may see.

        Raises:
            PackageNotFound: there is none, or it is private.
        """
        return self._hub.catalog(request).version(owner, name, version)

    def is_publisher(self, principal: Viewer, record: VersionRecord) -> bool:
        """Return whether a principal may publish versions of a package."""
        owner, _, name = record.id.partition("/")
        return self._hub.catalog_of(principal).publishes(owner, name)

    def check_rollouts(self, request: Request, principal: Viewer, run: RunInfo) -> None:
        """Check that a principal may upload the trajectories of a run.

        Raises:
            Forbidden: the run is another account's.
            Conflict: the run was played here, or its split is a test split, whose tasks stay unpublished.
        """
        self.check_acting(request, principal, run)
        owner, _, name = run.package.partition("/")
        record = self.version(request, owner, name, run.version)
        if run.by != principal.name:
            raise Forbidden(f"the run {run.key} is of {run.by!r}, not of {principal.name!r}")
        splits = [
            split
            for environment in record.environments
            if environment.name == run.environment
            for split in environment.splits
        ]
        if any(split.name == run.split and split.type == "test" for split in splits):
            raise Conflict(f"{run.split!r} is a test split: trajectories would publish its tasks")
        if run.level != "reported":
            raise Conflict(f"the run {run.key} was played on this hub; only reported runs take trajectories")

    def hidden(self, request: Request) -> Select[str]:
        """Return the query for the packages, as `owner/name`, that the sender of a request does not see."""
        ids = Sight(self._hub.viewer(request, of_page=True)).hidden()
        return select(Package.owner + "/" + Package.name).where(Package.id.in_(ids))

    def check_acting(self, request: Request, viewer: Viewer, run: RunInfo) -> None:
        """Check that the sender of a request sees the package of a run, and that its token covers the package.

        Raises:
            NotFound: the package is private.
            Forbidden: the token is limited to other packages.
        """
        self.check_run(request, run)
        viewer.require(HubScope.RESULTS, run.package)

    def check_run(self, request: Request, run: RunInfo) -> RunInfo:
        """Return a run if the sender of a request may see its package.

        Raises:
            NotFound: it is private; the error is that of a run that does not exist.
        """
        if not self.sees(request, run.package, run.version):
            raise no_run(run.key)
        return run

    def sees(self, request: Request, package: str, version: str) -> bool:
        """Return whether the sender of a request may see a package, `owner/name`, and it has the version."""
        owner, _, name = package.partition("/")
        try:
            self.version(request, owner, name, version)
        except PackageNotFound:
            return False
        return True

    def check_offered(self, request: Request, info: RunInfo) -> None:
        """Check that the hub still plays the wheel with which a run was registered.

        Raises:
            Conflict: since then its version has been found to equal another one, which is played instead.
        """
        owner, _, name = info.package.partition("/")
        offered = self.version(request, owner, name, info.version)
        if offered.sha256 != info.sha256:
            raise Conflict(
                f"{info.package} {info.version} is the same version as {offered.version}, which the hub keeps in its "
                "place; register again"
            )

    def place(
        self, request: Request, package: str, version: str, play_address: PlayAddress, process: str
    ) -> tuple[str, str] | None:
        """Return where a version runs, for the hub and for players; None if the hub runs no environments.

        Args:
            request: the request.
            package, version: the version.
            play_address: where versions run.
            process: the id of this process, which plays.
        """
        owner, _, name = package.partition("/")
        address = play_address(request, owner, name, version)
        if address is None:
            return None
        return address, public_of(self._hub.base_url(request), process, self._hub.settings.peer_url, package, version)
