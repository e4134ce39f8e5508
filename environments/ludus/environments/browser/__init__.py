"""Do errands in a web shop, a wiki and an issue tracker with a real browser."""

from __future__ import annotations

from ludus.environments.browser.environment import Browser, BrowserTask

__all__ = ["Browser", "BrowserTask"]
