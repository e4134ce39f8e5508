"""Other right ways to repair a repository, which all earn what the oracle earns."""

from __future__ import annotations

import ast
import base64
from collections.abc import Generator, Iterable, Mapping

from ludus.environments.swe.problem import Problem
from ludus.protocol import Answer, Call, StepResult

Policy = Generator[Call | Answer, StepResult, None]


def equivalents(problem: Problem) -> Mapping[str, Policy]:
    """Return policies that repair a problem by other tools, or with other text, by what is different."""
    right = {
        f"{problem.top}{path}": text
        for path, text in problem.sound.items()
        if text != problem.files[f"{problem.top}{path}"]
    }
    whole = {path: Call("write", {"path": path, "content": text}) for path, text in right.items()}
    parsed = {
        path: Call("write", {"path": path, "content": f"{ast.unparse(ast.parse(text))}\n"})
        for path, text in right.items()
    }
    note = Call(
        "bash", {"command": "git add -A; git -c user.name=a -c user.email=a@example.com commit -qm 'Fix the reports'"}
    )
    return {
        "whole files": _play(whole.values()),
        "another layout of the code": _play(parsed.values()),
        "a program": _play(_by_program(path, text) for path, text in right.items()),
        "a look, a repair and a commit": _play(
            [Call("view", {"path": path}) for path in right] + [*whole.values(), note]
        ),
        "a message at the end": _say(whole.values()),
    }


def _by_program(path: str, text: str) -> Call:
    """Return a call that lets Python write a file."""
    data = base64.b64encode(text.encode()).decode()
    program = f"import base64, pathlib; pathlib.Path({path!r}).write_bytes(base64.b64decode({data!r}))"
    return Call("bash", {"command": f"python3 - <<'END'\n{program}\nEND"})


def _play(calls: Iterable[Call]) -> Policy:
    for call in calls:  # noqa: UP028 - an iterable takes no results, which `yield from` would send it
        yield call
    yield Call("submit", {"summary": "Repaired."})


def _say(calls: Iterable[Call]) -> Policy:
    for call in calls:  # noqa: UP028
        yield call
    yield Answer("Repaired.")


__all__ = ["equivalents"]
