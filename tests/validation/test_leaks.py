"""When a private value counts as leaked: long ones by themselves, short ones where they are no chance."""

from __future__ import annotations

import math
import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.checks.disclosure import fisher
from ludus.validation.leakage import leaks

KEYS = [("train", str(number)) for number in range(12)]


def texts(form: str, values: list[str]) -> dict[tuple[str, str], str]:
    return {key: form.format(value) for key, value in zip(KEYS, values, strict=True)}


def valued(values: list[str]) -> dict[tuple[str, str], str]:
    return dict(zip(KEYS, values, strict=True))


NUMBERS: list[str] = [str(number) for number in range(31, 43)]
WORDS: list[str] = ["".join(random.Random(number).choices("abcdefghijklmnop", k=10)) for number in range(12)]


def test_a_long_value_is_a_leak_wherever_it_stands_once() -> None:
    shown = texts("nothing to see {0:.0s}", WORDS) | {KEYS[3]: f"debug: {WORDS[3]}"}
    (leak,) = leaks("answer", valued(WORDS), shown, "the prompt")
    assert leak.task == "3"
    assert WORDS[3] in leak.detail


def test_a_short_value_is_a_leak_when_each_text_holds_its_own() -> None:
    assert len(leaks("answer", valued(NUMBERS), texts("it is {}, I think", NUMBERS), "the prompt")) == 12


def test_a_short_value_that_appears_in_one_text_is_chance() -> None:
    shown = texts("nothing {0:.0s}", NUMBERS) | {KEYS[0]: "31 days"}
    assert leaks("answer", valued(NUMBERS), shown, "the prompt") == []


def test_values_that_stand_in_all_texts_are_words_of_the_rules() -> None:
    rules = "numbers from 31 to 42: " + " ".join(NUMBERS)
    assert leaks("answer", valued(NUMBERS), dict.fromkeys(KEYS, rules), "the prompt") == []


@pytest.mark.parametrize("form", ["- {}\n- {}\n- {}", "A. {}\nB. {}\nC. {}", "Choose: {}, {} or {}"])
def test_choices_show_the_right_one_among_others(form: str) -> None:
    shown = {}
    for place, key in enumerate(KEYS):
        others = random.Random(place).sample([word for word in WORDS if word != WORDS[place]], 2)
        shown[key] = form.format(others[0], WORDS[place], others[1])
    assert leaks("answer", valued(WORDS), shown, "the prompt") == []


def test_a_part_of_a_longer_number_or_word_is_not_the_value() -> None:
    shown = texts("{0}7 and 1{0} and x{0} and {0}.5", NUMBERS)
    assert leaks("answer", valued(NUMBERS), shown, "the prompt") == []


@given(st.integers(1, 6), st.integers(1, 6), st.data())
def test_fishers_test_counts_all_tables_with_the_same_margins(tried: int, total: int, data: st.DataObject) -> None:
    own, cross = data.draw(st.integers(0, tried)), data.draw(st.integers(0, total))
    hits = own + cross
    tables = [marks for marks in product((0, 1), repeat=tried + total) if sum(marks) == hits]
    extreme = sum(sum(marks[:tried]) >= own for marks in tables)
    assert math.isclose(fisher(own, tried, cross, total), extreme / len(tables))
