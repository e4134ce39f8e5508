"""The report of a run to a hub: no step waits for it, and nothing is reported without being asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hub_doors import Door
from waiting import block_until

from ludus.trainer import hub_report, logs
from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.errors import ConfigError
from ludus.trainer.core.settings import read_config
from ludus.trainer.logs import RunLog

MakeConfig = Callable[..., TrainConfig]


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The user's own token is not used."""
    monkeypatch.delenv("LUDUS_HUB_TOKEN", raising=False)
    monkeypatch.setenv("LUDUS_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setattr(hub_report, "FLUSH_SECONDS", 0.0)


def lines(config: TrainConfig) -> list[Any]:
    return [json.loads(line) for line in (config.output / "metrics.jsonl").read_text().splitlines()]


def test_no_step_waits_for_a_hub_that_never_answers(make_config: MakeConfig) -> None:
    door = Door()
    config = make_config(f"--logging.hub.url={door.address}")
    log = RunLog(config)
    block_until(lambda: door.requests == 1)
    for step in range(500):
        log.metrics(step, {"reward/mean": 0.5})
    assert door.requests == 1, "500 steps were logged while the first request had no answer"
    log.close()
    door.close()
    written = lines(config)
    assert sum("reward/mean" in line for line in written) == 500
    assert "500 points were dropped" in written[-1]["note"]


def test_a_run_reports_nowhere_by_default(make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "HubReport", None)  # which cannot be called
    config = make_config()
    assert config.logging.hub is None
    log = RunLog(config)
    log.metrics(1, {"reward/mean": 0.5})
    log.close()


def test_the_log_says_first_what_becomes_visible_and_to_whom(make_config: MakeConfig) -> None:
    where = "--logging.hub.url=http://127.0.0.1:9"
    for more, words in (([], "for your account only"), (["--logging.hub.public=true"], "for everyone"),
                        (["--logging.hub.rollouts=2"], "and 2 rollouts of each step with all their text")):  # fmt: skip
        config = make_config(where, *more)
        RunLog(config).close()
        note = lines(config)[0]["note"]
        assert note.startswith("reporting to http://127.0.0.1:9, ")
        assert words in note


def test_a_run_in_a_folder_with_a_long_name_is_reported(make_config: MakeConfig, tmp_path: Path) -> None:
    config = make_config(f"--output={tmp_path / ('x' * 200)}", "--logging.hub.url=http://127.0.0.1:9")
    RunLog(config).close()
    assert "reporting to http://127.0.0.1:9" in lines(config)[0]["note"]


def test_addresses_of_environments_are_reported_without_what_may_be_secret(make_config: MakeConfig) -> None:
    config = make_config(
        "--logging.hub.url=http://hub.example", "--environments.0.url=https://me:pw@host:80/a?key=1",
        "--environments.1.url=http://hub.example/e/alice/words@1.0.0",
    )  # fmt: skip
    reported = hub_report._config(config)
    assert [one["url"] for one in reported["environments"]] == [
        "https://host:80/a", "http://hub.example/e/alice/words@1.0.0",
    ]  # fmt: skip
    found = hub_report._environment(config.environments[1], "http://hub.example/")
    assert (found.name, found.package, found.version) == ("words", "alice/words", "1.0.0")


def test_an_address_that_is_none_is_a_mistake_in_the_configuration(make_config: MakeConfig) -> None:
    with pytest.raises(ConfigError, match=r"logging\.hub: .*not the address of a hub"):
        RunLog(make_config("--logging.hub.url=hub.example"))


def test_the_option_of_the_command_is_the_key_of_the_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from ludus.trainer import commands

    given: list[Any] = []
    monkeypatch.setattr(commands, "_train", lambda arguments, *_: given.extend(arguments))
    commands.train(["run.toml", "--steps=3"], hub="https://hub.example")
    assert given == ["run.toml", "--steps=3", "--logging.hub.url=https://hub.example"]
    config = read_config(None, [f"--output={tmp_path}", *given[1:]])
    assert config.logging.hub is not None
    assert config.logging.hub.url == "https://hub.example"
