"""Code: its families, hidden cases, faults and rewards, and how it runs programs."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from importlib import resources
from itertools import combinations, islice
from pathlib import Path
from textwrap import indent
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suite_selection import selected_suites, whole_or_few

from ludus.environments.code import equivalents, inside
from ludus.environments.code.checks import Case, compiled, constant_passes, make_hidden, outcomes_of
from ludus.environments.code.environment import Code, sandbox_settings
from ludus.environments.code.exploits import programs
from ludus.environments.code.families import FAMILIES
from ludus.environments.code.grading import program_in, reward_of
from ludus.environments.code.mutations import changes_of, cuts_of
from ludus.environments.code.neighbors import Draw, each_rule_counts, neighbors
from ludus.environments.code.problem import Problem
from ludus.environments.code.running import CASE_BYTES, CaseResult, read_results, run_cases, same
from ludus.environments.code.tasks import CodeTask, broken_of, drawn_problem, examples_of, hidden_of, problem_of
from ludus.environments.code.trials import outcomes_in
from ludus.protocol import Call, text_of
from ludus.sandbox import RunResult, Sandbox, find_provider
from ludus.server import DIFFICULTIES, Difficulty
from ludus.server.authoring.partition import SplitType, split_of
from ludus.server.authoring.procedural import SECRET_VARIABLE
from ludus.server.rewards.isolated.inside import SIGNALS

each_family = pytest.mark.parametrize("family", FAMILIES)
each_difficulty = pytest.mark.parametrize("difficulty", DIFFICULTIES)

GOLDEN_TASKS: Final = {"easy": "84c5f4477f4ee0ee", "medium": "570c871c2eb2fa63", "hard": "c5ba722dfbd40431"}
"""Digests of the first test tasks of each level: specification, examples, hidden cases with their values, and fault."""

GOLDEN_EPISODES: Final = {"easy": "e65ee73a6f032634", "medium": "137405cc57fe974d", "hard": "153bd014d7e9f73f"}
"""Digests of what the first training tasks of each level show and reward. A change of these, or of those above, raises
the environment's version."""


def task_of(difficulty: Difficulty, index: int) -> CodeTask:
    """A training task of one level."""
    return Code.load_task("train", index, [difficulty])


def first(mode: str, kind: str, difficulty: Difficulty = "easy") -> CodeTask:
    """The first training task of a mode whose entry is of a kind."""
    for index in range(300):
        task = task_of(difficulty, index)
        if task.mode == mode and problem_of(task).kind == kind:
            return task
    raise AssertionError


def results_of(problem: Problem, cases: Sequence[Case], target: Any) -> list[CaseResult]:
    """What a function or class of this process would answer."""
    return [CaseResult(list(outcomes_of(target, problem, case.calls))) for case in cases]


def reward_for(task: CodeTask, program: str) -> float:
    """The reward of a harmless program, which runs in this process."""
    problem, hidden = problem_of(task), hidden_of(task)
    value = reward_of(hidden, results_of(problem, hidden, compiled(program, problem.entry))).value
    assert value is not None
    return value


# Tasks.


@settings(max_examples=60, deadline=None)
@given(index=st.integers(0, 2**50), difficulty=st.sampled_from(DIFFICULTIES))
def test_the_rules_of_a_training_task_are_those_of_no_task_held_out(index: int, difficulty: Difficulty) -> None:
    assert split_of(problem_of(task_of(difficulty, index)).split_key) == "train"


@pytest.mark.suite("breadth", first=1)
@each_difficulty
def test_validation_and_test_share_no_combination_of_rules_and_repeat_no_task(difficulty: Difficulty) -> None:
    splits: tuple[SplitType, ...] = ("validation", "test")
    for split in splits:
        tasks = Code.load_tasks(split, [difficulty])
        assert len({task.specification for task in tasks}) == len(tasks) == 480
        assert {split_of(drawn_problem(task.family, difficulty, task.recipe).split_key) for task in tasks} == {split}


def test_constants_names_and_wording_do_not_change_the_split() -> None:
    specifications: dict[str, set[str]] = {}
    for seed in range(400):
        problem = FAMILIES["strings"](random.Random(seed), "easy")
        specifications.setdefault(problem.key, set()).add(problem.specification)
    assert max(len(one) for one in specifications.values()) > 1


