"""The games of TextArena that work without a network and without an account, and their numbers of players."""

from __future__ import annotations

from typing import Dict

GAMES: Dict[str, int] = {}
