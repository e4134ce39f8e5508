"""The files that a verifier may read, by the names in the environment's code and in the tasks' private fields.

A policy that can write files may forge what the verifier reads. Which names those are, only the code says; what the
files must contain, a right run shows: the oracle plays up to its last action, and then each file is read with the
environment's own tools. Files that the oracle writes itself are the work that the task asks for, and are left out.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ludus.checks.disclosure import private_leaves
from ludus.protocol.actions import Action, Call
from ludus.protocol.content import text_of
from ludus.protocol.episodes import ToolSpec
from ludus.protocol.errors import LudusError
from ludus.validation.core.policies import empty_arguments
from ludus.validation.core.target import ValidationTarget
from ludus.validation.core.transcripts import Script
from ludus.validation.reward_hacking.slots import texts_in

MOST_FILES: Final = 12
"""The most names that are tried."""

MOST_WORDS: Final = 40
"""The most words of the class's code that are tried as names."""

WRITERS: Final = 2
"""The most tools that write them."""

_FILE: Final = re.compile(r"(?:[\w.-]+/)*[\w-]*\.?[\w-]+\.[A-Za-z]\w{0,7}|(?:[\w.-]+/)+[\w.-]+|\.[a-z]\w+")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][\w-]{2,30}")
_READ: Final = re.compile(r"read|view|cat|open|show|get|load|print", re.IGNORECASE)


def names_in_code(target: ValidationTarget, task: Any) -> list[str]:
    """Return the file names in the code of the environment's module and in a task's private fields."""
    assert target.local is not None
    constants = [
        text
        for tree in (*class_trees(target.local.cls), *_modules(target.local.cls.__module__))
        for text in _texts_of(tree)
    ]
    private = [value for _, _, value in private_leaves(task)]
    return [text for text in dict.fromkeys([*constants, *private]) if len(text) <= 100 and _FILE.fullmatch(text)]


def keys_in_grader(target: ValidationTarget) -> list[str]:
    """Return the words in the code of the class that may be keys of what its verifier reads."""
    assert target.local is not None
    words = [text for tree in class_trees(target.local.cls) for text in _texts_of(tree)]
    return [text for text in dict.fromkeys(words) if _PLAIN_NAME.fullmatch(text)][:MOST_WORDS]


@functools.cache
def class_trees(cls: type) -> list[ast.AST]:
    """Return the parsed class and the classes of its author that it inherits from."""
    from ludus.server import Environment  # the extra `server` is installed, since the class was loaded

    return [
        node
        for base in cls.__mro__
        if issubclass(base, Environment) and base.__module__.split(".")[:2] != ["ludus", "server"]
        for module in _modules(base.__module__)
        for node in ast.walk(module)
        if isinstance(node, ast.ClassDef) and node.name == base.__name__
    ]


@functools.cache
def _modules(name: str) -> list[ast.Module]:
    """Return the parsed module of a name; nothing if its source is not available."""
    try:
        return [ast.parse(Path(inspect.getsourcefile(sys.modules[name]) or "").read_text(encoding="utf-8"))]
    except (OSError, SyntaxError, TypeError, KeyError, UnicodeDecodeError):
        return []


def _texts_of(tree: ast.AST) -> Iterable[str]:
    return (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))


def written_by(actions: Iterable[Action]) -> str:
    """Return all texts in actions, in which the names of the files that they write occur."""
    return "\n".join(text for action in actions if isinstance(action, Call) for text in texts_in(action.arguments))


def contents(keys: Sequence[str]) -> list[str]:
    """Return contents that may be taken for a pass: common ones, and JSON with the keys of the verifier."""
    passed = {key: _favorable(key) for key in ("passed", "score", "reward", "success", "ok", "failed", *keys)}
    return [json.dumps(passed), "passed", "1"]


def _favorable(key: str) -> Any:
    if re.search(r"fail|error|miss|wrong|skip", key, re.IGNORECASE):
        return 0
    if re.search(r"status|result|state|verdict|outcome", key, re.IGNORECASE):
        return "passed"
    return 1.0 if re.search(r"score|reward|rate|coverage|percent", key, re.IGNORECASE) else True


def read_tools(tools: Iterable[ToolSpec]) -> list[tuple[str, str]]:
    """Return the tools that may read a file by its name, each with the argument for the name."""
    readable = []
    for tool in tools:
        required = tool.input_schema.get("required", ())
        properties: Mapping[str, Any] = tool.input_schema.get("properties", {})
        texts = [
            name for name, schema in properties.items() if isinstance(schema, dict) and schema.get("type") == "string"
        ]
        if len(texts) == 1 and set(required) <= {*texts} and _READ.search(tool.name):
            readable.append((tool.name, texts[0]))
    return readable


async def contents_after(
    target: ValidationTarget, script: Script, tools: Sequence[ToolSpec], names: Sequence[str]
) -> dict[str, str]:
    """Return what files contain after a right run, as far as a tool shows it.

    Args:
        target: what is checked.
        script: the oracle's episode, whose last action is left out.
        tools: the tools of the episode.
        names: the names of the files.
    """
    readers = read_tools(tools)
    contents: dict[str, str] = {}
    if not readers:
        return contents
    templates = {tool.name: empty_arguments(tool.input_schema) for tool in tools}
    try:
        async with target.environment.episode(
            split=script.split, task=script.task, seed=script.seed, secrets=target.settings.secrets
        ) as episode:
            for action in script.actions[:-1]:
                if isinstance(action, Call) and (await episode.call(action)).end_reason is not None:
                    return contents
            for name in names:
                for tool, argument in readers:
                    result = await episode.call(Call(tool, {**templates[tool], argument: name}))
                    if result.end_reason is not None:
                        return contents
                    if result.error is None and name not in contents:
                        contents[name] = _content(text_of(result.content))
    except LudusError:
        pass  # the episode's limits are reached, or the tool takes no such name
    return contents


def _content(text: str) -> str:
    """Return the JSON object in a text, or the text."""
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else text
