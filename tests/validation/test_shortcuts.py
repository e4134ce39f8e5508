"""The parts of which shortcuts are made: similarity, titles, rules, mutants, carried-over actions, and the bound."""

from __future__ import annotations

import asyncio

import pytest

from ludus.protocol.actions import Answer, Call
from ludus.protocol.episodes import TaskRow
from ludus.validation.leakage import encodings
from ludus.validation.reward_hacking.texts import CRAMMED, crammed
from ludus.validation.shortcuts import is_above
from ludus.validation.shortcuts.extraction import learn_rule
from ludus.validation.shortcuts.memory import Remembered, Similarity, carried_over, rare_lines
from ludus.validation.shortcuts.mutation_search import holds, mutants
from ludus.validation.shortcuts.search import _search_mutants, program_and_examples

CLAMP = """def clamp(x, low, high):
    if x < low:
        return low
    if x < high:
        return high
    return x
"""
EXAMPLES = [("clamp(5, 0, 3)\n", "3\n"), ("clamp(-1, 0, 3)\n", "0\n"), ("clamp(2, 0, 3)\n", "2\n")]


def remembered(prompt: str, **fields: str) -> Remembered:
    return Remembered(TaskRow(id="t", split="test", index=0, fields={}), prompt, fields)


def test_the_most_similar_text_shares_the_rarest_words() -> None:
    similarity = Similarity(["the shop rounds down", "the shop sends no mail", "the shop is closed on mondays"])
    assert similarity.nearest("no mail from the shop") == 1
    assert similarity.nearest("the shop") is None, "words that all texts have say nothing"


def test_titles_are_the_headings_that_few_prompts_have() -> None:
    prompts = [f"You maintain a shop.\n\n## Case {n} fails\n\nFind the cause." for n in range(30)]
    assert rare_lines(prompts)[7] == ["## Case 7 fails"]


def test_public_values_are_carried_over_only_with_what_a_solved_task_shows() -> None:
    task = remembered("Repair the package `birch`.", package="birch")
    edit = Call("edit", {"path": "src/oak/a.py", "new": "return total - discount(total)"})
    assert carried_over([edit], {"package": "oak"}, task) == (
        Call("edit", {"path": "src/birch/a.py", "new": "return total - discount(total)"}),
    )
    open_package = Call("open", {"name": "oak"})
    assert carried_over([open_package, Answer("oak")], {"package": "oak"}, task) == (open_package, Answer("oak"))


def test_a_rule_finds_the_answer_by_its_place() -> None:
    rule = learn_rule([(f"Order {n} of {n + 5} boxes: code {3 * n + 100}.", str(3 * n + 100)) for n in range(20)])
    assert rule is not None
    assert rule.apply("Order 99 of 12 boxes: code 777.") == "777"
    assert learn_rule([(f"Order {n}", str(100 + n)) for n in range(20)]) is None


def test_a_mutant_repairs_a_program_whose_examples_hold_only_then() -> None:
    assert not holds(CLAMP, EXAMPLES)
    assert any(holds(mutant, EXAMPLES) for mutant in mutants(CLAMP))
    repaired = asyncio.run(_search_mutants(CLAMP, EXAMPLES))
    assert repaired is not None
    assert holds(repaired, EXAMPLES)


@pytest.mark.parametrize("program", ["while True: pass", "import os; os._exit(0)", "def f(:", "raise SystemExit"])
def test_a_program_that_hangs_exits_or_is_none_is_not_repaired(program: str) -> None:
    assert asyncio.run(_search_mutants(program, EXAMPLES[:1])) is None


def test_the_program_and_the_examples_of_a_prompt_are_found() -> None:
    prompt = "Repair it.\n\n```python\ndef f(x):\n    return x\n```\n\nExamples:\n>>> f(1)\n2\n>>> f(2)\n3\n"
    assert program_and_examples(prompt) == ("def f(x):\n    return x\n", [("f(1)\n", "2\n"), ("f(2)\n", "3\n")])
    assert program_and_examples("Write a program.") is None


def test_an_average_is_above_a_bound_only_beyond_chance() -> None:
    assert is_above([1.0] * 12 + [0.0] * 12, 0.05)
    assert not is_above([1.0] + [0.0] * 23, 0.05), "one lucky task"
    assert not is_above([1.0] * 6 + [0.0] * 18, 0.30), "guessing one of four"
    assert not is_above([1.0, 1.0], 0.05), "too few"


def test_texts_of_limited_length_hold_many_answers() -> None:
    answers = [str(number) for number in range(31, 60, 2)]
    texts = crammed(answers)
    assert all(len(text) < 200 for text in texts)
    short = [text for text in texts if len(text) < 60]
    assert max(sum(answer in text for answer in answers) for text in short) >= len(answers) * 2 / 3
    assert not crammed(["a long answer " * 30] * CRAMMED) or all("long" not in text for text in crammed(["x " * 300]))


def test_secrets_are_sought_in_other_notations() -> None:
    assert {"9999", "7777"}.isdisjoint(encodings("4711").values())
    ways = encodings("4711")
    assert ways["in base 36"] == "3mv"
    assert ways["with commas"] == "4,7,1,1"
    assert ways["reversed"] == "1174"
    assert encodings("open sesame")["in base64"] == "b3BlbiBzZXNhbWU"
