"""Repair a program without its specification: change it until the examples hold. It must earn next to nothing.

The search runs in one call of the tool `run`, as a policy would do it. It knows the given program, the examples of the
prompt, and how programs are changed here, which a policy must guess.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from typing import Final

from ludus.environments.code.checks import Case
from ludus.environments.code.mutations import Change, changes_of, cuts_of
from ludus.environments.code.problem import Problem
from ludus.environments.code.running import render
from ludus.protocol import Answer, Call, StepResult, text_of

SECONDS: Final = 2
"""The processor time of a search; the tool gives 6 s."""

_SEARCH: Final = """\
import copy, itertools, json, random, signal, time

def outcome(function, arguments, count=None):
    try:
        value = function(*arguments)
        return repr(value if count is None else list(itertools.islice(value, count)))
    except Exception as error:
        return f"raises {type(error).__name__}"

def outcomes(target, calls):
    if KIND == "iterator":
        return [outcome(target, arguments, count) for arguments, count in calls]
    if KIND == "function":
        return [outcome(target, arguments) for arguments in calls]
    made = target(*calls[0])
    return [outcome(getattr(made, method), arguments) for method, *arguments in calls[1:]]

def holds(program):
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.05)
    try:
        names = {}
        exec(program, names)
        return all(outcomes(names[ENTRY], copy.deepcopy(calls)) == expected for calls, expected in EXAMPLES)
    except Exception:
        return False
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)

def late(*_):
    raise TimeoutError

def attempts():
    for size in range(1, MOST + 1):
        chosen = [sorted(some) for some in itertools.combinations(range(len(CHANGES)), size)]
        random.Random(0).shuffle(chosen)
        yield from chosen

def changed(numbers):
    program, last = GIVEN, len(GIVEN)
    for start, end, text in sorted((CHANGES[number] for number in numbers), reverse=True):
        if end > last:
            return GIVEN
        program, last = program[:start] + text + program[end:], start
    return program

signal.signal(signal.SIGVTALRM, late)
for numbers in attempts():
    if time.process_time() > SECONDS:
        break
    program = changed(numbers)
    if program != GIVEN and holds(program):
        print(json.dumps(numbers))
        break
"""


def search(
    problem: Problem, examples: Sequence[Case], given: str, most: int
) -> Generator[Call | Answer, StepResult, None]:
    """Change a program until the examples hold, and hand it in.

    Args:
        problem: the problem, of which the search knows only what the prompt says.
        examples: the examples that the prompt shows.
        given: the program that is to be repaired.
        most: the most changes at once.
    """
    changes = sorted({*changes_of(given), *cuts_of(given)})
    shown = [(case.calls, [render(outcome) for outcome in case.expected]) for case in examples]
    values = {"KIND": problem.kind, "ENTRY": problem.entry, "GIVEN": given, "EXAMPLES": shown, "MOST": most,
              "SECONDS": SECONDS, "CHANGES": [tuple(change) for change in changes]}  # fmt: skip
    program = "".join(f"{name} = {value!r}\n" for name, value in values.items()) + _SEARCH
    result = yield Call("run", {"program": program})
    yield Call("submit", {"program": _changed(given, changes, text_of(result.content).partition("\n")[0])})


def _changed(given: str, changes: Sequence[Change], printed: str) -> str:
    """Return the program with the changes that a search has printed by their numbers."""
    if not printed.startswith("["):
        return given
    for change in sorted((changes[number] for number in json.loads(printed)), reverse=True):
        given = change.applied_to(given)
    return given
