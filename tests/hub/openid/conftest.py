"""Hubs with an OpenID provider, shared by the tests of a file; each test uses identities and names of its own."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from openid_people import OpenIdHub, openid_hub


@pytest.fixture(scope="module")
def hub(request: pytest.FixtureRequest, kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenIdHub]:
    """A hub over each database where everyone whom the provider knows may register."""
    database = None if kind == "sqlite" else request.getfixturevalue("postgres").new_url()
    with openid_hub(tmp_path_factory.mktemp("openid"), database) as found:
        yield found


@pytest.fixture(scope="module")
def one_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenIdHub]:
    """The same over SQLite alone, for what does not depend on the database."""
    with openid_hub(tmp_path_factory.mktemp("openid")) as found:
        yield found


@pytest.fixture
def browser(one_hub: OpenIdHub) -> httpx.Client:
    """A browser of a stranger at that hub."""
    return one_hub.browser()