@each_family
def test_a_family_has_hundreds_of_combinations(family: str) -> None:
    keys = {FAMILIES[family](random.Random(seed), DIFFICULTIES[seed % 3]).key for seed in range(900)}
    assert len(keys) >= 300


def test_families_levels_and_modes_take_turns() -> None:
    tasks = [Code.load_task("train", index) for index in range(16 * 3 * 3)]
    assert {task.family for task in tasks} == set(FAMILIES)
    assert len({(task.family, task.difficulty, task.mode) for task in tasks}) == 16 * 3 * 2


def test_a_secret_gives_other_test_tasks_under_other_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    public = Code.load_tasks("test", ["easy"])
    monkeypatch.setenv(SECRET_VARIABLE, "nobody knows this secret")
    secret = Code.load_tasks("test", ["easy"])
    assert {task.id for task in public}.isdisjoint(task.id for task in secret)
    assert len({task.specification for task in public} & {task.specification for task in secret}) == 0
    bits = [task.recipe for task in secret if task.family == "bits"]
    assert {split_of(drawn_problem("bits", "easy", recipe).split_key) for recipe in bits} == {"test"}


# Hidden cases.


@pytest.mark.suite("breadth", first=4)
@each_difficulty
@each_family
def test_hidden_cases_tell_a_solution_from_guesses(family: str, difficulty: Difficulty) -> None:
    for seed in range(3):
        problem = FAMILIES[family](random.Random(seed), difficulty)
        hidden = make_hidden(problem, seed)
        right = compiled(problem.reference, problem.entry)
        scored = [case for case in hidden if not case.guessed]

        assert reward_of(hidden, results_of(problem, hidden, right)).value == 1.0
        assert len(scored) > constant_passes(hidden) + 2
        for value in {json.dumps(case.expected) for case in hidden}:
            outcome = json.loads(value)[0]
            constant = [CaseResult([outcome] * len(case.expected)) for case in hidden]
            assert reward_of(hidden, constant).value == 0.0


@each_family
def test_the_reference_agrees_with_the_examples_and_changes_no_argument(family: str) -> None:
    problem = FAMILIES[family](random.Random(7), "hard")
    target = compiled(problem.reference, problem.entry)
    for case in make_hidden(problem, 7):
        calls = [inside.decode(inside.encode(call)) for call in case.calls]
        assert tuple(inside.perform(target, problem.kind, list(calls))) == case.expected
        assert [inside.encode(call) for call in calls] == [inside.encode(call) for call in case.calls]


def test_hidden_inputs_are_none_of_the_examples() -> None:
    for index in range(16):
        task = task_of("medium", index)
        shown = {json.dumps(inside.encode(case.calls)) for case in examples_of(task)}
        assert shown.isdisjoint(json.dumps(inside.encode(case.calls)) for case in hidden_of(task))


@pytest.mark.suite("breadth", first=4)
@each_family
def test_a_guess_of_the_exploits_earns_nothing(family: str) -> None:
    for index in range(48):
        task = task_of(DIFFICULTIES[index % 3], index)
        if task.family == family:
            guesses = programs(problem_of(task), examples_of(task), None)
            for name, program in guesses.items():
                if name.startswith(("guess:", "return", "raise")):
                    assert reward_for(task, program) == 0.0, (name, task.id)


@pytest.mark.suite("breadth", first=4)
@each_family
def test_a_fault_earns_nothing_and_shows_in_hidden_cases(family: str) -> None:
    for index in range(48):
        task = task_of(DIFFICULTIES[index % 3], index)
        if (task.family, task.mode) == (family, "repair"):
            broken = broken_of(task)
            ast.parse(broken)
            assert broken != task.solution
            assert reward_for(task, broken) == 0.0
            assert reward_for(task, task.solution) == 1.0


def test_half_a_solution_earns_a_part() -> None:
    values = []
    for index in range(32):
        task = task_of("medium", index)
        problem, hidden, recipe = problem_of(task), make_hidden(problem_of(task), 1), int(task.recipe, 16)
        for neighbor in islice(neighbors(drawing(task), recipe, random.Random(index)), 4):
            outcomes = outcomes_in(problem, neighbor.problem.reference, [case.calls for case in hidden])
            if outcomes is not None and outcomes != tuple(case.expected for case in hidden):
                values.append(reward_of(hidden, [CaseResult(list(one)) for one in outcomes]).value or 0.0)
    assert all(0.0 <= value < 0.5 for value in values)
    assert sum(0.1 < value for value in values) > len(values) / 10


