"""Runs whose episodes a program plays through the gateway, with the torch engine."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from toys import Even, Serve, metrics_of, run, run_config

pytestmark = pytest.mark.timeout(180)

AGENT = """
import json, os, sys, urllib.request
task = json.loads(sys.stdin.readline())
body = {"messages": [{"role": "user", "content": task["prompt"]}]}
for number in range(2):  # a second message makes the sample longer
    request = urllib.request.Request(task["openai_base_url"] + "/chat/completions", json.dumps(body).encode())
    message = json.loads(urllib.request.urlopen(request).read())["choices"][0]["message"]
    body["messages"] += [message, {"role": "user", "content": "Go on."}]
"""


async def test_the_learner_finds_the_probabilities_of_the_recorded_tokens(
    serve: Serve, tiny: Path, tmp_path: Path
) -> None:
    program = tmp_path / "agent.py"
    program.write_text(AGENT)
    server = await serve(Even)
    harness = f"command {shlex.quote(sys.executable)} {shlex.quote(str(program))}"
    config = run_config(tmp_path / "run", tiny, server.url, steps=2, rollouts={"harness": harness, "max_turns": 4})
    await run(config)
    steps = metrics_of(config.output)
    assert [line["step"] for line in steps] == [1, 2]
    assert all(line["rollout/turns"] == 2 for line in steps)
    assert all(line["rollout/failed"] == 0 for line in steps)
    # Tokens or log-probabilities other than those that were sampled would show here.
    assert all(line["loss/mismatch_k3"] < 1e-6 for line in steps)
