"""The kinds of errands, by site."""

from __future__ import annotations

from ludus.environments.browser.goals import TEMPLATES
from ludus.environments.browser.templates import across, issues, shop, wiki

__all__ = ["TEMPLATES", "across", "issues", "shop", "wiki"]