def drawing(task: CodeTask) -> Draw:
    """The family of a task at its level."""
    return lambda rng: FAMILIES[task.family](rng, task.difficulty)


def repairs(difficulty: Difficulty, count: int) -> list[CodeTask]:
    """The first repairs of the test split of a level."""
    return [task for task in Code.load_tasks("test", [difficulty]) if task.mode == "repair"][:count]


def reward_without_crash(task: CodeTask, program: str) -> float:
    """The reward of a changed program, which may crash or not end."""
    hidden = hidden_of(task)
    outcomes = outcomes_in(problem_of(task), program, [case.calls for case in hidden])
    return 0.0 if outcomes is None else reward_of(hidden, [CaseResult(list(one)) for one in outcomes]).value or 0.0


def found_by_search(task: CodeTask, tries: int) -> str:
    """What a search hands in that changes the given program in one or two places until the examples hold."""
    given, examples = broken_of(task), examples_of(task)
    changes = sorted({*changes_of(given), *cuts_of(given)})
    pairs = [pair for pair in combinations(changes, 2) if pair[0].end <= pair[1].start]
    rng = random.Random(task.id)
    attempts = [
        *rng.sample([(change,) for change in changes], len(changes)),
        *rng.sample(pairs, min(tries, len(pairs))),
    ]
    for attempt in attempts:
        program = given
        for change in reversed(attempt):
            program = change.applied_to(program)
        outcomes = outcomes_in(problem_of(task), program, [case.calls for case in examples])
        if program != given and outcomes == tuple(case.expected for case in examples):
            return program
    return given


@pytest.mark.suite("breadth", sample=True, first=1)
@each_difficulty
def test_a_repair_by_search_that_never_reads_the_specification_earns_next_to_nothing(difficulty: Difficulty) -> None:
    tasks = repairs(difficulty, whole_or_few(64, 16))
    values = [reward_without_crash(task, found_by_search(task, tries=100)) for task in tasks]
    assert sum(values) / len(values) <= 0.05
    assert sum(value == 1.0 for value in values) <= 1


@pytest.mark.suite("breadth", first=1)
@each_difficulty
def test_a_program_to_repair_has_faults_that_no_single_token_repairs(difficulty: Difficulty) -> None:
    solved = 0
    for task in repairs(difficulty, 16):
        given = broken_of(task)
        solved += any(reward_without_crash(task, change.applied_to(given)) == 1.0 for change in changes_of(given))
    assert solved == 0


@pytest.mark.suite("breadth", sample=True, first=1)
@each_difficulty
def test_the_examples_of_most_repairs_hold_for_the_faulty_program(difficulty: Difficulty) -> None:
    tasks = repairs(difficulty, whole_or_few(64, 16))
    holding = 0
    for task in tasks:
        outcomes = outcomes_in(problem_of(task), broken_of(task), [case.calls for case in examples_of(task)])
        holding += outcomes == tuple(case.expected for case in examples_of(task))
    assert holding >= 0.7 * len(tasks)


@pytest.mark.suite("breadth", first=1)
@each_difficulty
def test_the_solution_of_the_nearest_training_task_earns_next_to_nothing(difficulty: Difficulty) -> None:
    def words(task: CodeTask) -> frozenset[str]:
        return frozenset(re.findall(r"\w+|[^\w\s]+", task.specification))

    training = [(words(task), task) for task in (task_of(difficulty, index) for index in range(400))]
    values = []
    for task in Code.load_tasks("test", [difficulty])[:64]:
        said = words(task)
        nearest = max(training, key=lambda one: len(said & one[0]) / len(said | one[0]))[1]
        names = problem_of(nearest).entry, problem_of(task).entry
        values.append(reward_without_crash(task, re.sub(rf"\b{names[0]}\b", names[1], nearest.solution)))
    assert sum(values) / len(values) <= 0.1


