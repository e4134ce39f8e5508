"""Trajectories and results of evaluations, made by hand."""

from __future__ import annotations

import json
from typing import Any

from ludus.evaluation.config import ModelSpec
from ludus.evaluation.figures import cell_figures
from ludus.protocol.episodes import TaskRow
from ludus.protocol.evaluation import Cell, EvaluationResults, parse_evaluation
from ludus.protocol.rewards import Reward
from ludus.protocol.trajectory import Failure, FailureKind, Trajectory, TurnRecord, Usage

SPEC = ModelSpec(model="openai:m@http://localhost:1/v1", price_in=1.0, price_out=2.0)


def played(
    task: int,
    sample: int = 0,
    value: float | None = 1.0,
    *,
    failure: FailureKind | None = None,
    tokens: tuple[int, int] | None = None,
    **changes: Any,
) -> Trajectory:
    """A trajectory of task number `task`; without a value it is unscored."""
    usage = None if tokens is None else Usage(requests=1, input_tokens=tokens[0], output_tokens=tokens[1])
    given: dict[str, Any] = {
        "environment": "env", "environment_version": "1", "split": "train", "policy": "p", "sample": sample,
        "task": TaskRow(id=f"t-{task}", split="train", index=task, fields={}),
        "reward": None if failure else Reward.unscored("no verdict") if value is None else Reward.of(value),
        "seed": 7, "started_at": 0.0, "seconds": 1.0,
        "turns": (TurnRecord(items=1, policy_seconds=0.1, environment_seconds=0.1, usage=usage),),
        "failure": Failure(kind=failure, error="E", message="broke", attempt=1) if failure else None,
    }  # fmt: skip
    return Trajectory(**{**given, **changes})


def cell(episodes: list[Trajectory], *, model: ModelSpec = SPEC, samples: int = 2, **changes: Any) -> Cell:
    options: dict[str, Any] = {
        "environment": "env", "version": "1", "split": "train", "seeded": True, "planned": len(episodes),
        "success_at": 1.0, "reward_range": (0.0, 1.0), "probes": (), "problem": None, "trajectories": "m.jsonl",
    }  # fmt: skip
    return cell_figures(episodes, spec=model, samples=samples, **{**options, **changes})


def document(*cells: Cell, models: tuple[str, ...] = ("m",), **changes: Any) -> dict[str, Any]:
    value: dict[str, Any] = {
        "format": "ludus.evaluation/0.1", "ludus_version": "0.1.0", "started_at": "2026-11-23T10:00:00Z",
        "updated_at": "2026-11-23T10:01:00Z", "finished": True, "seed": 0, "samples": 2,
        "limits": {"max_turns": 200, "turn_seconds": None, "episode_seconds": None}, "prompt_share": 0.5,
        "models": [
            {"name": name, "wire": "openai", "model": name, "endpoint": "http://localhost:1/v1", "options": {"t": 0},
             "price_in": 1.0, "price_out": 2.0} for name in models
        ],
        "cells": [one.model_dump(mode="json") for one in cells],
    }  # fmt: skip
    return {**value, **changes}


def parse(value: Any) -> EvaluationResults:
    return parse_evaluation(json.dumps(value), "results.json")
