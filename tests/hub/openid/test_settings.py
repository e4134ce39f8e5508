"""The operator's file for an OpenID provider: what is refused at startup, and that the secret is never shown."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from ludus.hub.people.sessions import CONFIRMED
from ludus.hub.settings.openid import SECRET_VARIABLE, OpenIdSettings, check_callback, read_openid
from ludus.hub.site.openid_pages import CALLBACK
from ludus.protocol.errors import AuthoringError

PLAIN = 'issuer = "https://login.example.org"\nclient_id = "hub"\n'
SECRET = {SECRET_VARIABLE: "hush-hush"}


def read(folder: Path, text: str, variables: dict[str, str] | None = None) -> OpenIdSettings:
    (folder / "secret").write_text("hush-hush\n")
    (folder / "empty").write_text("\n")
    (folder / "openid.toml").write_text(text)
    found = read_openid(folder / "openid.toml", SECRET if variables is None else variables)
    assert found is not None
    return found


def test_the_secret_comes_from_a_variable_or_a_file_next_to_the_settings_and_is_not_shown(tmp_path: Path) -> None:
    for found in (read(tmp_path, PLAIN), read(tmp_path, PLAIN + 'client_secret_file = "secret"\n', {})):
        assert found.client_secret is not None
        assert found.client_secret.get_secret_value() == "hush-hush"
        assert "hush-hush" not in repr(found)
        assert "hush-hush" not in found.model_dump_json()
    assert read(tmp_path, PLAIN + "public_client = true\n", {}).client_secret is None


def test_the_button_names_the_host_unless_there_is_a_label(tmp_path: Path) -> None:
    assert read(tmp_path, PLAIN).name == "login.example.org"
    assert read(tmp_path, PLAIN + 'label = "Example"\n').name == "Example"


WRONG = {
    "": "issuer",
    "issuer = ": "cannot be read",
    'issuer = "https://login.example.org"': "client_id",
    PLAIN.replace("https:", "http:"): "not encrypted",
    PLAIN.replace("https://", ""): "not the address",
    PLAIN.replace(".org", ".org?a=b"): "not the address",
    PLAIN.replace("https://", "https://a:b@"): "not the address",
    PLAIN + 'isuer = "x"': "isuer: there is no such setting; did you mean 'issuer'",
    PLAIN + 'client_secret = "hush-hush"': "file of its own",
    PLAIN + 'client_secret_file = "secret"': "remove one",
    PLAIN + "public_client = true": "remove one",
    PLAIN + 'registration = "everyone"': "everyone",
    PLAIN + 'scopes = ["profile"]': "openid",
    PLAIN + 'scopes = ["openid"]\nallowed_domains = ["example.org"]': "email",
    PLAIN + 'allowed_domains = ["@example.org"]': "allowed_domains",
    PLAIN + 'allowed_domains = "example.org"': "allowed_domains",
    PLAIN + 'groups_claim = "roles"': "no effect",
    PLAIN + 'allowed_groups = [""]': "allowed_groups",
    PLAIN + 'passwords = "no way"': "passwords",
}


@pytest.mark.parametrize(("text", "words"), WRONG.items())
def test_unclear_settings_are_refused_with_a_sentence(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(AuthoringError, match=words) as refused:
        read(tmp_path, text)
    assert "hush-hush" not in refused.value.message


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "is missing"), ('client_secret_file = "empty"', "is empty"), ('client_secret_file = "no"', "cannot be read")],
)
def test_a_missing_secret_is_refused_with_a_sentence(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(AuthoringError, match=words):
        read(tmp_path, PLAIN + text, {})


def test_the_settings_of_the_page_are_those_of_the_code(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "hub-accounts.md").read_text(encoding="utf-8")
    text = page.partition("```toml\n")[2].partition("```")[0]
    (tmp_path / "client-secret").write_text("hush-hush")
    assert "client_secret_file" in text
    assert set(OpenIdSettings.model_fields) - {"client_secret"} == read(tmp_path, text, {}).model_fields_set - {
        "client_secret"
    } | {"public_client", "scopes"}
    assert f"within {CONFIRMED // timedelta(minutes=1)} minutes" in page
    assert CALLBACK in page


def test_a_secret_without_settings_is_refused() -> None:
    assert read_openid(None, {}) is None
    with pytest.raises(AuthoringError, match="--openid"):
        read_openid(None, SECRET)


def test_a_hub_that_others_reach_needs_an_encrypted_public_address(tmp_path: Path) -> None:
    openid = read(tmp_path, PLAIN)
    check_callback(None, None, on_loopback=False)
    check_callback(openid, None, on_loopback=True)
    check_callback(openid, "https://hub.example.org", on_loopback=False)
    for public_url, on_loopback in ((None, False), ("http://hub.example.org", False), ("http://hub.example.org", True)):
        with pytest.raises(AuthoringError, match="--public-url https"):
            check_callback(openid, public_url, on_loopback=on_loopback)


def test_the_command_refuses_unclear_settings_before_it_starts(tmp_path: Path) -> None:
    (tmp_path / "openid.toml").write_text(PLAIN)
    command = [sys.executable, "-m", "ludus.cli", "hub", "--port", "0", "--data", "data", "--openid", "openid.toml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode not in (0, 1)
    assert "the client secret is missing" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
