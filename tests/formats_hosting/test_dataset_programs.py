"""The forms in which datasets have tests of programs: what each means, and what right and wrong programs earn."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sandboxing import NEEDS_BUBBLEWRAP

from ludus.formats.dataset.code import read_tests
from ludus.protocol.errors import AuthoringError
from ludus.server.rewards.code_text import find_program, outputs_equal
from ludus.server.tasks.loading import load_environment
from ludus.testing import play


@dataclass(frozen=True)
class Case:
    """A row's tests, with a program that is right and programs that are wrong."""

    tests: dict[str, Any] | list[dict[str, Any]]
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    options: str = ""


TWICE = (
    "def twice(x):\n    return 2 * x",
    "class Solution:\n    def twice(self, x: int) -> int:\n        return x + x",
)
WRAPS = "def twice(x):\n    return [2 * x]"
ECHO = "class Solution:\n    def echo(self, items: List[int]) -> List[int]:\n        return list(deque(items))"

CASES = {
    "APPS, results in lists of one": Case(
        {"fn_name": "twice", "inputs": [[1], [2]], "outputs": [[2], [4]]}, TWICE, (WRAPS, "def twice(x):\n    return x")
    ),
    "APPS, plain results": Case({"fn_name": "twice", "inputs": [[1], [2]], "outputs": [2, 4]}, TWICE, (WRAPS,)),
    "lists as results, in lists of one": Case(
        {"fn_name": "echo", "inputs": [[[1]], [[2, 3]]], "outputs": [[[1]], [[2, 3]]]},
        (ECHO, "def echo(x):\n    return tuple(x)"), ("def echo(x):\n    return [x]",),
    ),
    "lists as results, plain, of which only some have one element": Case(
        {"fn_name": "echo", "inputs": [[[1]], [[2, 3]]], "outputs": [[1], [2, 3]]},
        (ECHO,), ("def echo(x):\n    return x[0]",),
    ),
    "lists of one as results, said to be plain": Case(
        {"fn_name": "twice", "inputs": [[1], [2]], "outputs": [[2], [4]]}, (WRAPS,), TWICE, ",results=plain"
    ),
    "LiveCodeBench's functions": Case(
        [
            {"input": '[1, 2]\n"a"', "output": '"a12"', "testtype": "functional", "metadata": {"func_name": "glue"}},
            {"input": '[]\n"b"', "output": '"b"', "testtype": "functional", "metadata": {"func_name": "glue"}},
        ],
        ("class Solution:\n    def glue(self, n: List[int], s: str) -> str:\n        return s + ''.join(map(str, n))",),
        ("def glue(n, s):\n    return s",),
    ),
    "LiveCodeBench's programs": Case(
        [{"input": "4\n", "output": "2\n", "testtype": "stdin"}, {"input": "6\n", "output": "3", "testtype": "stdin"}],
        ("print(int(input()) // 2)", "print(int(input()) / 2)"), ("print(2)",),
    ),
    "PRIME's calls": Case(
        {
            "language": "python",
            "test_cases": [
                {"type": "function_call", "fn_name": "twice", "input": [3], "output": [6]},
                {"type": "function_call", "fn_name": "twice", "input": [4], "output": [8]},
            ],
        },  # fmt: skip
        TWICE, (WRAPS,),
    ),
    "TACO's lists of lines": Case(
        {"inputs": [["2", "1 2"], ["1", "5"]], "outputs": [["1", "2"], ["5"]]},
        ("input()\nprint(*input().split(), sep='\\n')",), ("input()\nprint(input())",),
    ),
    "CodeContests": Case({"input": ["1\n", "2\n"], "output": ["1\n", "2\n"]}, ("print(input())",), ("print(1)",)),
    "floats that are returned": Case(
        {"fn_name": "half", "inputs": [[4], [5]], "outputs": [[2], [2.5]]},
        ("def half(x):\n    return x / 2",), ("def half(x):\n    return x // 2",),
    ),
    "numbers that differ on purpose": Case(
        {"fn_name": "half", "inputs": [[4], [5]], "outputs": [[2], [2.5]]},
        ("def half(x):\n    return x // 2 if x % 2 == 0 else x / 2",), ("def half(x):\n    return x / 2",),
        ",exact_numbers=true",
    ),
}  # fmt: skip