@pytest.mark.suite("breadth", first=1)
@each_difficulty
def test_a_program_that_leaves_out_a_rule_is_never_right(difficulty: Difficulty) -> None:
    shorter = 0
    for task in [*Code.load_tasks("test", [difficulty])[:48], *(task_of(difficulty, index) for index in range(48))]:
        problem = problem_of(task)
        hidden = make_hidden(problem, int(task.recipe, 16))
        for neighbor in neighbors(drawing(task), int(task.recipe, 16), random.Random(0)):
            if set(neighbor.problem.rules) < set(problem.rules):
                shorter += 1
                outcomes = outcomes_in(problem, neighbor.problem.reference, [case.calls for case in hidden])
                assert outcomes != tuple(case.expected for case in hidden), (task.id, problem.key)
    assert shorter > 10


@pytest.mark.suite("breadth", first=1)
@each_difficulty
def test_no_held_out_task_is_a_training_task_except_for_a_few_words(difficulty: Difficulty) -> None:
    def runs(task: CodeTask) -> frozenset[tuple[str, ...]]:
        words = re.findall(r"\w+", f"{task.specification} {task.solution}".lower())
        return frozenset(zip(words, words[1:], words[2:], strict=False))

    training: dict[str, list[frozenset[tuple[str, ...]]]] = {}
    for index in range(1500):
        task = task_of(difficulty, index)
        training.setdefault(problem_of(task).key.partition("/")[0], []).append(runs(task))
    close = []
    for task in Code.load_tasks("test", [difficulty])[:240]:
        own = runs(task)
        others = training.get(problem_of(task).key.partition("/")[0], [])
        if any(len(own & other) >= 0.85 * len(own | other) for other in others):
            close.append(problem_of(task).key)
    assert len(close) <= 10, close


def test_a_problem_with_a_rule_without_effect_is_no_task() -> None:
    def draw(rng: random.Random) -> Problem:
        return FAMILIES["graphs"](rng, "easy")

    keys = {seed: draw(random.Random(seed)).key for seed in range(400)}
    tolls = [seed for seed, key in keys.items() if key.endswith("/toll/hops")]  # lengths do not change how many edges
    assert tolls
    assert not any(each_rule_counts(draw(random.Random(seed)), draw, seed) for seed in tolls)
    costs = [seed for seed, key in keys.items() if key.endswith("/no-loops/degrees")]
    assert any(each_rule_counts(draw(random.Random(seed)), draw, seed) for seed in costs)


def test_what_a_repair_breaks_is_subtracted() -> None:
    case = Case("random", ((1,),), (["value", ["int", "5"]],), guessed=False)
    known = Case("random", ((2,),), (["value", ["int", "6"]],), guessed=True, given=True)
    other = Case("random", ((3,),), (["value", ["int", "7"]],), guessed=False)
    third = Case("random", ((4,),), (["value", ["int", "8"]],), guessed=False)
    cases = [case, other, third, known]
    right = [CaseResult(list(one.expected)) for one in cases]
    wrong = CaseResult([["value", ["int", "0"]]])
    assert reward_of(cases, right).value == 1.0
    assert reward_of(cases, [*right[:2], wrong, right[3]]).value == pytest.approx(0.25)
    assert reward_of(cases, [*right[:2], wrong, wrong]).value == 0.0


@pytest.mark.suite("breadth", first=1)
@each_difficulty
def test_the_tasks_of_this_version_are_fixed(difficulty: Difficulty) -> None:
    content = []
    for task in Code.load_tasks("test", [difficulty])[:16]:
        fault = broken_of(task) if task.mode == "repair" else ""
        cases = [(case.calls, case.expected, case.guessed) for case in (*examples_of(task), *hidden_of(task))]
        content.append([task.specification, task.solution, fault, repr(cases)])
    assert _digest(content) == GOLDEN_TASKS[difficulty]


_SEEDED: Final = ("classes", "records", "machines", "graphs", "iterators")
_CONTENT: Final = """
import hashlib, random
from ludus.environments.code.checks import make_hidden, make_inputs
from ludus.environments.code.families import FAMILIES
from ludus.environments.code.faults import faulty_program

def _content(family):
    def draw(rng):
        return FAMILIES[family](rng, "hard")

    problem = draw(random.Random(5))
    hidden = make_hidden(problem, 5)
    faulty = faulty_program(problem, hidden, make_inputs(problem, hidden, 5), "hard", draw, 5, 5)
    content = repr((problem.specification, problem.reference, hidden, faulty))
    return hashlib.sha256(content.encode()).hexdigest()
"""


