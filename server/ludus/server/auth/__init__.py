"""Authentication and authorization: trainer tokens for the control plane, capabilities for the agent endpoint."""

from __future__ import annotations

from ludus.server.auth.capabilities import CapabilitySigner, Claims
from ludus.server.auth.tokens import TokenRecord, TokenStore, new_token

__all__ = ["CapabilitySigner", "Claims", "TokenRecord", "TokenStore", "new_token"]
