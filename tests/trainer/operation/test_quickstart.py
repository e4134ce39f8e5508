"""`ludus train --tiny-from`: the checks of demonstrations, and the model and settings that are made from them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from waiting import accepts, block_until

from ludus.trainer import quickstart
from ludus.trainer.core.errors import ConfigError
from ludus.trainer.quickstart import Demonstrations, prepare, serving


def game(number: int, reward: float | None = 1.0, environment: str = "pick") -> dict[str, Any]:
    """A recorded episode of one call."""
    failure = {"kind": "environment", "error": "Broken", "message": "broken", "attempt": 1}
    return {
        "environment": environment, "split": "train", "policy": "oracle", "started_at": 1.0, "seconds": 1.0,
        "task": {"id": str(number), "split": "train", "index": number, "fields": {}},
        "status": "completed", "end_reason": "completed", "failure": failure if reward is None else None,
        "reward": None if reward is None else {"value": reward},
        "tools": [{"type": "function", "name": "pick", "description": "Pick.",
                   "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}}}],
        "items": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": f"Pick {number}."}]},
            {"type": "function_call", "call_id": "a", "name": "pick", "arguments": f'{{"number": {number}}}'},
            {"type": "function_call_output", "call_id": "a", "output": "Thank you."},
        ],
        "steps": [{"step": 1, "call_id": "a", "seconds": 0.1}],
        "turns": [{"items": 2, "policy_seconds": 0.1, "environment_seconds": 0.1}],
    }  # fmt: skip


def write(path: Path, *games: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in games))
    return path


@pytest.fixture
def games(tmp_path: Path) -> Path:
    return write(tmp_path / "games.jsonl", *(game(number, reward=float(number % 3 > 0)) for number in range(30)))


def test_demonstrations_that_never_win_are_refused_with_what_to_do(tmp_path: Path) -> None:
    path = write(tmp_path / "games.jsonl", game(1, 0.0), game(2, -1.0), game(3, None))
    with pytest.raises(ConfigError, match=r"none of its 2 episodes earned more than 0.*must sometimes win.*oracle"):
        Demonstrations.read([path])


@pytest.mark.parametrize(
    ("games", "message"),
    [
        ([game(1, None)], "none of its 1 episodes has a reward and a turn"),
        ([game(1), game(2, environment="other")], "has episodes of other, pick; keep those of one"),
    ],
)
def test_demonstrations_that_cannot_be_used_are_refused(tmp_path: Path, games: list[Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Demonstrations.read([write(tmp_path / "games.jsonl", *games)])
    with pytest.raises(ConfigError, match="No such file"):
        Demonstrations.read([tmp_path / "none.jsonl"])


def test_several_environments_are_for_a_mix(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, game(number, environment=name)) for number, name in enumerate(("one", "two"))]
    with pytest.raises(ConfigError, match="name a mix of them with --mix"):
        Demonstrations.read(paths)
    found = Demonstrations.read(paths, mixed=True)
    assert [one.environment for one in found.episodes] == ["one", "two"]


def test_the_model_and_the_settings_fit_the_demonstrations(games: Path, tmp_path: Path) -> None:
    overrides = [f"--output={tmp_path}/run", "--environments.0.url=http://h", "--steps=3"]
    config = prepare(Demonstrations.read([games]), None, overrides)
    assert config.model.path == str(tmp_path / "run" / "tiny-model")
    assert (config.environments[0].name, config.environments[0].url, config.steps) == ("pick", "http://h", 3)
    assert config.sft is not None
    assert config.sft.demonstrations == (games,)
    assert 8 <= config.rollouts.max_tokens <= 64
    assert config.rollouts.max_turns == 4
    made = (tmp_path / "run" / "tiny-model" / "model.safetensors").stat().st_mtime_ns
    assert prepare(Demonstrations.read([games]), None, overrides) == config
    assert (tmp_path / "run" / "tiny-model" / "model.safetensors").stat().st_mtime_ns == made, "a resumed run keeps it"


def test_the_model_has_the_size_that_the_configuration_sets(games: Path, tmp_path: Path) -> None:
    size = ["--model.tiny.hidden=64", "--model.tiny.layers=3", "--model.tiny.heads=2"]
    config = prepare(Demonstrations.read([games]), None, [f"--output={tmp_path}/run", *size])
    made = json.loads((Path(config.model.path) / "config.json").read_text())
    assert (made["hidden_size"], made["num_hidden_layers"], made["num_attention_heads"]) == (64, 3, 2)
    with pytest.raises(ConfigError, match=r"hidden \(100\) must be a multiple of twice the heads \(4\)"):
        prepare(Demonstrations.read([games]), None, [f"--output={tmp_path}/other", "--model.tiny.hidden=100"])


def test_the_tokenizer_is_loaded_equally_often_for_many_demonstrations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[Path] = []

    def counted(folder: Path, load: Any = quickstart._renderer) -> Any:
        loaded.append(folder)
        return load(folder)

    monkeypatch.setattr(quickstart, "_renderer", counted)
    counts = []
    for count in (2, 20):
        path = write(tmp_path / f"{count}.jsonl", *map(game, range(count)))
        prepare(Demonstrations.read([path]), None, [f"--output={tmp_path}/{count}"])
        counts.append(len(loaded))
        loaded.clear()
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("--rollouts.max_tokens=2", r"max_tokens = 2 does not fit a call: a turn in .* takes (\d+) tokens"),
        ("--rollouts.context=8", r"context = 8 does not fit an episode: one in .* takes (\d+) tokens"),
    ],
)
def test_limits_that_do_not_fit_a_call_are_refused(games: Path, tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        prepare(Demonstrations.read([games]), None, [f"--output={tmp_path}/run", override])


def test_an_environment_that_cannot_be_served_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match=r"`ludus serve .*gone.py:Gone` did not start[\s\S]*gone.py"),
        serving(f"{tmp_path}/gone.py:Gone"),
    ):
        pass


SERVE = """
from ludus.trainer.quickstart import serving
with serving("arithmetic") as url:
    print(url, flush=True)
    input()
"""


def test_a_server_ends_when_the_run_that_started_it_is_killed() -> None:
    run = subprocess.Popen([sys.executable, "-c", SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert run.stdin is not None
    assert run.stdout is not None
    with run, run.stdin, run.stdout:
        port = urlsplit(run.stdout.readline()).port or 0
        assert accepts(port)
        run.kill()
        run.wait(30)
        block_until(lambda: not accepts(port))


def test_demonstrations_that_cannot_be_imitated_are_counted(tmp_path: Path) -> None:
    games = [game(number) for number in range(100, 140)]
    for number, one in enumerate(games):
        one["items"][0]["content"][0]["text"] = "Pick the one that I think of."
        one["task"]["id"] = str(number)
    remark = Demonstrations.read([write(tmp_path / "games.jsonl", *games)]).remark
    assert remark is not None
    assert "40 of 40 demonstrations call with values that nothing had shown before, such as pick(number=100)" in remark
    assert "A model cannot learn these calls from what it reads" in remark
    assert Demonstrations.read([write(tmp_path / "others.jsonl", *map(game, range(100, 140)))]).remark is None
