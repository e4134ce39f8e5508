"""Commands against a server that wants a token."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Ludus = Callable[..., CompletedProcess[str]]
TokenFor = Callable[..., str]


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


@pytest.fixture
def token_for(ludus: Ludus, tokens: Path) -> TokenFor:
    """`token = token_for("tasks:read", …)`."""

    def create(*scopes: str) -> str:
        options = [part for scope in scopes for part in ("--scope", scope)]
        done = ludus("token", "create", "--name", f"t{len(scopes)}", *options, "--file", tokens)
        assert done.returncode == 0, done.stderr
        return next(word for word in done.stdout.split() if word.startswith("ludus_"))

    return create


def test_a_token_opens_what_its_scopes_allow(
    ludus: Ludus, token_for: TokenFor, tokens: Path, world: Path, serve_process: Callable[..., str]
) -> None:
    full = token_for("tasks:read", "episodes:run", "rewards:read")
    blind = token_for("tasks:read", "episodes:run")
    url = serve_process(f"{world}:Sums", "--token-file", str(tokens))

    refused = ludus("envs", url)
    assert refused.returncode == 3
    assert "--token or LUDUS_TOKEN" in refused.stderr
    wrong = ludus("envs", url, "--token", "ludus_wrong")
    assert wrong.returncode == 3
    assert "ludus_wrong" not in wrong.stderr

    assert ludus("envs", url, "--token", full).returncode == 0
    oracle = ("run", url, "sums", "--policy", "oracle", "--source", f"{world}:Sums", "--json")
    assert json.loads(ludus(*oracle, variables={"LUDUS_TOKEN": full}).stdout)["mean"] == 1.0

    unseen = json.loads(ludus(*oracle, variables={"LUDUS_TOKEN": blind}).stdout)
    assert (unseen["episodes"], unseen["scored"], unseen["unscored"], unseen["mean"]) == (6, 0, 6, None)
    assert unseen["failed"] == {}

    forbidden = ludus(*oracle, "--split", "test", variables={"LUDUS_TOKEN": full})
    assert forbidden.returncode == 3
    assert "splits:test" in forbidden.stderr
