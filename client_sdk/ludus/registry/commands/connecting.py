"""Clients of hubs with the token that a command was given, or that `ludus account login` has kept."""

from __future__ import annotations

from typing import TypeVar

from ludus.registry.client import RegistryClient
from ludus.registry.credentials import saved_token

ClientT = TypeVar("ClientT", bound=RegistryClient)


def connect(hub: str, token: str | None) -> RegistryClient:
    """Return a client with a token, or with the one that `ludus account login` has kept for the hub."""
    return connect_as(RegistryClient, hub, token)


def connect_as(kind: type[ClientT], hub: str, token: str | None) -> ClientT:
    """Return a client of a subclass of `RegistryClient`, with the same token as `connect`."""
    return kind(hub, token or saved_token(hub))
