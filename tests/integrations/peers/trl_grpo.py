"""Train a tiny model with TRL's GRPOTrainer on a Ludus server, and report what it generated and learned from.

    trl_grpo.py '{"url": …, "runs": [{"environment": "sums", "mode": "factory", …}, …]}'

A run may have: `second`, another reward function; `logprobs`, an engine that gives log-probabilities as vLLM does;
`open_end`, a factory that lets the model go on after the end; `kill`, the process id of a server that is killed in the
second step, in mid-episode; `restart`, the command that starts it again; `url`, a server of its own.
"""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import warnings
from importlib.resources import files
from typing import Any

import torch
from datasets import Dataset
from tiny_calls import call_text, make_model
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from ludus.client import RemoteEnvironment, ServerAddress, addresses, connect
from ludus.integrations.trl import LudusEnvironmentFactory, only_scored, outcome_reward, rows
from ludus.integrations.trl_rollout import LudusRollout
from ludus.integrations.unscored import UNSCORED

LOGPROB = -1.5
GROUPS, SIZE = 2, 8


def one(completions: list[Any], **_: Any) -> list[float]:
    """Return 1 for every completion, also for unscored ones."""
    return [1.0] * len(completions)


class Observer(GRPOTrainer):
    """The trainer as it is, which notes what it generates and learns from."""

    given: dict[str, Any]

    def _generate_single_turn(self, prompt_ids: Any, *rest: Any, **options: Any) -> Any:
        ids, logprobs = super()._generate_single_turn(prompt_ids, *rest, **options)
        if self.given.get("logprobs"):
            logprobs = [[LOGPROB] * len(turn) for turn in ids]
        if "kill" in self.given and len(self.noted) == 1 and self.turns:
            os.kill(self.given.pop("kill"), signal.SIGKILL)
            if command := self.given.get("restart"):
                self.server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.turns += [[before, new] for before, new in zip(prompt_ids, ids, strict=True)]
        return ids, logprobs

    def _generate(self, prompts: Any) -> Any:
        self.turns: list[Any] = []
        found = super()._generate(prompts)
        names = ("prompts", "ids", "mask", "completions", "logprobs", "extra")
        self.noted.append({**dict(zip(names, found, strict=False)), "turns": self.turns})
        return found

    def _calculate_rewards(self, *given: Any) -> Any:
        rewards = super()._calculate_rewards(*given)
        self.noted[-1]["rewards"] = [[None if value != value else value for value in row] for row in rewards.tolist()]
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        self.noted[-1]["advantages"] = output["advantages"].tolist()
        return output


class Logs(TrainerCallback):
    """Keeps the metrics of each step."""

    def __init__(self) -> None:
        self.kept: list[dict[str, float]] = []

    def on_log(self, *_: Any, logs: dict[str, float] | None = None, **__: Any) -> None:
        self.kept.append({name: value for name, value in (logs or {}).items() if "reward" in name or name == "loss"})


def calls_of(environment: str, data: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the calls of the model: among them the right ones for these rows."""
    if environment == "odd_names":
        return [{"name": name, "arguments": arguments} for name, arguments in (
            ("reset", {}), ("_turn", {"by": 1}), ("_turn", {"by": 2}), ("get_reward", {})
        )]  # fmt: skip
    sums = {a + b for a, b in (map(int, re.findall(r"\d", row["prompt"][0]["content"])) for row in data)}
    submitted = [{"name": "submit", "arguments": {"number": number}} for number in sorted(sums)]
    return [{"name": "add", "arguments": {"a": 1, "b": 2}}, *submitted]


def play(server: ServerAddress, given: dict[str, Any]) -> dict[str, Any]:
    """Train for two steps."""
    data = rows(server, given["environment"], n=GROUPS, seed=1)
    calls = calls_of(given["environment"], data)
    template = files("trl").joinpath("chat_templates/qwen3.jinja").read_text("utf-8")
    folder = tempfile.mkdtemp()
    make_model(folder, calls, ["The sum is 7."], template=template)
    config = GRPOConfig(
        output_dir=folder, max_steps=2, per_device_train_batch_size=SIZE * GROUPS, num_generations=SIZE,
        max_completion_length=given.get("length", 512), learning_rate=1e-2, use_cpu=True, bf16=False, report_to=[],
        logging_steps=1, save_strategy="no", disable_tqdm=True, seed=1, chat_template_kwargs={"enable_thinking": False},
        max_tool_calling_iterations=12,
    )  # fmt: skip
    options: dict[str, Any] = {"reward_funcs": [] if given.get("open_end") else [outcome_reward]}
    if given["mode"] == "factory":
        longest = None if given.get("open_end") else config.max_completion_length
        options["environment_factory"] = LudusEnvironmentFactory(server, given["environment"], longest)
    else:
        options["rollout_func"] = LudusRollout()
    if second := given.get("second"):
        options["reward_funcs"].append(only_scored(one) if second == "only_scored" else one)
    logs, starts = Logs(), []
    start_group = RemoteEnvironment.start_group

    async def counted(environment: Any, count: int, **options: Any) -> Any:
        starts.append(count)
        return await start_group(environment, count, **options)

    RemoteEnvironment.start_group = counted
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    before = {name: value.clone() for name, value in model.named_parameters()}
    Observer.given, Observer.noted, UNSCORED["trl"] = given, [], 0
    trainer = Observer(
        model=model, args=config, train_dataset=Dataset.from_list(data), processing_class=tokenizer, callbacks=[logs],
        **options,
    )  # fmt: skip
    trainer.train()
    RemoteEnvironment.start_group = start_group
    changed = any(not torch.equal(value, before[name]) for name, value in model.named_parameters())
    tokens = {call["name"]: [] for call in calls}
    for call in calls:
        tokens[call["name"]].append(tokenizer.convert_tokens_to_ids(call_text(call)))
    report = {"steps": Observer.noted, "logs": logs.kept, "unscored": UNSCORED["trl"], "changed": changed}
    if process := getattr(trainer, "server", None):
        process.terminate()
    return {**report, "starts": starts, "tokens": tokens, "end": tokenizer.eos_token_id}


def main() -> None:
    """Make all runs and report them."""
    given = json.loads(sys.argv[1])
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    reports = []
    for run in given["runs"]:
        # The client tries to reconnect for 30 seconds; a test need not wait that long for a server that stays away.
        addresses.connect = functools.partial(connect, reconnect_seconds=30.0 if "restart" in run else 1.0)
        reports.append(play(ServerAddress(run.get("url") or given["url"]), run))
    print(json.dumps(reports))


if __name__ == "__main__":
    main()
