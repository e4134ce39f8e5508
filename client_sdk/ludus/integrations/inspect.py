"""Evaluate with Inspect AI: a task whose samples are tasks of a Ludus environment, its solver and its scorer.

    inspect eval ludus/environment --model openai/MODEL -T url=http://127.0.0.1:8000 -T environment=wordle

How this works:

* `environment` makes a sample of each task: the prompt of a preview, and the address of the task.
* `episode` starts an episode, calls the model through Inspect, and runs each tool call through Inspect's
  `execute_tools`, so that logs, approvals and limits work as with any other solver.
* A limit of Inspect truncates the episode, which keeps what it has earned. A cancellation closes it.
* `reward` scores with the episode's value. If the episode has none, the score is `Score.unscored()`.

Inspect finds these three by the entry point `ludus` in the group `inspect_ai`, which names this module.
"""

from __future__ import annotations

from typing import Final

from ludus.integrations.peers import require

TESTED: Final = "0.3.285"
"""The version of inspect-ai that the tests run."""

require("inspect-ai", TESTED)

from ludus.integrations._inspect_task import environment, episode, reward  # noqa: E402 (the check comes first)

__all__ = ["environment", "episode", "reward"]
