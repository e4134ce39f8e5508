"""What counts as an answer, and what citations prove."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.environments.search.answers import Support, canonical, same_answer, supported
from ludus.environments.search.questions import AnswerForm

RIGHT: list[tuple[AnswerForm, str, str]] = [
    ("name", "Karvel River", "karvel  river."),
    ("name", "Karvel River", 'The "Karvel River"'.replace('The "', '"the ')),
    ("name", "The Quiet Door", "quiet door"),
    ("name", "Ostmark's End", "Ostmark\u2019s End"),
    ("name", "Mira Oskel", "**Mira Oskel**"),
    ("number", "15162", "15,162"),
    ("number", "15162", "15162 students"),
    ("number", "224", "224 years"),
    ("number", "15", "15.0"),
    ("number", "15162", "\\boxed{15 162}"),
    ("name", "Karvel River", "The answer is Karvel River."),
    ("year", "1893", "in the year 1893"),
    ("date", "4 March 1893", "on the 4th of March, 1893"),
    ("year", "1893", "1893."),
    ("date", "4 March 1893", "March 4, 1893"),
    ("date", "4 March 1893", "1893-03-04"),
    ("date", "4 March 1893", "04 march 1893"),
]
WRONG: list[tuple[AnswerForm, str, str]] = [
    ("name", "Karvel River", "Karvel"),
    ("name", "Karvel River", "Karvel River or Ostmark River"),
    ("name", "Karvel River", "Karvel River, Ostmark River"),
    ("name", "Karvel River", "the answer is Karvel River, since the page says so"),
    ("name", "Karvel River", "Кarvel River"),
    ("name", "Karvel River", "Ｋarvel River"),
    ("name", "Karvel River", "Karvel\u200b River"),
    ("name", "Karvel River", "Karvel Ri\u0301ver"),
    ("name", "Karvel River", ""),
    ("number", "15", "15 or 16"),
    ("number", "15", "15.5"),
    ("number", "15", "-15"),
    ("number", "15", "1 5"),
    ("number", "15", "15 (or 16)"),
    ("number", "15", "15 apples"),
    ("number", "15", "٣"),
    ("number", "15162", "15,16,2"),
    ("year", "1893", "1893 or 1894"),
    ("year", "1893", "1,893"),
    ("year", "1893", "93"),
    ("date", "4 March 1893", "March 1893"),
    ("date", "4 March 1893", "4 March 1893 or 5 March 1893"),
    ("date", "4 March 1893", "1893-04-03"),
    ("date", "4 March 1893", "4 Marsh 1893"),
]


@pytest.mark.parametrize(("form", "answer", "given"), RIGHT)
def test_other_ways_to_write_an_answer_are_right(form: AnswerForm, answer: str, given: str) -> None:
    assert same_answer(given, (answer,), form)


@pytest.mark.parametrize(("form", "answer", "given"), WRONG)
def test_lists_fragments_and_lookalikes_are_wrong(form: AnswerForm, answer: str, given: str) -> None:
    assert not same_answer(given, (answer,), form)


def test_another_name_of_the_entity_is_right() -> None:
    assert same_answer("old town", ("New Town", "Old Town"), "name")


@given(text=st.text(max_size=300) | st.from_regex(r"[0-9,]{1,9}( students)?\.?"))
def test_a_number_or_a_year_is_read_as_plain_digits_or_not_at_all(text: str) -> None:
    for form in ("number", "year"):
        found = canonical(text, form)
        assert found is None or (found.isascii() and found.isdigit() and canonical(found, form) == found)


@given(cited=st.sets(st.integers(0, 12), max_size=10))
def test_more_pages_never_raise_precision_beyond_what_is_needed(cited: set[int]) -> None:
    needs = [(0, 1), (2,), (3, 4)]
    found = supported(cited, needs)
    assert 0 <= found.precision <= 1
    assert 0 <= found.recall <= 1
    assert (found.recall == found.precision == 1) == (len(cited) == 3 and all(set(need) & cited for need in needs))


def test_a_second_page_of_the_same_fact_is_not_needed() -> None:
    assert supported({0, 2, 3}, [(0, 1), (2,), (3, 4)]) == Support(True, 1.0, 1.0)
    assert supported({0, 1, 2, 3}, [(0, 1), (2,), (3, 4)]) == Support(True, 1.0, 0.75)
    assert supported({0, 2}, [(0, 1), (2,), (3, 4)]) == Support(False, 2 / 3, 1.0)
    assert supported(set(), [(0,)]) == Support(False, 0.0, 0.0)
