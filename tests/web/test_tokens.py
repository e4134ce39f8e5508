from __future__ import annotations

import hashlib
import json
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ludus.protocol.errors import Unauthenticated
from ludus.server.auth.tokens import (
    TokenFile,
    TokenFileError,
    TokenStore,
    new_token,
    parse_token_file,
    read_token_file,
    write_token_file,
)

SCOPES = ("tasks:read", "episodes:run")


def make(path: Path, name: str = "trainer", expires: datetime | None = None) -> str:
    token, record = new_token(name, SCOPES, expires)
    known = read_token_file(path).tokens if path.exists() else ()
    write_token_file(path, TokenFile(tokens=(*known, record)))
    return token


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "tokens.json"


def test_a_token_is_known_again_with_its_name_and_scopes(path: Path) -> None:
    token = make(path)
    principal = TokenStore(path).authenticate(token)
    assert (principal.name, principal.scopes) == ("trainer", frozenset(SCOPES))


def test_the_file_holds_the_hash_only_and_is_its_owners_alone(path: Path) -> None:
    token = make(path)
    assert token not in path.read_text()
    assert hashlib.sha256(token.encode()).hexdigest() in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_tokens_are_long_and_never_the_same() -> None:
    tokens = {new_token("a", SCOPES)[0] for _ in range(100)}
    assert len(tokens) == 100
    assert all(token.startswith("ludus_") and len(token) == len("ludus_") + 43 for token in tokens)


@pytest.mark.parametrize("token", ["", "ludus_", "x", "ludus_" + "A" * 43, "\udcff", "ж" * 1000])
def test_an_unknown_token_is_refused(path: Path, token: str) -> None:
    make(path)
    with pytest.raises(Unauthenticated, match="not known"):
        TokenStore(path).authenticate(token)


def test_an_expired_token_is_refused_by_name(path: Path) -> None:
    token = make(path, expires=datetime.now(UTC) - timedelta(seconds=1))
    with pytest.raises(Unauthenticated, match=r"'trainer'.*expired"):
        TokenStore(path).authenticate(token)


def test_a_changed_file_is_followed_in_both_directions(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ludus.server.auth.tokens.RELOAD_SECONDS", 0)
    first = make(path)
    store = TokenStore(path)
    second = make(path, "other")
    assert store.authenticate(second).name == "other"
    write_token_file(path, TokenFile())
    for token in (first, second):
        with pytest.raises(Unauthenticated):
            store.authenticate(token)


def test_the_file_is_looked_at_once_a_second_at_most(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = make(path)
    store = TokenStore(path)
    store.authenticate(token)
    looks: list[object] = []
    monkeypatch.setattr("ludus.server.auth.tokens._stamp", looks.append)
    for _ in range(100):
        store.authenticate(token)
    assert looks == []


def test_a_file_that_breaks_leaves_the_known_tokens_in_force(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("ludus.server.auth.tokens.RELOAD_SECONDS", 0)
    token = make(path)
    store = TokenStore(path)
    path.write_text("{")
    assert store.authenticate(token).name == "trainer"
    os.remove(path)
    assert store.authenticate(token).name == "trainer"
    assert store.authenticate(token).name == "trainer"
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]


def test_tokens_come_from_the_file_and_the_environment_together(path: Path) -> None:
    in_file = make(path)
    inline, record = new_token("inline", SCOPES)
    variables = {
        "LUDUS_TOKEN_FILE": str(path),
        "LUDUS_TOKENS": TokenFile(tokens=(record,)).model_dump_json(),
    }
    store = TokenStore.from_environment(None, variables)
    assert store is not None
    assert store.authenticate(in_file).name == "trainer"
    assert store.authenticate(inline).name == "inline"
    assert TokenStore.from_environment(None, {}) is None


RECORD = {"name": "a", "hash": "sha256:" + "0" * 64, "scopes": ["tasks:read"]}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "Invalid JSON"),
        ("[]", "object"),
        (json.dumps({"version": 2}), "version"),
        (json.dumps({"tokens": [{**RECORD, "hash": "md5:0"}]}), "tokens.0.hash"),
        (json.dumps({"tokens": [{**RECORD, "scopes": []}]}), "tokens.0.scopes"),
        (json.dumps({"tokens": [{**RECORD, "scopes": ["task:read"]}]}), "did you mean 'tasks:read'"),
        (json.dumps({"tokens": [{**RECORD, "scopes": ["splits:"]}]}), "no scope 'splits:'"),
        (json.dumps({"tokens": [{**RECORD, "expires": "2030-01-01T00:00:00"}]}), "timezone"),
        (json.dumps({"tokens": [{**RECORD, "token": "x"}]}), "tokens.0.token"),
        (json.dumps({"tokens": [RECORD, RECORD]}), "two tokens have the name 'a'"),
        (json.dumps({"tokens": [RECORD, {**RECORD, "name": "b"}]}), "two tokens have the hash"),
    ],
)
def test_a_bad_file_is_refused_with_the_place_and_the_reason(text: str, says: str) -> None:
    with pytest.raises(TokenFileError, match=r"^tokens\.json: ") as refused:
        parse_token_file(text, "tokens.json")
    assert says in str(refused.value)


def test_a_token_pasted_in_place_of_its_hash_is_not_repeated() -> None:
    token, _ = new_token("a", SCOPES)
    with pytest.raises(TokenFileError) as refused:
        parse_token_file(json.dumps({"tokens": [{**RECORD, "hash": token}]}), "tokens.json")
    assert token not in str(refused.value)


def test_a_missing_file_is_refused_with_the_command_that_makes_it(path: Path) -> None:
    with pytest.raises(TokenFileError, match="ludus token create --file"):
        TokenStore(path)


def test_a_name_or_scope_that_cannot_be_is_refused_when_the_token_is_made() -> None:
    for name, scopes in (("", SCOPES), ("a\nb", SCOPES), ("a", ()), ("a", ("everything",))):
        with pytest.raises(TokenFileError):
            new_token(name, scopes)
