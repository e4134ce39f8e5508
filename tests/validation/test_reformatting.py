"""The forms in which a right answer is played again, and those that a prompt rules out."""

from __future__ import annotations

import pytest

from ludus.validation.reformatting import REASONING, allowed_forms, other_forms


def forms(answer: str) -> dict[str, str]:
    return {name: text for _, name, text in other_forms(answer)}


def test_a_number_is_written_in_every_usual_form() -> None:
    assert forms("1234") == {
        "after reasoning": f"{REASONING}\n\n1234",
        "with a period": "1234.",
        "in bold": "**1234**",
        "between blank lines": "\n\n1234\n\n",
        "after `Answer:`": "Answer: 1234",
        "in a sentence": "The answer is 1234.",
        "boxed": "The answer is \\boxed{1234}.",
        "as `1.0`": "1234.0",
        "with thousands separators": "1,234",
    }


def test_a_word_is_written_in_other_cases_and_a_list_in_another_order() -> None:
    assert {"as 'lyon'", "as 'LYON'"} <= {*forms("Lyon")}
    assert forms("Lyon, Nice")["in another order"] == "Nice, Lyon"
    assert "in another order" not in forms("3, 4"), "two numbers may be coordinates"


def test_a_time_is_written_with_and_without_a_zero_before_the_hour() -> None:
    assert forms("Answer: 9:05")["with another zero before the hour"] == "Answer: 09:05"
    assert forms("09:05")["with another zero before the hour"] == "9:05"
    assert "with another zero before the hour" not in forms("19:05")


def test_only_the_value_behind_a_label_on_the_last_line_is_written_differently() -> None:
    answer = "First I add.\nAnswer: 42"
    assert forms(answer)["with a period"] == "First I add.\nAnswer: 42."
    assert forms(answer)["as `1.0`"] == "First I add.\nAnswer: 42.0"
    assert "in a sentence" not in forms(answer)


@pytest.mark.parametrize("answer", ['{"a": 1}', "```python\nx = 1\n```", "f(2)", "a = 3", "x" * 200, ""])
def test_programs_objects_and_long_texts_are_not_written_differently(answer: str) -> None:
    assert {*forms(answer)} <= {"after reasoning"}


def test_a_fraction_is_written_as_a_decimal_and_not_in_lowest_terms_unless_the_prompt_asks_for_them() -> None:
    assert forms("3/4")["as a decimal"] == "0.75"
    assert forms("3/4")["not in lowest terms"] == "9/12"
    assert "as a decimal" not in forms("1/3")
    assert "fraction" in allowed_forms("How much is it?")
    assert "fraction" not in allowed_forms("Answer with a fraction in lowest terms.")


@pytest.mark.parametrize(
    ("prompt", "ruled_out"),
    [
        ("What is the sum?", set()),
        ("Answer with only the number.", {"frame"}),
        ("Answer with exactly the number.", {"frame", "mark", "value", "case"}),
        ("Name the town in lower case.", {"case"}),
        ("Name the towns in alphabetical order.", {"order"}),
        ("Name the first towns, in any order.", set()),
    ],
)
def test_a_form_that_breaks_a_demand_of_the_prompt_is_ruled_out(prompt: str, ruled_out: set[str]) -> None:
    assert {"frame", "mark", "value", "case", "order"} - allowed_forms(prompt) == ruled_out
