"""The errors of this package.

RenderingError
└── TemplateExceeded    a template from outside needs more time, memory or text than it may use
"""

from __future__ import annotations


class RenderingError(Exception):
    """A chat template cannot be used, or cannot render a conversation."""


class TemplateExceeded(RenderingError):
    """A template from outside needs more time, memory or text than one rendering may use."""
