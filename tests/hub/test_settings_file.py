"""The file of a hub's settings: what the documentation shows, what is refused, and that the hub uses it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import httpx
import pytest
from hubs import HubProcess
from typer.testing import CliRunner

from ludus.hub import serve
from ludus.hub.commands.hub import hub_group
from ludus.hub.settings.endpoints import EndpointSettings
from ludus.hub.settings.file import SettingsFile, read_settings_file
from ludus.hub.settings.hub import HubSettings
from ludus.protocol.errors import AuthoringError

DOCS = Path(__file__).resolve().parents[2] / "docs" / "hub-operation.md"


def test_the_settings_in_the_documentation_are_all_settings_with_their_defaults(tmp_path: Path) -> None:
    text = DOCS.read_text("utf-8").partition("## Settings")[2].partition("```toml\n")[2].partition("```")[0]
    file = tmp_path / "hub.toml"
    file.write_text(text)
    assert read_settings_file(file) == SettingsFile() == read_settings_file(None)
    shown = {name: set(table) for name, table in tomllib.loads(text).items()}
    limits = set(SettingsFile.model_fields) - {"endpoints"}  # which another page shows
    assert shown == {name: set(type(getattr(SettingsFile(), name)).model_fields) for name in limits}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[result]\nopen_runs = 1", r"result: .*did you mean 'results'.*endpoints, .*uploads"),
        ("[results]\nopen_run = 1", r"results.open_run: .*did you mean.*runs_of_board"),
        ("[rates]\ntoken = 1", r"rates.token: .*there are address_minute, .*wrong_tokens_minute"),
        ("[endpoints]\nidle = 1", r"endpoints.idle: .*idle_seconds"),
        ("[endpoints.limits]\nram = 1", r"endpoints.limits.ram: .*memory"),
        ("[results]\nopen_runs = 0", "results.open_runs: 0 is too small"),
        ("[results]\nrun_seconds = inf", "results.run_seconds"),
        ("[results]\nepisode_seconds = nan", "results.episode_seconds"),
        ("results = 3", "results: "),
        ("open_runs = 3", "open_runs: there is no such setting"),
        ("= x", "cannot be read"),
    ],
)
def test_settings_that_are_wrong_are_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "hub.toml"
    file.write_text(text)
    with pytest.raises(AuthoringError, match=message):
        read_settings_file(file)
    with pytest.raises(AuthoringError, match="cannot be read"):
        read_settings_file(tmp_path / "missing.toml")


def test_the_settings_of_endpoints_are_in_one_file_only(tmp_path: Path) -> None:
    (tmp_path / "hub.toml").write_text("[endpoints]\nidle_seconds = 5.0\n")
    (tmp_path / "other.toml").write_text("idle_seconds = 5.0\n")
    assert read_settings_file(tmp_path / "hub.toml").endpoints == EndpointSettings(idle_seconds=5.0)
    options = ["--settings", "hub.toml", "--endpoints", "other.toml", "--port", "0"]
    done = subprocess.run(
        [sys.executable, "-m", "ludus.cli", "hub", *options], cwd=tmp_path, capture_output=True, text=True, timeout=60,
        env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    assert (done.returncode, "keep one of them" in done.stderr) == (2, True)


def test_a_hub_gets_each_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {"uploads": "uploads", "results": "open_runs", "rates": "token_minute", "endpoints": "replicas"}
    assert set(tables) == set(SettingsFile.model_fields)
    (tmp_path / "hub.toml").write_text("".join(f"[{table}]\n{name} = 1\n" for table, name in tables.items()))
    started: list[HubSettings] = []

    def run(settings: HubSettings, *_: str) -> int:
        started.append(settings)
        return 0

    monkeypatch.setattr(serve, "run", run)
    done = CliRunner().invoke(hub_group, ["--settings", str(tmp_path / "hub.toml")])
    assert done.exit_code == 0, done.output
    (found,) = started
    rates = found.people.rates
    values = (found.limits.uploads, found.results.open_runs, rates.token_minute, found.endpoints.replicas)
    assert values == (1, 1, 1, 1)


@pytest.mark.suite("hub")
def test_a_hub_uses_the_file_and_an_option_comes_first(tmp_path: Path) -> None:
    file = tmp_path / "hub.toml"
    file.write_text("[uploads]\nmanifest_bytes = 1024\n[rates]\nwrong_tokens_minute = 1\naddress_minute = 1\n"
                    "[results]\nsubmission_bytes = 1024\n")  # fmt: skip
    hub = HubProcess(tmp_path / "data", "--no-seed", "--settings", str(file), "--rate", "address_minute=5000")
    try:
        with httpx.Client(base_url=hub.url, timeout=30) as client:
            large = client.post("/api/v1/environments/a/b/versions/1/results", content=b"x" * 1025)
            assert large.status_code == 413, large.text
            assert "1024" in large.text
            for _ in range(3):
                assert client.get("/api/v1/environments").status_code == 200
    finally:
        assert hub.stop() == 0
