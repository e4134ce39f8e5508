"""Ready-made tools of an agent at a computer: a browser and office programs, which run inside the episode's sandbox."""

from __future__ import annotations

from ludus.environments.computer.browser import browser_settings, missing_for_browser, open_browser
from ludus.environments.computer.office import missing_for_office, office_settings, open_office

__all__ = [
    "browser_settings",
    "missing_for_browser",
    "missing_for_office",
    "office_settings",
    "open_browser",
    "open_office",
]
