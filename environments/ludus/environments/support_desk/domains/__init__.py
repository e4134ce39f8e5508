"""The businesses: a shop, an airline, a phone company and a club of subscriptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ludus.environments.support_desk.domains.airline import AIRLINE
from ludus.environments.support_desk.domains.media import MEDIA
from ludus.environments.support_desk.domains.shop import SHOP
from ludus.environments.support_desk.domains.telecom import TELECOM
from ludus.environments.support_desk.kinds import Domain

DOMAINS: Final[Mapping[str, Domain]] = {one.name: one for one in (SHOP, AIRLINE, TELECOM, MEDIA)}
"""The domains by name."""
