"""The error of this package."""

from __future__ import annotations


class RenderingError(Exception):
    """A chat template cannot be used, or cannot render a conversation."""