def _content(family: str) -> str:
    namespace: dict[str, Any] = {}
    exec(_CONTENT, namespace)
    digest: str = namespace["_content"](family)
    return digest


def test_tasks_do_not_depend_on_the_hash_seed() -> None:
    here = "".join(f"{family} {_content(family)}\n" for family in _SEEDED)
    program = f"{_CONTENT}\nfor family in {_SEEDED!r}:\n    print(family, _content(family))\n"
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    there = subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True)
    assert there.stdout == here


def test_each_change_of_a_program_is_valid_python() -> None:
    source = FAMILIES["graphs"](random.Random(3), "hard").reference
    changed = [change.applied_to(source) for change in changes_of(source)]
    assert len(changed) > 20
    for text in changed:
        ast.parse(text)


# Values.

VALUES: Final[tuple[Any, ...]] = (
    0, 1, -7, 10**50, True, False, None, 0.5, -0.0, "", "a", "\ud800", [], [1], (1,), {"a": [1, (2,)]}, {1: 2}, {1, 2},
)  # fmt: skip
DIFFERENT = [
    (True, 1), (1, 1.0), (0, False), (None, 0), ([1], (1,)), ("1", 1), ({"1": 2}, {1: 2}), ({}, []), ([], set()),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_equals_itself_after_it_was_sent(value: Any) -> None:
    tree = inside.encode(value)
    assert same(json.loads(json.dumps(tree)), tree)
    assert inside.decode(tree) == value
    assert type(inside.decode(tree)) is type(value)


@pytest.mark.parametrize(("one", "other"), DIFFERENT, ids=repr)
def test_values_of_other_types_differ(one: Any, other: Any) -> None:
    assert not same(inside.encode(one), inside.encode(other))
    assert not same(inside.encode([one]), inside.encode([other]))


def test_floats_are_compared_within_a_tolerance_and_not_a_number_equals_nothing() -> None:
    assert same(inside.encode(0.1 + 0.2), inside.encode(0.3))
    assert not same(inside.encode(0.31), inside.encode(0.3))
    assert not same(inside.encode(float("nan")), inside.encode(float("nan")))
    assert not same(["float", "0.3" + "0" * 1000], inside.encode(0.3))
    assert not same(["float", "x"], inside.encode(0.3))
    assert not same(["float", None], inside.encode(0.3))


def test_objects_of_other_types_are_no_values() -> None:
    class Text(str):
        pass

    for value in (object(), Text("a"), b"a", [Text("a")], range(3), lambda: 1):
        with pytest.raises(TypeError):
            inside.encode(value)
    with pytest.raises(ValueError, match="items"):
        inside.encode([0] * 100_000)
    nested: list[Any] = []
    nested.append(nested)
    with pytest.raises(ValueError, match="deeply"):
        inside.encode(nested)


def ended(stdout: bytes) -> RunResult:
    return RunResult(stdout, b"", 0, None, None, 0.1, 0.1, 0)


NONCE = b"0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    "said",
    [b"", b"[]", NONCE, NONCE + b"{}", NONCE + b"[1", NONCE + b"[" * 100_000, NONCE[::-1] + b'["{}","{}"]',
     b" " + NONCE + b'["{}","{}"]', NONCE + b'["{}"]', NONCE + b'["{}","{}","{}"]', NONCE + b"null", b"\xff" * 100],
)  # fmt: skip
def test_output_without_the_nonce_or_of_another_form_has_no_results(said: bytes) -> None:
    assert [one.outcomes for one in read_results(ended(said), NONCE, 2)] == [None, None]


@pytest.mark.parametrize(
    "answer",
    ["", "{", "[]", "1", "null", '{"outcomes": 5}', '{"outcomes": {}}', "[" * 15_000, '{"outcomes": ' + "[" * 15_000,
     '{"failed": [1]}', "x" * (CASE_BYTES + 1), '{"outcomes": ["' + "9" * 5000 + '"]}',
     '{"outcomes": [' + "9" * 5000 + "]}"],
)  # fmt: skip
def test_no_answer_of_a_case_passes_or_breaks_the_comparison(answer: str) -> None:
    [result] = read_results(ended(NONCE + json.dumps([answer]).encode()), NONCE, 1)
    assert not result.matches([["value", ["int", "1"]]])
    assert type(result.message) is str


