"""Negotiate over items, contracts and prices."""

from __future__ import annotations

from ludus.environments.negotiation.environment import Negotiation
from ludus.environments.negotiation.tasks import NegotiationTask

__all__ = ["Negotiation", "NegotiationTask"]
