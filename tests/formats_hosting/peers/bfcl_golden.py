"""Answers tasks of the leaderboard with the reference calls, exact or mutated, and judges them with its checker."""

from __future__ import annotations

import ast
import json
import random
import sys
from pathlib import Path
from typing import Any

import bfcl_eval
from bfcl_eval.constants.default_prompts import MAXIMUM_STEP_LIMIT
from bfcl_eval.constants.executable_backend_config import MULTI_TURN_FUNC_DOC_FILE_MAPPING
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call

DATA = Path(next(iter(bfcl_eval.__path__))) / "data"


def lines(*path: str) -> list[dict[str, Any]]:
    """Return a file of the package."""
    return [json.loads(line) for line in DATA.joinpath(*path).read_text(encoding="utf-8").splitlines() if line]


def arguments_of(call: str, entry: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Return a reference call as a name and arguments by name; None if it is nested, or not all have names."""
    node = ast.parse(call, mode="eval").body
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    name = node.func.id
    documents = [one for kind in entry["involved_classes"] for one in DOCUMENTS[kind]]
    known = next((list(one["parameters"]["properties"]) for one in documents if one["name"] == name), [])
    try:
        values = {known[place]: ast.literal_eval(value) for place, value in enumerate(node.args)}
        values.update({str(word.arg): ast.literal_eval(word.value) for word in node.keywords})
    except (ValueError, IndexError):
        return None
    return name, values


def mutated(turns: list[list[Any]], rng: random.Random) -> list[list[Any]]:
    """Return the calls of all turns with one of them left out, repeated, or given another text."""
    found = [[(name, dict(values)) for name, values in turn] for turn in turns]
    filled = [turn for turn in found if turn]
    turn = rng.choice(filled)
    place = rng.randrange(len(turn))
    kind = rng.choice(["drop", "repeat", "change", "none"])
    if kind == "drop":
        del turn[place]
    elif kind == "repeat":
        turn.insert(place, turn[place])
    elif kind == "change":
        for name, value in turn[place][1].items():
            if isinstance(value, str):
                turn[place][1][name] = value + " x"
            elif isinstance(value, (int, float)) and not isinstance(value, bool):
                turn[place][1][name] = value + 1
    return found


def judge(category: str, entry: dict[str, Any], truth: list[list[str]], turns: list[list[Any]], name: str) -> Any:
    """Execute calls step by step, and return their results by turn, and the verdict of the checker."""
    written = [[[f"{call}({','.join(f'{k}={v!r}' for k, v in values.items())})"] for call, values in turn]
               for turn in turns]  # fmt: skip
    shown = []
    for turn in written:
        shown.append([])
        for step in turn:
            results, _ = execute_multi_turn_func_call(
                step, entry["initial_config"], entry["involved_classes"], name, entry["id"],
                "long_context" in category, False,
            )  # fmt: skip
            shown[-1] += results
    assert all(len(turn) <= MAXIMUM_STEP_LIMIT for turn in written)
    return shown, multi_turn_checker(written, truth, entry, category, name)


def main() -> None:
    """Judge what standard input asks for."""
    plan = json.loads(sys.stdin.read())
    category = plan["category"]
    entries = lines(f"BFCL_v4_{category}.json")
    truths = {one["id"]: one["ground_truth"] for one in lines("possible_answer", f"BFCL_v4_{category}.json")}
    episodes = []
    for index in plan["indices"]:
        entry, truth = entries[index], truths[entries[index]["id"]]
        exact = [[arguments_of(call, entry) for call in turn] for turn in truth]
        if any(call is None for turn in exact for call in turn) or max(map(len, exact)) > MAXIMUM_STEP_LIMIT - 1:
            continue
        rng = random.Random(index)
        for way, turns in (("exact", exact), ("mutated", mutated(exact, rng))):
            shown, verdict = judge(category, entry, truth, turns, f"golden_{way}_{index}")
            episodes.append({"index": index, "id": entry["id"], "way": way, "turns": turns, "shown": shown,
                             "valid": verdict["valid"], "error_type": verdict.get("error_type"),
                             "questions": [[one["content"] for one in turn] for turn in entry["question"]],
                             "held": entry.get("missed_function", {})})  # fmt: skip
    print(json.dumps(episodes))


DOCUMENTS = {kind: lines("multi_turn_func_doc", file) for kind, file in MULTI_TURN_FUNC_DOC_FILE_MAPPING.items()}
main()
