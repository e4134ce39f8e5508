"""Who sees which packages.

How this works: a private package is for those with the right to read it (`ludus.hub.access.rights`) and for
administrators. For everyone else it is absent. Everything that reads packages does so with a `Sight`, and leaves out
the rows of `Sight.hidden` in the query itself. So the same queries run in the same order, whether a package is private
or absent, and no code decides after it has looked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, Select, and_, false, not_, or_, select, true

from ludus.hub.access.rights import Right, packages_with
from ludus.hub.access.viewers import STRANGER, Viewer
from ludus.hub.database.tables import Package
from ludus.registry.types.people import HubScope


@dataclass(frozen=True)
class Sight:
    """What a viewer sees.

    Attributes:
        viewer: who looks.
        scope: the scope that the viewer's token must have for private packages.
    """

    viewer: Viewer = STRANGER
    scope: HubScope = HubScope.READ

    def hidden(self) -> Select[int]:
        """Return the query for the ids of packages that the viewer does not see."""
        return select(Package.id).where(Package.private, not_(self._readable()))

    def visible(self) -> ColumnElement[bool]:
        """Return the condition for rows of packages that the viewer sees."""
        return or_(not_(Package.private), self._readable())

    def _readable(self) -> ColumnElement[bool]:
        """Return the condition for private packages that the viewer may read."""
        viewer = self.viewer
        if viewer.is_stranger or self.scope not in viewer.grants:
            return false()
        if viewer.is_admin:
            return true()
        readable = packages_with(viewer, Right.READ)
        if viewer.packages is None:
            return readable
        return and_(readable, (Package.owner + "/" + Package.name).in_(sorted(viewer.packages)))


PUBLIC: Final = Sight()
"""What strangers see."""
