"""The settings of endpoints, as the documentation shows them, and passes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from ludus.hub.endpoints.passes import Passes, pass_of
from ludus.hub.settings.endpoints import EndpointSettings, read_settings
from ludus.protocol.errors import AuthoringError, Unauthenticated
from ludus.server.auth.principal import Principal

DOCS = Path(__file__).resolve().parents[3] / "docs" / "hub-endpoints.md"


def test_the_settings_in_the_documentation_are_the_defaults(tmp_path: Path) -> None:
    text = DOCS.read_text("utf-8").partition("```toml\n")[2].partition("```")[0]
    (tmp_path / "endpoints.toml").write_text(text)
    found = read_settings(tmp_path / "endpoints.toml")
    assert found.secrets == {"alice/my-env": {"API_KEY": "..."}}
    assert found.model_copy(update={"secrets": {}}) == EndpointSettings()
    assert set(tomllib.loads(text)) <= set(EndpointSettings.model_fields)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("idle_secs = 1", "idle_secs: there is no such setting; did you mean 'idle_seconds'"),
        ("idle_seconds = -1", "idle_seconds"),
        ("[limits]\nmemory = 'much'", "limits.memory"),
        ("not toml", "cannot be read"),
    ],
)
def test_settings_that_are_wrong_are_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "endpoints.toml"
    file.write_text(text)
    with pytest.raises(AuthoringError, match=message):
        read_settings(file)
    with pytest.raises(AuthoringError, match="cannot be read"):
        read_settings(tmp_path / "missing.toml")


def test_secrets_are_not_shown_with_the_settings() -> None:
    assert "hidden" not in repr(EndpointSettings(secrets={"ada/counter": {"KEY": "hidden"}}))


def test_a_pass_names_its_principal_and_opens_no_other_endpoint() -> None:
    principal = Principal("ada", frozenset({"episodes:run"}))
    token = pass_of("one", principal)
    assert token == pass_of("one", principal)
    found = Passes("one")
    seen = found.authenticate(token)
    assert (seen.name, seen.scopes) == ("ada", principal.scopes)
    assert found.still_may(seen.credential, "episodes:run")
    assert not found.still_may(seen.credential, "admin")
    for other in (pass_of("two", principal), token[:-1], "", "x.y", pass_of("one", Principal("eve", frozenset()))[1:]):
        with pytest.raises(Unauthenticated):
            found.authenticate(other)


def test_a_pass_ends_with_the_token_that_it_stands_for() -> None:
    ended = Principal("ada", frozenset({"episodes:run"}), expires_at=1.0)
    with pytest.raises(Unauthenticated, match="expired"):
        Passes("one").authenticate(pass_of("one", ended))
