"""TRL's own trainer, unchanged, on a Ludus server; see `peers/trl_grpo.py` for what it runs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from peer_clients import ROOT
from terminal import LUDUS, clean_variables, running_episodes, serving

from ludus.client import ServerAddress
from ludus.integrations import peers
from ludus.integrations.trl import LudusEnvironmentFactory, only_scored
from ludus.integrations.trl_rollout import LudusRollout
from ludus.protocol.errors import PeerNotUsable, Unsupported

WORLD = ROOT / "tests" / "support" / "adapter_world.py"
ODD_NAMES = ROOT / "tests" / "support" / "odd_names.py"
pytestmark = pytest.mark.timeout(240)
Report = dict[str, Any]
RUNS = {
    "factory": {"environment": "sums", "mode": "factory"},
    "rollout": {"environment": "sums", "mode": "rollout"},
    "short": {"environment": "sums", "mode": "rollout", "length": 48, "logprobs": True},
    "broken factory": {"environment": "every_third_breaks", "mode": "factory", "second": "only_scored"},
    "broken rollout": {"environment": "every_third_breaks", "mode": "rollout", "second": "only_scored"},
    "bare second": {"environment": "every_third_breaks", "mode": "factory", "second": "bare"},
    "odd names": {"environment": "odd_names", "mode": "factory"},
    "open end": {"environment": "sums", "mode": "factory", "open_end": True},
}


@pytest.fixture
def world() -> Iterator[str]:
    with serving(f"{WORLD}:Sums", f"{WORLD}:EveryThirdBreaks", f"{ODD_NAMES}:OddNames") as url:
        yield url
        assert running_episodes(url) == 0, "episodes are still open"


@pytest.mark.suite("integrations")
def test_grpo_trainer_learns_from_both_places_and_leaves_unscored_episodes_out(
    world: str, run_peer: Callable[..., Any], record: Callable[..., None]
) -> None:
    reports = run_peer("trl", "trl_grpo.py", {"url": world, "runs": list(RUNS.values())})
    runs: dict[str, Report] = dict(zip(RUNS, reports, strict=True))
    for report in runs.values():
        assert report["changed"], "nothing was learned"
        assert report["starts"] == [8, 8, 8, 8], "a group is not one request"
        for step in report["steps"]:
            assert len(step["ids"]) == 16
            for row, ids in enumerate(step["ids"]):
                assert len(ids) == len(step["mask"][row])
                assert step["logprobs"] is None or len(step["logprobs"][row]) == len(ids)
    check_tokens(runs["factory"])
    check_tokens(runs["rollout"])
    for ours, theirs in zip(runs["factory"]["steps"], runs["rollout"]["steps"], strict=True):
        for part in ("ids", "mask", "rewards", "advantages"):
            assert ours[part] == theirs[part], f"the two places differ in {part}"
    assert runs["factory"]["unscored"] == 0
    check_short(runs["short"])
    check_unscored(runs["broken factory"], masked=False)
    check_unscored(runs["broken rollout"], masked=True)
    trap = [rewards for step in runs["bare second"]["steps"] for rewards in step["rewards"]]
    assert [None, 1.0] in trap, "no episode was unscored"
    assert runs["bare second"]["logs"][0]["reward"] == pytest.approx(mean(sum(filter(None, row)) for row in trap[:16]))
    check_odd_names(runs["odd names"])
    assert any(calls_after_end(step, runs["open end"]) for step in runs["open end"]["steps"]), "the model never goes on"
    record(
        "trl", "TRL (and Unsloth)", version="1.16.0",
        ran="`GRPOTrainer` with `environment_factory` and with `rollout_func`, 16 episodes a step",
        unscored="`None`: no reward, advantage 0; with `rollout_func` also masked",
        traps="a second reward function turns `None` into 0 (`only_scored`); it does not ask whether an episode has "
        "ended; `get_reward` never sees the final message (`outcome_reward`)",
    )  # fmt: skip


def mean(values: Any) -> float:
    found: list[float] = list(values)
    return sum(found) / len(found)


def check_tokens(report: Report) -> None:
    """Check that sampled ids are kept, that only they are learned from, and that nothing follows the end."""
    longest = 0
    for step in report["steps"]:
        whole = [prompt + ids for prompt, ids in zip(step["prompts"], step["ids"], strict=True)]
        marks = [[0] * len(p) + mask for p, mask in zip(step["prompts"], step["mask"], strict=True)]
        sampled = 0
        for before, turn in step["turns"]:
            end = len(before) + len(turn)
            held = [row for row, ids in enumerate(whole) if ids[:end] == before + turn]
            assert held, "the engine saw other ids than those that are learned from"
            assert all(marks[row][len(before) : end] == [1] * len(turn) for row in held)
            sampled += len(turn)
        assert sampled == sum(map(sum, marks)), "ids count as sampled that were not"
        assert not calls_after_end(step, report), "the model was sampled after the end of an episode"
        longest = max(longest, max(map(len, step["ids"])))
        values = [row[0] for row in step["rewards"]]
        for row, ids in enumerate(step["ids"]):
            if values[row] == 1.0:
                assert ids[-1] == report["end"], "an episode earned something and did not end"
        assert {0.0, 1.0} >= set(values)
    assert longest > 30, "no episode had several turns"


def calls_after_end(step: Report, report: Report) -> list[list[int]]:
    """Return the completions in which the model was sampled again after the turn in which it submitted."""
    found = []
    for ids in step["ids"]:
        submitted = [at for at, token in enumerate(ids) if token in report["tokens"]["submit"]]
        if submitted and ids.index(report["end"], submitted[0]) < len(ids) - 1:
            found.append(ids)
    return found


def check_short(report: Report) -> None:
    """Check the limit of a completion and the log-probabilities of the engine."""
    cut = 0
    for step in report["steps"]:
        for row, ids in enumerate(step["ids"]):
            assert len(ids) <= 48
            assert step["logprobs"][row] == [-1.5 if sampled else 0.0 for sampled in step["mask"][row]]
            cut += ids[-1] != report["end"] or report["tokens"]["add"][0] == ids[-2]
        assert all(rewards[0] is not None for rewards in step["rewards"])
    assert cut, "no episode met the limit"


def check_unscored(report: Report, *, masked: bool) -> None:
    """Check that unscored episodes have no reward, no advantage and no part in the mean."""
    unscored = 0
    for number, step in enumerate(report["steps"]):
        healthy = []
        for row, (value, second) in enumerate(step["rewards"]):
            if value is None:
                unscored += 1
                assert second is None
                assert step["advantages"][row] == 0.0
                assert not masked or not any(step["mask"][row])
            else:
                healthy.append(value)
        assert {0.0, 1.0} == set(healthy)
        assert report["logs"][number]["reward"] == pytest.approx(1.0 + mean(healthy))
    assert report["unscored"] == unscored >= 5


def check_odd_names(report: Report) -> None:
    """Check that tools are called whose names TRL reserves, and that `get_reward` is the reward."""
    rewards = [row for step in report["steps"] for row in step["rewards"]]
    assert [None, 1.0] in rewards
    assert "rewards/odd_names/mean" in report["logs"][0]


@pytest.mark.suite("integrations")
def test_a_server_that_is_killed_in_mid_run_leaves_unscored_episodes_and_no_hang(run_peer: Callable[..., Any]) -> None:
    with ExitStack() as stack:
        runs = [killable(stack, "factory"), killable(stack, "rollout"), killable(stack, "rollout", restart=True)]
        factory, rollout, restarted = run_peer("trl", "trl_grpo.py", {"runs": runs})
    for report in (factory, rollout):
        values = [row[0] for row in report["steps"][1]["rewards"]]
        assert values.count(None) == report["unscored"] > 0
        assert all(row[0] is not None for row in report["steps"][0]["rewards"])
        for row, value in enumerate(values):
            assert value is not None or report["steps"][1]["advantages"][row] == 0.0
    assert any(factory["steps"][1]["mask"][row] for row in range(16))
    lost = [row for row, rewards in enumerate(rollout["steps"][1]["rewards"]) if rewards[0] is None]
    assert not any(any(rollout["steps"][1]["mask"][row]) for row in lost)
    assert restarted["unscored"] == 0
    assert 1 in restarted["starts"], "no episode was played again"


def killable(stack: ExitStack, mode: str, *, restart: bool = False) -> dict[str, Any]:
    """Return a run with a server of its own, which the program kills."""
    command = [str(LUDUS), "serve", f"{WORLD}:Sums", "--port"]
    process = stack.enter_context(
        subprocess.Popen(
            [*command, "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=clean_variables()
        )
    )
    stack.callback(process.kill)
    assert process.stdout is not None
    found = next(match for line in process.stdout if (match := re.search(r"http://[\d.]+:(\d+)", line)))
    again = {"restart": [*command, found[1]]} if restart else {}
    return {"environment": "sums", "mode": mode, "url": found[0], "kill": process.pid, **again}


@pytest.mark.suite("integrations")
def test_the_factory_works_in_a_spawned_process_and_names_mistakes(world: str, run_peer: Callable[..., Any]) -> None:
    report = run_peer("trl", "trl_by_hand.py", {"url": world})
    outputs, reward = report["spawned"]
    assert outputs[:2] == ["3", "0"]
    assert "by" in outputs[2], "a wrong argument is not an observation"
    assert outputs[3:] == ["2", "finished", "The episode has ended."]
    assert reward == 1.0
    schemas = {schema["name"]: schema for schema in report["schemas"]}
    assert schemas.keys() == {"reset", "_turn", "get_reward"}
    assert schemas["_turn"]["parameters"]["properties"]["by"] == {"type": "integer", "description": "how far."}
    assert schemas["_turn"]["parameters"]["required"] == ["by"]
    assert report["final"] == [0.0]
    assert report["no_row"].startswith("InvalidParams: not the address of a task")
    assert report["wrong_prompt"].startswith("InvalidParams: the episode's prompt is not the row's")
    assert report["unknown_task"].startswith("TaskNotFound")
    assert report["no_environments"].startswith("Unsupported")


@pytest.mark.suite("integrations")
@pytest.mark.parametrize("place", ["rollout", "factory"])
def test_the_script_of_the_documentation_trains(place: str, world: str, run_peer: Callable[..., Any]) -> None:
    (log,) = run_peer("trl", "trl_snippet.py", {"url": world, "place": place})["logs"]
    assert 0.0 <= log["reward"] <= 1.0


def test_a_missing_or_untested_trl_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ServerAddress("http://127.0.0.1:1")
    with pytest.raises(PeerNotUsable, match=r"pip install 'trl==1\.16\.\*'"):
        LudusEnvironmentFactory(server, "sums", 256)
    monkeypatch.setattr(peers, "version", lambda _: "1.17.0")
    with pytest.raises(PeerNotUsable, match=r"tested with 1\.16"):
        LudusRollout()
    monkeypatch.setattr(peers, "version", lambda _: "1.16.3")
    assert LudusRollout().max_turns == 16


def test_only_scored_refuses_a_trainer_that_shows_no_outcomes() -> None:
    with pytest.raises(Unsupported, match="max_completion_length"):
        only_scored(lambda completions, **_: [1.0])(completions=[[]])


@pytest.mark.suite("integrations")
def test_grpo_trainer_learns_from_a_mix_whose_shares_follow_its_rewards(
    tmp_path: Path, run_peer: Callable[..., Any]
) -> None:
    mix = tmp_path / "mix.toml"
    with serving(f"{WORLD}:Sums", f"{WORLD}:EveryThirdBreaks") as url:
        mix.write_text(
            f'url = "{url}"\n[policy]\nkind = "band"\n[policy.band]\nlow = 0.05\nhigh = 0.9\n'
            '[[sources]]\nenvironment = "sums"\n[[sources]]\nenvironment = "every_third_breaks"\n'
        )
        report = run_peer("trl", "trl_mix.py", {"mix": str(mix), "steps": 4})
        assert running_episodes(url) == 0
    assert len(report["seen"]) == 4
    assert {name for batch in report["seen"] for name in batch["environments"]} == {"sums", "every_third_breaks"}
    numbers = [number for batch in report["seen"] for number in batch["groups"][::4]]
    assert numbers == list(range(8)), "each draw is one group, in order"
    rewards = [value for batch in report["seen"] for value in batch["rewards"]]
    scored = [value for value in rewards if value is not None]
    assert len(scored) < len(rewards), "no episode was unscored"
    records = report["records"].values()
    assert sum(record["episodes"] for record in records) == len(scored)
    assert sum(record["passes"] for record in records) == sum(value == 1.0 for value in scored)
    assert report["shares"]["sums"] != pytest.approx(0.5), "the shares follow the rewards"