def serve(folder: Path, tests: Any, options: str = "", **columns: Any) -> Any:
    path = folder / "rows.jsonl"
    path.write_text(json.dumps({"problem": "Solve it.", "tests": tests, **columns}) + "\n", encoding="utf-8")
    return load_environment(f"dataset:{path}#grader=code,all_or_nothing=true{options}")


@pytest.mark.suite("formats", first=4)
@NEEDS_BUBBLEWRAP
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_right_programs_earn_1_and_wrong_programs_0(case: Case, tmp_path: Path) -> None:
    rewards: dict[str, float | None] = {}
    with play(serve(tmp_path, case.tests, case.options)) as environment:
        for program in (*case.right, *case.wrong):
            episode = environment.start(index=0)
            episode.answer(f"```python\n{program}\n```")
            rewards[program] = episode.reward
    assert rewards == {**dict.fromkeys(case.right, 1.0), **dict.fromkeys(case.wrong, 0.0)}


@NEEDS_BUBBLEWRAP
def test_a_block_that_shows_the_use_of_a_program_does_not_replace_it(tmp_path: Path) -> None:
    answer = f"```python\n{TWICE[0]}\n```\nRun it:\n```bash\npython solution.py\n```\nor\n```py\nprint(twice(2))\n```"
    with play(serve(tmp_path, CASES["APPS, plain results"].tests)) as environment:
        episode = environment.start(index=0)
        episode.answer(answer)
        assert episode.reward == 1.0


