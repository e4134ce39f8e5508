"""Play Connect Four."""

from __future__ import annotations

from ludus.environments.connect_four.environment import ConnectFour, ConnectFourTask

__all__ = ["ConnectFour", "ConnectFourTask"]
