"""Write or repair a Python function or class."""

from __future__ import annotations

from ludus.environments.code.environment import Code
from ludus.environments.code.tasks import CodeTask

__all__ = ["Code", "CodeTask"]
