"""`MathEqual` on expected answers in the styles of public math sets, each with right and wrong answers.

`golds/*.tsv` were written by hand, before the reader that is tested here: an expected answer as the sets store it,
right answers, and wrong ones, as models write them. `mixed`, `messages` and `blind` came from others as held-out
tests; of `blind`, the reader as it was then paid no wrong answer and refused 4 of 819 right ones.
`edges` are near misses that were written with the code in view.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ludus.server import Attempt, MathEqual
from ludus.server.rewards.math_equality import compare
from ludus.server.rewards.math_forms import read
from ludus.server.rewards.math_text import answer_text
from ludus.server.rewards.math_values import Unreadable

GOLDS = Path(__file__).parent / "golds"
STYLES = sorted(path.stem for path in GOLDS.glob("*.tsv"))
MOST_REFUSED = 0.01
"""The share of right answers that may be refused."""


def rows(style: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield the expected answers of a file, each with right answers, first itself in a box, and wrong ones."""
    for line in (GOLDS / f"{style}.tsv").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            gold, *answers = line.split("\t")
            right, wrong = (field.split(" ¦ ") if field else [] for field in answers)
            yield gold, [rf"\boxed{{{gold}}}", *right], wrong


def mistakes(style: str, every: int = 1) -> tuple[list[str], list[str], int]:
    """Return the right answers that were refused, the wrong ones that were paid, and the number of right ones."""
    refused, paid, count = [], [], 0
    for gold, right, wrong in list(rows(style))[::every]:
        form = read(gold)
        refused += [f"{gold} | {answer}" for answer in right if not compare(form, answer)[0]]
        paid += [f"{gold} | {answer}" for answer in wrong if compare(form, answer)[0]]
        count += len(right)
    return refused, paid, count


@pytest.mark.suite("breadth", first=5)
@pytest.mark.parametrize("style", STYLES)
def test_of_a_sample_no_wrong_answer_earns_anything_and_hardly_a_right_one_refused(style: str) -> None:
    refused, paid, _ = mistakes(style, every=12)
    assert (len(refused) <= 1, paid) == (True, []), refused


@pytest.mark.suite("breadth")
@pytest.mark.parametrize("style", STYLES)
def test_no_wrong_answer_earns_anything_and_hardly_a_right_one_refused(style: str) -> None:
    refused, paid, count = mistakes(style)
    assert paid == []
    assert len(refused) <= MOST_REFUSED * count, refused


def test_there_are_as_many_golds_as_the_pages_say() -> None:
    golds = [row for style in STYLES for row in rows(style)]
    right, wrong = (
        sum(map(len, answers)) for answers in ([right[1:] for _, right, _ in golds], [wrong for *_, wrong in golds])
    )
    page = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text("utf-8")
    assert f"hold {len(golds):,} expected answers" in page
    assert f"with {right:,} right and {wrong:,} wrong answers" in page


@pytest.mark.parametrize("gold", (GOLDS / "unreadable.txt").read_text("utf-8").splitlines()[1:])
def test_a_gold_that_is_not_understood_as_a_whole_is_refused(gold: str) -> None:
    with pytest.raises(Unreadable):
        read(gold)


@pytest.mark.parametrize(
    "gold",
    [
        "",
        "  ",
        r"\frac{1}{",
        r"3\sqrt",
        "x +",
        "2 3",
        r"\text{}",
        "((1, 2)",
        "a" * 3_000,
        "(" * 900,
        r"\foo{3}",
    ],
)
async def test_what_is_cut_off_or_too_long_leaves_answers_unscored_and_says_why(gold: str) -> None:
    with pytest.raises(Unreadable):
        read(gold)
    verdict = await MathEqual(gold).check(Attempt(answer=r"\boxed{3}"))
    assert verdict.value is None
    assert "what is expected cannot be read" in verdict.evidence


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (r"First $x=3$. So \boxed{5} or \boxed{6}.", "5 , 6"),
        (r"We get \boxed{2}. Then we check. The answer is \boxed{5}", "5"),
        (r"$m+n = \boxed{5}$", "m+n = 5"),
        (r"\boxed{5} km, which is far", "5 km"),
        (r"The answer is $5$ or $6$.", r"5 \text{or} 6"),
        ("I tried 3.\nIn total there are 12 apples.", "12 apples"),
        ("**Answer:**\n\n$$x = 5$$", "x = 5"),
        ("#### Final Answer\n\n5", "5"),
        ("#### Step 3: add\nSo the answer is $5$.", "5"),
        ("She has 3.\n#### 42", "42"),
        (r"<answer>6</answer> No, \boxed{5}", "5"),
        (r"\boxed{5", None),
    ],
)
def test_the_answer_of_a_message_is_its_last_statement(message: str, text: str | None) -> None:
    found = answer_text(message)
    assert (found if found is None else " ".join(found.split()).replace(r"\text{km}", "km")) == text


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (r"\frac{\pi}{10^{31}}", r"\frac{3}{10^{31}}"),
        (r"10^{40}", r"10^{40}+1"),
        ("M + m", "2m"),
        ("|a-b|", "b-a"),
        (r"\gamma^2-1", r"\gamma^2"),
        ("4", "x^2 = 4"),
        ("4", r"\boxed{4} \text{ or } 5"),
        ("2(3)", "5"),
    ],
)
def test_values_that_a_careless_comparison_takes_for_equal_are_not(gold: str, answer: str) -> None:
    assert not compare(read(gold), answer)[0]
    assert compare(read(gold), gold)[0]


def test_intervals_whose_ends_have_variables_are_compared_with_each_other() -> None:
    form = read(r"x \in [a, a+1) \cup (b, c]")
    assert compare(form, r"x \in [a, 1+a) \cup (b, c]")[0]
    assert not compare(form, r"x \in [a, a+2) \cup (b, c]")[0]
    assert not compare(form, r"x \in [a, a+1) \cup (b, d]")[0]