# Answers.


def test_the_last_block_that_defines_the_name_counts() -> None:
    one, two = "def f(x):\n    return 1\n", "def f(x):\n    return 2\n"
    assert program_in(f"```python\n{one}```\nBetter:\n```py\n{two}```\nTry:\n```\nf(3)\n```", "f") == two
    assert program_in(f"```\n{one}```", "f") == one
    assert program_in(one, "f") == one
    assert program_in("I would write def f somehow.", "f") is None
    assert program_in("```python\ndef g(x):\n    return 1\n```", "f") is None
    assert program_in("```python\n" * 20_000, "f") is None


@pytest.mark.suite("breadth", first=4)
@each_family
def test_other_right_programs_and_messages_earn_what_the_solution_earns(family: str) -> None:
    played = 0
    for index in range(48):
        task = task_of(DIFFICULTIES[index % 3], index)
        if task.family == family:
            problem = problem_of(task)
            ways = {**equivalents.programs(problem)}
            for name, message in equivalents.messages(problem).items():
                program = program_in(message, problem.entry)
                assert program is not None, name
                ways[name] = program
            for name, program in ways.items():
                assert reward_for(task, program) == 1.0, (name, task.id)
            played += len(ways)
    assert played >= 36


def test_a_block_counts_in_the_layouts_of_markdown() -> None:
    program = "def f(x):\n    return 1\n"
    block = f"```python\n{program}```"
    for message in (
        f"1. The program:\n\n{indent(block, '   ')}\n\n2. That is all.",
        block.replace("\n", "\r\n"),
        block.replace("python", 'python title="f.py"'),
        block.replace("python", "Python3.12 {.numbers}"),
    ):
        assert program_in(message, "f") == program
    assert program_in(block.replace("python", "pytest"), "f") is None
    assert program_in(block.replace("python", "diff"), "f") is None


# Sandboxes.


@pytest.fixture
async def box() -> AsyncIterator[Sandbox]:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    assert Code.sandbox_settings is not None
    provider = find_provider("bubblewrap")
    await provider.open()
    try:
        async with await provider.create(Code.sandbox_settings.but(warm=0)) as box:
            yield box
    finally:
        await provider.aclose()


async def answers(box: Sandbox, program: str, *cases: Any, kind: str = "function") -> list[CaseResult]:
    return await run_cases(box, program, "f", kind, cases)


async def test_each_case_runs_alone_and_within_its_limits(box: Sandbox) -> None:
    program = (
        "import os\nseen = []\ndef f(what):\n    seen.append(what)\n"
        "    if what == 'memory':\n        bytearray(10 ** 9)\n"
        "    if what == 'exit':\n        os._exit(0)\n    if what == 'large':\n        return ['x' * 9000] * 9\n"
        "    if what == 'odd':\n        return object()\n    return seen\n"
    )
    found = await answers(box, program, *([[one]] for one in ("a", "memory", "exit", "large", "odd", "b")))
    assert found[0].matches([["value", inside.encode(["a"])]])
    assert found[1].matches([["error", "MemoryError"]])
    assert [one.outcomes for one in found[2:5]] == [None, None, None]
    assert "not a type" in found[4].message
    assert found[5].matches([["value", inside.encode(["b"])]])


async def test_calls_of_one_case_share_arguments_and_state(box: Sandbox) -> None:
    [found] = await answers(box, "def f(items):\n    items.append(0)\n    return len(items)\n", [[[1]], [[2]], [[1]]])
    assert found.matches([["value", inside.encode(n)] for n in (2, 2, 3)])


async def test_generators_and_classes_answer_too(box: Sandbox) -> None:
    program = "def f(n):\n    while True:\n        yield n\n        n += 1\n"
    [found] = await answers(box, program, [[[4], 3]], kind="iterator")
    assert found.matches([["value", inside.encode([4, 5, 6])]])
    program = "class f:\n    def __init__(self, n):\n        self.n = n\n    def plus(self, m):\n        self.n += m\n"
    [found] = await answers(box, program + "        return self.n\n", [[1], ["plus", 2], ["gone"]], kind="class")
    assert found.matches([["value", inside.encode(3)], ["error", "TypeError"]])