@NEEDS_BUBBLEWRAP
def test_a_name_that_programs_may_use_without_an_import_is_no_solution(tmp_path: Path) -> None:
    with play(serve(tmp_path, {"fn_name": "gcd", "inputs": [[4, 6]], "outputs": [[2]]})) as environment:
        episode = environment.start(index=0)
        episode.answer("```python\npass\n```")
        assert episode.reward == 0.0


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        ({"inputs": [], "outputs": []}, "as many inputs as outputs"),
        ({"inputs": ["1"], "outputs": ["1", "2"]}, "as many inputs as outputs"),
        ({"inputs": ["1"], "outputs": ["1"], "checker": "any"}, "the key 'checker'"),
        ({"inputs": ["1"], "outputs": [1]}, "inputs and outputs of programs are texts"),
        ({"inputs": ["1", "2"], "outputs": ["", "\n"]}, "a program that prints nothing would pass"),
        ({"fn_name": "f", "inputs": [[1]], "outputs": [None]}, "a function that returns nothing would pass"),
        ({"fn_name": "f", "inputs": [[1]], "outputs": [[None]]}, "a function that returns nothing would pass"),
        ({"fn_name": "f", "inputs": [1], "outputs": [1]}, "the arguments of its tests must be lists"),
        ({"fn_name": "f", "inputs": ["1", [2]], "outputs": ["1", "2"]}, "partly texts"),
        ({"fn_name": "f", "inputs": ["one"], "outputs": ["1"]}, "'one' in its tests must be a JSON value"),
        ({"fn_name": "f", "inputs": ["1"], "outputs": [1]}, "the outputs must be texts too"),
        ([{"input": "1", "output": "1", "testtype": "interactive"}], "'interactive'"),
        ([{"input": "1", "output": "1", "weight": 2}], "the key 'weight'"),
        (
            [{"input": "1", "output": "1"}, {"input": "1", "output": "1", "testtype": "functional"}],
            "tests are of several kinds",
        ),
        ([{"arguments": [1], "returns": 1, "kwargs": {}}], "its tests must be a list of"),
        ({"language": "cpp", "test_cases": [{"input": "1", "output": "1"}]}, "the language 'cpp'"),
        (["assert f(1) == 1"], "its tests must be a list of"),
        ("eJxrYJmayQ==", "its tests must be a list of"),
    ],
)
def test_tests_that_are_not_understood_whole_are_refused(tests: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_tests(tests)


def test_a_refused_row_is_named_with_its_file_and_line(tmp_path: Path) -> None:
    with pytest.raises(AuthoringError, match=r"rows\.jsonl, line 1: an output of its tests is no list of one element"):
        serve(tmp_path, {"fn_name": "f", "inputs": [[1]], "outputs": [1]}, ",results=wrapped")


def test_starter_code_is_in_the_prompt_and_the_first_of_several_solutions_is_the_oracles(tmp_path: Path) -> None:
    environment = serve(
        tmp_path, CASES["APPS, plain results"].tests, ",solution=solutions",
        starter_code="class Solution:\n    def twice(self, x):\n", solutions=json.dumps([TWICE[1], "no program"]),
    )  # fmt: skip
    task = environment.splits["train"].get(0)
    assert "Begin with this code:\n\n```python\nclass Solution:\n    def twice(self, x):\n```" in task.prompt
    assert task.best == f"```python\n{TWICE[1]}\n```"


@pytest.mark.parametrize(
    ("answer", "function", "program"),
    [
        ("```python\na\n```\n```bash\nb\n```", None, "a\n"),
        ("```\na\n```\n```text\nb\n```", None, "a\n"),
        ("```python\na\n```\n```\nb\n```", None, "a\n"),
        ("```python\na\n```\n```cpp\nb\n```", None, "a\n"),
        ("```Python3\na\n```\n```py\nb\n```", None, "b\n"),
        ("```bash\na\n```", None, "a\n"),
        ("1. Do:\n   ```python\n   if a:\n       b\n   ```\n", None, "if a:\n    b\n"),
        ("```python\ndef f(): 1\n```\n```python\nprint(f())\n```", "f", "def f(): 1\n"),
        ("```python\ndef f(): 1\n```\n```python\ndef f(): 2\n```", "f", "def f(): 2\n"),
        ("```python\nf = len\n```\n```python\nf(1)\n```", "f", "f = len\n"),
        ("```python\ndef f(): 1\n```\n```python\nprint(2)\n```", "f", "print(2)\n"),
        ("def f(): 1", "f", "def f(): 1"),
    ],
)
def test_the_program_of_an_answer_is_found(answer: str, function: str | None, program: str) -> None:
    assert find_program(answer, function=function) == program


def test_the_interpreter_shows_which_block_is_the_program() -> None:
    answer = "```python\na\n```\n```bash\nb\n```\n```js\nc\n```\n```text\nd\n```"
    assert [find_program(answer, interpreter=name) for name in ("/usr/bin/python3.11", "bash", "node", "./run")] == [
        "a\n", "b\n", "c\n", "c\n",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("printed", "expected", "equal"),
    [
        ("2", "2.0", True), ("2.0", "2", True), ("2.000001", "2", False), ("0.33333333333", "0.333333", True),
        ("0.3334", "0.333333", False), ("1e3", "1000", True), ("011", "11", False), ("11", "011", False),
        ("011.0", "11", False), ("1000000.4", "1000000", False), ("a 2", "a 2.0", True), ("a  2 ", "a 2.0", True),
        ("1\n2", "1 2", False), ("-0.0", "0", True), ("nan", "nan", True), ("inf", "1.0", False),
        ("1e999", "1.0", False), ("", "1.0", False), ("9" * 400 + ".0", "9" * 400, False), ("٢", "2.0", False),
    ],
)  # fmt: skip
def test_printed_numbers_are_equal_as_numbers_only_with_a_point(printed: str, expected: str, equal: bool) -> None:
    assert outputs_equal(printed, expected, "numbers") is equal
    assert outputs_equal(printed, expected, "lines") is (printed == expected)
