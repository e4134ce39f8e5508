"""`ludus demos`: what it keeps, and what it says of demonstrations that nothing can be learned from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer
from terminal import run_ludus_here

from ludus.cli import ExitCode
from ludus.cli.playing import interruptible
from ludus.client import CallItem, TrajectoryWriter, read_trajectories
from ludus.protocol.actions import Call
from ludus.protocol.content import TextBlock
from ludus.protocol.items import Item, OutputItem, text_message, to_json
from ludus.protocol.rewards import Reward
from ludus.protocol.trajectory import Trajectory

ROOT = Path(__file__).parents[2]


@pytest.fixture
def target(tmp_path: Path) -> str:
    shutil.copy(ROOT / "docs" / "snippets" / "largest.py", tmp_path)
    return f"{tmp_path}/largest.py:Largest"


def test_the_oracle_plays_and_the_next_command_is_shown(target: str, tmp_path: Path) -> None:
    out = tmp_path / "games.jsonl"
    done = run_ludus_here("demos", target, "--out", out, "-n", 6, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "6 of 6 episodes kept, 6 with a reward above 0" in done.stdout
    assert f"ludus train --tiny-from {out} --serve {target}" in done.stdout
    assert [trajectory.value for trajectory in read_trajectories(out)] == [1.0] * 6
    again = run_ludus_here("demos", target, "--out", out, cwd=tmp_path)
    assert "exists; say --overwrite or another --out" in " ".join(again.stderr.replace("│", " ").split())
    assert "--resume" not in again.stderr


def test_the_next_command_serves_the_environment_that_a_variant_belongs_to(tmp_path: Path) -> None:
    done = run_ludus_here("demos", "arithmetic-easy", "--out", "o.jsonl", "-n", 1, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "--tiny-from o.jsonl --serve arithmetic\n" in done.stdout


@pytest.mark.parametrize("resumable", [True, False])
def test_only_a_command_that_can_resume_says_so_when_it_is_interrupted(
    resumable: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as end, interruptible(Path("games.jsonl"), resumable=resumable):
        raise KeyboardInterrupt
    assert end.value.exit_code == ExitCode.INTERRUPTED
    shown = capsys.readouterr().err
    assert "interrupted: games.jsonl has what was played" in shown
    assert ("--resume" in shown) is resumable


def test_only_episodes_of_enough_reward_are_kept(target: str, tmp_path: Path) -> None:
    policy = tmp_path / "first.py"
    policy.write_text(
        "from ludus.client import Call\n\n\nasync def first(conversation):\n"
        "    return Call('pick', {'number': conversation.task.fields['numbers'][-1]})\n"
    )
    out = tmp_path / "games.jsonl"
    options = ("--out", str(out), "-n", "20", "--policy", f"{policy}:first")
    done = run_ludus_here("demos", target, *options, "--reward", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    values = [trajectory.value for trajectory in read_trajectories(out)]
    assert 0 < len(values) < 20
    assert set(values) == {1.0}
    never = run_ludus_here("demos", target, *options, "--reward", "2", "--overwrite", cwd=tmp_path)
    assert never.returncode == 1
    assert "must sometimes win" in never.stdout


# ── rows from recorded episodes ─────────────────────────────────────────────────────────────────────────────────────


def recorded(path: Path, *episodes: dict[str, Any]) -> Path:
    """Write trajectories: each calls a tool and says `said`."""
    with TrajectoryWriter(path) as writer:
        for number, given in enumerate(episodes):
            task, split = given.get("task", "a"), given.get("split", "train")
            items: list[Item] = [
                text_message("user", f"Do {task}."),
                CallItem(f"call_{number}", Call("look", {"at": given.get("at", 0)})),
                OutputItem(f"call_{number}", (TextBlock(text="seen"),)),
                text_message("assistant", given.get("said", f"said {number}")),
            ]
            value = given.get("value", 1.0)
            step = {"step": 1, "call_id": f"call_{number}", "seconds": 0.0, "error": given.get("error")}
            fields = {
                "environment": "toys", "environment_version": "2.0", "split": split, "sample": number,
                "task": {"id": task, "split": split, "index": 0, "fields": {}}, "policy": given.get("policy", "p"),
                "seed": given.get("seed"), "reward": None if value is None else Reward(value=value),
                "items": to_json(items), "steps": [step], "started_at": 0.0, "seconds": 0.0,
                "tools": [{"name": "look", "description": "Look.", "parameters": {"type": "object"}}],
            }  # fmt: skip
            writer.write(Trajectory.model_validate(fields))
    return path


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def demos(tmp_path: Path, *arguments: Any) -> Any:
    return run_ludus_here("demos", "--from", tmp_path / "games.jsonl", *arguments, cwd=tmp_path)


def test_rows_for_imitation_have_messages_tools_and_where_they_are_from(tmp_path: Path) -> None:
    recorded(tmp_path / "games.jsonl", {"seed": 7, "value": 0.5, "policy": "ada"})
    done = demos(tmp_path, "--form", "sft")
    assert done.returncode == 0, done.stderr
    (row,) = rows_of(tmp_path / "sft.jsonl")
    assert [message["role"] for message in row["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert row["messages"][1]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at": 0}'}
    assert row["tools"][0]["function"]["name"] == "look"
    assert row["source"].startswith("ludus-rl ")
    wanted = {"environment": "toys", "environment_version": "2.0", "split": "train", "task": "a", "policy": "ada",
              "seed": 7, "value": 0.5}  # fmt: skip
    assert {name: row[name] for name in wanted} == wanted


def test_what_is_left_out_is_counted_by_its_reason(tmp_path: Path) -> None:
    recorded(
        tmp_path / "games.jsonl",
        {"said": "good"}, {"said": "good"}, {"said": "bad", "value": 0.2}, {"value": None}, {"split": "test"},
        {"split": "validation"}, {"said": "x" * 500}, {"error": "invalid_arguments"},
    )  # fmt: skip
    done = demos(tmp_path, "--form", "sft", "--reward", "1", "--longest", "100", "--without-errors")
    assert done.returncode == 0, done.stderr
    assert "sft.jsonl: 1 of 8 episodes kept, 1 with a reward above 0" in done.stdout
    for part in ("2 held-out split", "1 duplicate", "1 low reward", "1 unscored", "1 long", "1 failed calls"):
        assert part in done.stdout
    assert "--held-out" in done.stdout
    done = demos(tmp_path, "--form", "sft", "--held-out", "--keep-duplicates", "--overwrite")
    assert "7 of 8 episodes kept" in done.stdout


def test_the_kept_episodes_of_several_policies_are_one_file_for_ludus_train(tmp_path: Path) -> None:
    recorded(tmp_path / "games.jsonl", {"said": "one"}, {"said": "two", "value": 0.0})
    recorded(tmp_path / "more.jsonl", {"said": "three", "policy": "ada"}, {"said": "one", "policy": "ada"})
    done = demos(tmp_path, "--from", tmp_path / "more.jsonl", "--out", "all.jsonl", "--reward", "1")
    assert done.returncode == 0, done.stderr
    kept = list(read_trajectories(tmp_path / "all.jsonl"))
    assert [(one.policy, one.items[-1]["content"][0]["text"]) for one in kept] == [("p", "one"), ("ada", "three")]


def test_episodes_that_later_ones_hide_are_counted(tmp_path: Path) -> None:
    recorded(tmp_path / "games.jsonl", {"said": "one"})
    recorded(tmp_path / "more.jsonl", {"said": "two"})
    done = demos(tmp_path, "--from", tmp_path / "more.jsonl", "--out", "all.jsonl")
    assert (
        "note: 1 scored episodes are left out, because later ones have the same policy, task and number" in done.stdout
    )
    assert [one.items[-1]["content"][0]["text"] for one in read_trajectories(tmp_path / "all.jsonl")] == ["two"]


VALUES = [0.0, 1.0, 0.4, 0.5]


def test_pairs_have_the_margin_and_say_which_policies_they_are_of(tmp_path: Path) -> None:
    episodes = [{"value": value, "policy": f"p{value}", "seed": 3} for value in VALUES]
    recorded(tmp_path / "games.jsonl", *episodes, {"task": "b"}, {"task": "b", "value": 0.0, "split": "test"})
    done = demos(tmp_path, "--form", "pairs")
    assert done.returncode == 0, done.stderr
    pairs = rows_of(tmp_path / "pairs.jsonl")
    assert [(pair["chosen_value"], pair["rejected_value"]) for pair in pairs] == [(1.0, 0.0), (0.5, 0.4)]
    assert (pairs[0]["chosen_policy"], pairs[0]["rejected_policy"], pairs[0]["chosen_seed"]) == ("p1.0", "p0.0", 3)
    for options, count in ((("--margin", "0.5"), 1), (("--reward", "1"), 1), (("--margin", "1.5"), 0)):
        done = demos(tmp_path, "--form", "pairs", "--overwrite", *options)
        assert done.returncode == (0 if count else 1)
        assert f"{count} pairs of 6 episodes" in done.stdout
    assert "There is no pair" in done.stdout


def test_pairs_of_one_seed_and_of_similar_length(tmp_path: Path) -> None:
    recorded(
        tmp_path / "games.jsonl",
        {"value": 1.0, "seed": 1}, {"value": 0.0, "seed": 2}, {"value": 0.5, "seed": 2},
        {"task": "b", "value": 1.0, "said": "y" * 900}, {"task": "b", "value": 0.0},
    )  # fmt: skip
    done = demos(tmp_path, "--form", "pairs", "--same-seed", "--length-ratio", "3")
    assert done.returncode == 0, done.stderr
    assert [pair["chosen_value"] for pair in rows_of(tmp_path / "pairs.jsonl")] == [0.5]


def test_no_pair_has_two_completions_that_say_the_same(tmp_path: Path) -> None:
    recorded(tmp_path / "games.jsonl", {"value": 1.0, "said": "same"}, {"value": 0.0, "said": "same"})
    assert demos(tmp_path, "--form", "pairs").returncode == 1


@pytest.mark.parametrize(("longer", "word"), [(1, "longer"), (0, "shorter"), (None, None)])
def test_a_note_warns_when_better_completions_are_mostly_longer(
    tmp_path: Path, longer: int | None, word: str | None
) -> None:
    episodes = []
    for number in range(12):
        for value in (0, 1):
            long = value == longer if longer is not None else value == number % 2
            said = f"{number}{value}" + "z" * (200 if long else 0)
            episodes.append({"task": f"t{number}", "value": float(value), "said": said})
    recorded(tmp_path / "games.jsonl", *episodes)
    done = demos(tmp_path, "--form", "pairs")
    assert done.returncode == 0, done.stderr
    assert (f"the better completion is {word} in 100% of the pairs" in done.stdout) is (word is not None)
    assert ("note:" in done.stdout) is (word is not None)


def test_parquet_has_the_rows_of_json_lines_and_one_schema(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    recorded(tmp_path / "games.jsonl", {"value": 1.0, "seed": 3}, {"value": 0.0})
    for form in ("sft", "pairs"):
        for kind in ("jsonl", "parquet"):
            done = demos(tmp_path, "--form", form, "--out", f"{form}.{kind}")
            assert done.returncode == 0, done.stderr
        table = parquet.read_table(tmp_path / f"{form}.parquet")
        for given, held in zip(rows_of(tmp_path / f"{form}.jsonl"), table.to_pylist(), strict=True):
            held["tools"] = json.loads(held["tools"])
            assert without_nulls(held) == without_nulls(given)
    recorded(tmp_path / "bare.jsonl", {"value": 1.0}, {"value": 0.0})
    done = run_ludus_here("demos", "--from", "bare.jsonl", "--form", "pairs", "--out", "bare.parquet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert parquet.read_schema(tmp_path / "bare.parquet") == parquet.read_schema(tmp_path / "pairs.parquet")


def without_nulls(value: Any) -> Any:
    """Return a value without the fields that are null, which Parquet has for every message."""
    if isinstance(value, dict):
        return {name: without_nulls(one) for name, one in value.items() if one is not None}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value


def test_options_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    recorded(tmp_path / "games.jsonl", {})
    for arguments, what in [
        ((), "exists; say --overwrite"),
        (("--margin", "1", "--out", "o.jsonl"), "--margin is for --form pairs"),
        (("arithmetic", "--out", "o.jsonl"), "name an environment or a server's address to play, or --from"),
        (("--split", "train", "--out", "o.jsonl"), "--from plays nothing; leave out --split"),
        (("--out", "o.parquet"), "Parquet needs --form sft or pairs"),
    ]:
        done = demos(tmp_path, *arguments)
        assert done.returncode == 2, done.stdout
        assert what in " ".join(done.stderr.replace("│", " ").split())


def test_a_split_that_is_not_for_training_needs_a_flag(target: str, tmp_path: Path) -> None:
    done = run_ludus_here("demos", target, "--split", "test", "-n", "2", "--out", "t.jsonl", cwd=tmp_path)
    assert done.returncode == 3
    assert "is for test" in done.stderr
    assert "--held-out" in done.stderr
    done = run_ludus_here("demos", target, "--split", "test", "-n", "2", "--held-out", "--out", "t.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_policy_that_sometimes_wins_gives_pairs_at_once(target: str, tmp_path: Path) -> None:
    policy = tmp_path / "each.py"
    policy.write_text(
        "from ludus.client import Call\n\n\nasync def each(conversation):\n"
        "    return Call('pick', {'number': conversation.task.fields['numbers'][conversation.sample]})\n"
    )
    options = ("--policy", f"{policy}:each", "--samples", "3", "-n", "6", "--form", "pairs", "--seed", "1")
    done = run_ludus_here("demos", target, *options, "--out", "pairs.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    pairs = rows_of(tmp_path / "pairs.jsonl")
    assert pairs
    assert all(pair["chosen_value"] > pair["rejected_value"] for pair in pairs)
    assert sorted(path.name for path in tmp_path.glob("*.*")) == ["each.py", "largest.py", "pairs.jsonl"]