@pytest.mark.suite("code")  # takes as long as the limits that it tries
async def test_only_processor_time_counts_so_that_a_busy_machine_costs_no_reward(box: Sandbox) -> None:
    program = """
import time
def f(busy):
    while busy:
        pass
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        time.sleep(0.1)
    return 1
"""
    waits, computes = await answers(box, program, [[0]], [[1]])
    assert waits.matches([["value", inside.encode(1)]])
    assert computes.outcomes is None
    assert "longer than 2 s" in computes.message


@pytest.mark.parametrize(
    ("case", "share", "said"), [("compute", 0.7, None), ("exit", 1.0, ""), ("close the pipe", 1.0, "")]
)
def test_a_case_was_too_slow_only_if_the_kernel_ended_it_for_its_processor_time(
    case: str, share: float, said: str | None
) -> None:
    program = f"""
import os, resource, sys, time, types
from ludus.server.rewards.isolated.inside import run_case

def answer(request, case):
    if case == "exit":
        while time.process_time() < 0.6:
            pass
        os._exit(0)
    if case == "close the pipe":
        os.closerange(3, 100)
    while True:
        pass

def wait4(child, flags):
    child, status, used = wait(child, flags)
    # the kernel ends a process by ticks, and says later what it has really used
    return child, status, types.SimpleNamespace(ru_utime=used.ru_utime * {share}, ru_stime=used.ru_stime * {share})

wait, os.wait4 = os.wait4, wait4
request = {{"memory": resource.RLIM_INFINITY, "seconds": 1, "wall": 60, "bytes": 100}}
print(repr(run_case(request, {case!r}, answer)))
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert found.stdout.strip() == repr(said)


async def test_a_program_cannot_read_the_nonce_or_the_process_that_has_it(box: Sandbox) -> None:
    program = """
import gc, os
def f(what):
    if what == "files":
        return sorted(int(one) for one in os.listdir("/proc/self/fd"))[:3]
    try:
        if what == "memory":
            open(f"/proc/{os.getppid()}/mem", "rb")
        if what == "output":
            open(f"/proc/{os.getppid()}/fd/1", "wb")
        if what == "input":
            open(f"/proc/{os.getppid()}/fd/0", "rb")
        return "open"
    except OSError as error:
        return type(error).__name__
