"""Who may do what: trainer tokens for the control plane, capabilities for the play plane."""

from __future__ import annotations

from ludus.server.auth.capabilities import CapabilitySigner, Claims
from ludus.server.auth.tokens import TokenRecord, TokenStore, new_token

__all__ = ["CapabilitySigner", "Claims", "TokenRecord", "TokenStore", "new_token"]
