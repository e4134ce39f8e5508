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

from ludus.hub.endpoints.settings import EndpointSettings
from ludus.hub.settings_file import SettingsFile, read_settings_file
from ludus.protocol.errors import AuthoringError

DOCS = Path(__file__).resolve().parents[2] / "docs" / "hub-operation.md"


def test_the_settings_in_the_documentation_are_all_settings_with_their_defaults(tmp_path: Path) -> None:
    text = DOCS.read_text("utf-8").partition("## Settings")[2].partition("```toml\n")[2].partition("```")[0]
    file = tmp_path / "hub.toml"
    file.write_text(text)
    assert read_settings_file(file) == SettingsFile() == read_settings_file(None)
    shown = {name: set(table) for name, table in tomllib.loads(text).items()}
    models = {"uploads": SettingsFile().uploads, "results": SettingsFile().results, "rates": SettingsFile().rates}
    assert shown == {name: set(type(model).model_fields) for name, model in models.items()}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[result]\nopen_runs = 1", r"result: .*did you mean 'results'.*endpoints, rates, results, uploads"),
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


def test_endpoints_are_set_in_one_place_only(tmp_path: Path) -> None:
    (tmp_path / "hub.toml").write_text("[endpoints]\nidle_seconds = 5.0\n")
    (tmp_path / "endpoints.toml").write_text("idle_seconds = 6.0\n")
    assert read_settings_file(tmp_path / "hub.toml").endpoints == EndpointSettings(idle_seconds=5.0)
    options = ["--settings", "hub.toml", "--endpoints", "endpoints.toml", "--port", "0"]
    done = subprocess.run(
        [sys.executable, "-m", "ludus.cli", "hub", *options], cwd=tmp_path, capture_output=True, text=True, timeout=60,
        env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    assert (done.returncode, "keep one of them" in done.stderr) == (2, True)


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