"""
    places = ("files", "memory", "output", "input")
    files, memory, output, given = await answers(box, program, *([[one]] for one in places))
    assert files.matches([["value", inside.encode([0, 1, 2])]])
    for one in (memory, output, given):
        assert one.matches([["value", inside.encode("PermissionError")]])


@pytest.mark.skipif(platform.machine() not in SIGNALS, reason="there are filters for two machines only")
@pytest.mark.parametrize("target", ["os.getppid()", "-1", "0"])
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
async def test_a_program_cannot_stop_or_kill_the_runner_and_only_its_own_case_fails(
    box: Sandbox, target: str, number: signal.Signals
) -> None:
    program = f"import os\ndef f(what):\n    if what:\n        os.kill({target}, {number.value})\n    return what\n"
    found = await answers(box, program, [[1]], [[0]])
    assert found[0].matches([["error", "PermissionError"]])
    assert found[1].matches([["value", inside.encode(0)]])


def test_an_installed_package_is_hidden_from_sandboxes() -> None:
    folder = Path("/usr/lib/python3/site-packages/ludus/environments/code")
    nothing = resources.files("ludus.server.rewards.isolated") / "nothing"
    assert sandbox_settings(folder, ("/usr",)).readonly == ((str(nothing), f"{folder}"),)
    assert sandbox_settings(folder, ("/opt",)).readonly == ()


@pytest.fixture
def nothing(tmp_path: Path) -> Path:
    (tmp_path / "README.txt").write_text("nothing")
    tmp_path.chmod(0o755)
    return tmp_path


async def test_a_hidden_folder_cannot_be_read_in_a_sandbox(nothing: Path) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    folder = Path(ast.__file__).parent / "json"  # a folder that every sandbox shows
    provider = find_provider("bubblewrap")
    await provider.open()
    try:
        settings = sandbox_settings(folder, ("/nowhere",)).but(readonly=((str(nothing), str(folder)),), warm=0)
        async with await provider.create(settings) as box:
            result = await box.run(["ls", str(folder)])
            assert result.text == "README.txt\n"
    finally:
        await provider.aclose()


# Episodes.


@pytest.mark.parametrize("name", ["code"])
async def test_tools_show_differences_output_and_own_lines(player: Any, name: str) -> None:
    index = next(one for one in range(300) if Code.load_task("train", one).family == "strings")
    [episode] = await player.start(name, "train", index)
    task = player.task(name, "train", index)
    entry = problem_of(task).entry

    wrong = await player.step(episode.episode, "test", program=f"def {entry}(text):\n    return len(text) // 0\n")
    assert text_of(wrong.content).startswith("0 of 3 examples are right.")
    assert f"line 2, in {entry}: return len(text) // 0" in text_of(wrong.content)
    right = await player.step(episode.episode, "test", program=task.solution)
    assert text_of(right.content) == "3 of 3 examples are right."
    shown = await player.step(episode.episode, "run", program="import json\nprint('hello')\njson.loads('{')\n")
    lines = text_of(shown.content).splitlines()
    assert lines[0] == "hello"
    assert "JSONDecodeError" in lines[1]
    assert lines[2:] == ["  line 3, in <module>: json.loads('{')", "(exit code 1)"]
    flood = await player.step(episode.episode, "run", program="print('x' * 10 ** 6)\n")
    assert len(text_of(flood.content)) < 2_200
    silent = await player.step(episode.episode, "test", program="import os\nos._exit(3)\n" + task.solution)
    assert "no result" in text_of(silent.content)
    missing = await player.step(episode.episode, "submit", program="print(1)")
    assert missing.error is not None
    assert missing.error.code == "refused"
    assert f"does not define {entry}" in text_of(missing.content)


@pytest.mark.parametrize("name", ["code"])
async def test_a_final_message_with_the_program_earns_as_much(player: Any, name: str) -> None:
    messages = ("{}", 1.0), ("Use {}", 1.0), ("no program", 0.0), ("{}" + "#" * 20_000, 0.0)
    for index, (text, value) in enumerate(messages):
        [episode] = await player.start(name, "train", index)
        program = f"```python\n{player.task(name, 'train', index).solution}"
        closing = "\n```\nThis is right."
        info = await player.answer(episode.episode, text.format(program + ("" if value else "x = 1")) + closing)
        assert info.reward is not None
        assert info.reward.value == value


@pytest.mark.suite("breadth", sample=True)
async def test_each_listed_way_to_do_it_right_earns_all(player: Any) -> None:
    played: set[str] = set()
    for index in range(whole_or_few(12, 1)):
        task = player.task("code-medium", "train", index)
        for name, moves in Code.equivalents(task).items():
            if name not in played:
                played.add(name)
                [episode] = await player.start("code-medium", "train", index)
                await player.play(episode.episode, moves)
                total, _ = await player.rewards(episode.episode)
                assert total.value == 1.0, name
    assert len(played) == 19 if selected_suites() else played


async def test_a_search_in_one_call_of_run_earns_nothing(player: Any) -> None:
    index = next(index for index in range(48) if task_of("medium", index).mode == "repair")
    for name in ("search for a change", "search for two changes"):
        [episode] = await player.start("code-medium", "train", index)
        task = player.task("code-medium", "train", index)
        run, submit = await player.play(episode.episode, Code.exploits(task)[name])
        assert text_of(run.content).endswith("(exit code 0)")
        assert submit.ended
        total, _ = await player.rewards(episode.episode)
        assert total.value == 0.0


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize("name", [f"code-{difficulty}" for difficulty in DIFFICULTIES])
async def test_the_episodes_of_this_version_are_fixed(player: Any, name: str) -> None:
    content: list[Any] = []
    for index in (0, 2):
        [episode] = await player.start(name, "train", index)
        content.append([text_of(message.content) for message in episode.prompt])
        task = player.task(name, "train", index)
        wrong = f"def {problem_of(task).entry}(*given):\n    return given\n"
        for call in (Call("test", {"program": wrong}), Call("submit", {"program": task.solution})):
            result = await player.step(episode.episode, call.tool, **call.arguments)
            content.append(text_of(result.content))
        total, _ = await player.rewards(episode.episode)
        content.append([total.value, {key: one.value for key, one in total.components.items()}])
    assert _digest(content) == GOLDEN_EPISODES[name.removeprefix("code-")]


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
