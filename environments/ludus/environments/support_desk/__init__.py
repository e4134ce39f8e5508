"""The help desk of a generated company, with a simulated user."""

from __future__ import annotations

from ludus.environments.support_desk.environment import SupportDesk, SupportDeskTask

__all__ = ["SupportDesk", "SupportDeskTask"]
