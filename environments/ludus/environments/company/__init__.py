"""A week's work in a company that remembers: the world of `workplace`, persisting across episodes."""

from __future__ import annotations

from ludus.environments.company.environment import Company, CompanyTask

__all__ = ["Company", "CompanyTask"]
