"""The Berkeley function calling leaderboard's multi-turn tasks, with its simulators and its checker.

How this works:

- A task has several turns of the user. The agent calls functions of simulators, each call a step, and ends its turn
  with the tool `reply`, which returns the user's next message.
- The simulators are the package's own, fresh for each episode: `execute_multi_turn_func_call` keeps them by a name,
  which is unique here.
- The leaderboard does not check arguments against its schemas, and some of its own reference calls do not fit them. So
  arguments reach the simulators as they are; only their names are checked, as the package evaluates calls as code.
- After the last turn `multi_turn_checker` repeats the calls and the reference calls, and compares states and results.
  What ends earlier is wrong, as the package judges an answer with fewer turns.
"""

from __future__ import annotations

import ast
import copy
import json
import os
import re
import uuid
from importlib.metadata import version
from typing import Any

from .adapter import Adapter, HostedEpisode, NotUsable, Refused, description, need, split, tool
from .values import result

PACKAGE = "bfcl-eval"
CATEGORIES = ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context")
REPLY = "reply"
NEW = "call_new_function"
INSTRUCTIONS = (
    "You help a user over several turns. Call functions to fulfill the user's request; if that is not possible, say "
    f"so. When the current turn is complete, call {REPLY} with your message; it returns the user's next request."
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class BfclAdapter(Adapter):
    """A multi-turn category, or all four of them: `multi_turn`. Option: `instructions`."""

    def __init__(self, target: str, options: dict[str, Any]) -> None:
        super().__init__(target, options)
        package = need("bfcl_eval", PACKAGE)
        base = "bfcl_eval.eval_checker.multi_turn_eval"
        self.utils = need(f"{base}.multi_turn_utils", PACKAGE)
        self.checker = need(f"{base}.multi_turn_checker", PACKAGE)
        self.backend = need("bfcl_eval.constants.executable_backend_config", PACKAGE)
        self.prompts = need("bfcl_eval.constants.default_prompts", PACKAGE)
        self.types: dict[str, str] = need("bfcl_eval.constants.type_mappings", PACKAGE).GORILLA_TO_OPENAPI
        names = CATEGORIES if target == "multi_turn" else (target,)
        if not set(names) <= set(CATEGORIES):
            raise NotUsable(f"there is no category {target!r}; those that are hosted are: {', '.join(CATEGORIES)}, or "
                            "multi_turn for all of them")  # fmt: skip
        self.data = os.path.join(next(iter(package.__path__)), "data")
        self.documents: dict[str, list[dict[str, Any]]] = {}
        self.entries = {name: self._lines(f"BFCL_v4_{name}.json") for name in names}
        self.answers = {name: self._answers(name) for name in names}
        for entries in self.entries.values():
            for class_name in {one for entry in entries for one in entry["involved_classes"]}:
                need(self.backend.CLASS_FILE_PATH_MAPPING[class_name], PACKAGE)

    def _lines(self, *path: str) -> list[dict[str, Any]]:
        with open(os.path.join(self.data, *path), encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.strip()]

    def _answers(self, category: str) -> dict[str, list[list[str]]]:
        lines = self._lines("possible_answer", f"BFCL_v4_{category}.json")
        return {line["id"]: line["ground_truth"] for line in lines}

    def functions(self, entry: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[int, list[dict[str, Any]]]]:
        """Return the functions of a task at its beginning, and those that a later turn adds."""
        found: list[dict[str, Any]] = []
        for class_name in entry["involved_classes"]:
            if class_name not in self.documents:
                file = self.backend.MULTI_TURN_FUNC_DOC_FILE_MAPPING[class_name]
                self.documents[class_name] = self._lines("multi_turn_func_doc", file)
            found += self.documents[class_name]
        later: dict[int, list[dict[str, Any]]] = {}
        for turn, names in entry.get("missed_function", {}).items():
            later[int(turn)] = []
            for name in names:
                held = next((one for one in found if one["name"] == name), None)
                if held is not None:
                    later[int(turn)].append(held)
                    found.remove(held)
        return found, later

    def schema(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON Schema of a function's arguments, with the package's own mapping of types."""
        parameters = document["parameters"]
        return {
            "type": "object",
            "properties": {name: self._schema(one) for name, one in parameters["properties"].items()},
            "required": list(parameters.get("required", [])),
            "additionalProperties": False,
        }

    def _schema(self, given: dict[str, Any]) -> dict[str, Any]:
        found = {**given, "type": self.types.get(given.get("type", "string"), "string")}
        if given.get("type") == "float":
            found["description"] = f"{given.get('description', '')} This is a float type value."
        if "items" in given:
            found["items"] = self._schema(given["items"])
        if "properties" in given:
            found["properties"] = {name: self._schema(one) for name, one in given["properties"].items()}
        return found

    def describe(self) -> list[dict[str, Any]]:
        own = version(PACKAGE)
        return [
            description(
                f"bfcl-{name.replace('_', '-')}",
                f"The category {name} of the Berkeley function calling leaderboard: requests over several turns, and "
                "functions of simulated services.",
                [split("test", len(entries), "test")],
                task_tools=True,
                gradable=True,
                solvable=True,
                package=f"{PACKAGE} {own}",
                version=own,
                reward_range=(0.0, 1.0),
                not_promised={
                    "parallel calls": "each call is a step of its own, and counts as one of the leaderboard's "
                    f"{self.prompts.MAXIMUM_STEP_LIMIT} steps in a turn",
                },
            )
            for name, entries in self.entries.items()
        ]

    def task(self, environment: str, split: str, index: int) -> dict[str, Any]:
        entry = self.entries[_category(environment)][index]
        return {"id": entry["id"], "private": {"index": index}}

    def open(self, environment: str, task: dict[str, Any], seed: int) -> HostedEpisode:
        category = _category(environment)
        return BfclEpisode(self, category, self.entries[category][int(task["private"]["index"])])

    def solution(self, environment: str, task: dict[str, Any]) -> list[dict[str, Any]]:
        category = _category(environment)
        entry = self.entries[category][int(task["private"]["index"])]
        functions, later = self.functions(entry)
        known = {one["name"]: one for one in [*functions, *(one for added in later.values() for one in added)]}
        offered = {function["name"] for function in functions}
        moves: list[dict[str, Any]] = []
        for turn in self.answers[category][entry["id"]]:
            for written in turn:
                name, arguments = _parsed(written, known)
                if name in offered:
                    moves.append({"tool": name, "arguments": arguments})
                else:
                    moves.append({"tool": NEW, "arguments": {"name": name, "arguments": arguments}})
            moves.append({"tool": REPLY, "arguments": {"text": "Done."}})
        return moves


class BfclEpisode(HostedEpisode):
    """One task, from its first turn on."""

    def __init__(self, adapter: BfclAdapter, category: str, entry: dict[str, Any]) -> None:
        self.adapter = adapter
        self.category = category
        self.entry = entry
        self.model = f"ludus{uuid.uuid4().hex}"
        functions, self.later = adapter.functions(entry)
        self.known = {function["name"]: function for function in functions}
        self.withheld = {one["name"]: one for added in self.later.values() for one in added}
        self.calls: list[list[list[str]]] = [[]]
        self.tools = [
            {
                "name": function["name"],
                "description": function["description"],
                "schema": adapter.schema(function),
                "checked": False,
            }
            for function in functions
        ]
        self.tools.append(
            {**tool(REPLY, "End the current turn with a message, and return the user's next request.",
                    {"text": {"type": "string", "description": "The message to the user."}})}
        )  # fmt: skip
        if self.later:
            self.tools.append(
                tool(NEW, "Call a function that became available in a later turn.",
                     {"name": {"type": "string"}, "arguments": {"type": "object"}})
            )  # fmt: skip
        system = [{"role": "system", "content": INSTRUCTIONS}] if adapter.options.get("instructions", True) else []
        self.prompt = [*system, *self._turn(0)]
        self._execute([])

    def _turn(self, number: int) -> list[dict[str, Any]]:
        """Return the user's messages of a turn, with the functions that become available."""
        if number not in self.later:
            return [{"role": one["role"], "content": one["content"]} for one in self.entry["question"][number]]
        shown = [
            {"name": one["name"], "description": one["description"], "parameters": self.adapter.schema(one)}
            for one in self.later[number]
        ]
        text = self.adapter.prompts.DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_PROMPTING
        return [{"role": "user", "content": text.format(functions=json.dumps(shown))}]

    def _execute(self, calls: list[str]) -> list[str]:
        entry = self.entry
        results, _ = self.adapter.utils.execute_multi_turn_func_call(
            calls, entry["initial_config"], entry["involved_classes"], self.model, entry["id"],
            long_context="long_context" in self.category, is_evaL_run=False,
        )  # fmt: skip
        return list(results)

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if tool == REPLY:
            return self._reply()
        if tool == NEW:
            tool, arguments = self._checked(arguments)
        elif wrong := [argument for argument in arguments if not _NAME.fullmatch(argument)]:
            raise Refused(f"{wrong[0][:100]!r} is no name of an argument")
        written = f"{tool}({','.join(f'{name}={value!r}' for name, value in arguments.items())})"
        self.calls[-1].append([written])
        (found,) = self._execute([written])
        if len(self.calls[-1]) > self.adapter.prompts.MAXIMUM_STEP_LIMIT:
            return result(
                found, reward=0.0, finished=True, metadata={"valid": False, "error_type": "multi_turn:force_terminated"}
            )
        return result(found)

    def _checked(self, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return a function that becomes available later, and its arguments.

        The leaderboard carries such a call out at any time, and one of its reference solutions calls one too early.
        """
        name, arguments = given["name"], given["arguments"]
        if name not in self.withheld:
            raise Refused(f"no function {name!r} became available; call the other functions as tools")
        properties = self.withheld[name]["parameters"]["properties"]
        wrong = [argument for argument in arguments if argument not in properties or not _NAME.fullmatch(argument)]
        if wrong:
            raise Refused(f"the function {name!r} has no argument {wrong[0]!r}; it has: {', '.join(properties)}")
        return name, arguments

    def _reply(self) -> dict[str, Any]:
        if len(self.calls) == len(self.entry["question"]):
            return self._judged()
        self.calls.append([])
        return result([one["content"] for one in self._turn(len(self.calls) - 1)])

    def grade(self, answer: str) -> dict[str, Any]:
        if len(self.calls) < len(self.entry["question"]):
            return result("", reward=0.0, metadata={"valid": False, "error_type": "multi_turn:force_terminated"})
        return self._judged()

    def _judged(self) -> dict[str, Any]:
        truth = self.adapter.answers[self.category][self.entry["id"]]
        found = self.adapter.checker.multi_turn_checker(
            self.calls, truth, copy.deepcopy(self.entry), self.category, self.model
        )
        metadata = {name: found[name] for name in ("valid", "error_type", "error_message") if name in found}
        return result("The last turn has ended.", reward=float(found["valid"]), finished=True, metadata=metadata)

    def close(self) -> None:
        for name in [one for one in vars(self.adapter.utils) if one.startswith(self.model)]:
            delattr(self.adapter.utils, name)


def _parsed(written: str, known: dict[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of a reference call, such as `cd(folder='reports')`."""
    call: Any = ast.parse(written, mode="eval").body
    name = str(call.func.id)
    parameters = list(known[name]["parameters"]["properties"])
    arguments = {parameters[index]: ast.literal_eval(value) for index, value in enumerate(call.args)}
    arguments.update({str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords})
    return name, arguments


def _category(environment: str) -> str:
    return environment[len("bfcl-") :].replace("-", "_")


ADAPTER = BfclAdapter
