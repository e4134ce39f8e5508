"""Algebra: answers are right by another way, equal expressions count in any writing, and only in the form asked for."""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
from algebra_reader import CHECKS
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.environments.algebra.environment import Algebra, AlgebraProblem, Problem, draw_problem
from ludus.environments.algebra.grading import FORMS, Form, is_answer, said
from ludus.environments.algebra.parser import Unreadable, evaluate, parse
from ludus.environments.algebra.polynomials import MOST_WORK, ONE, Budget, TooMuch
from ludus.environments.algebra.topics import TOPICS
from ludus.server import DIFFICULTIES, Difficulty, TaskDraw, final_answer
from ludus.server.authoring.partition import SplitType
from ludus.server.authoring.procedural import FreshTests

each_difficulty = pytest.mark.parametrize("difficulty", DIFFICULTIES)


@cache
def problems(difficulty: Difficulty, count: int = 300) -> list[Problem]:
    return [draw_problem(f"test:{difficulty}:{index}", "train", difficulty) for index in range(count)]


def of_each_topic(difficulty: Difficulty, count: int, among: int = 300) -> list[Problem]:
    """The first problems of each topic."""
    seen: Counter[str] = Counter()
    found = []
    for problem in problems(difficulty, among):
        seen[problem.topic] += 1
        if seen[problem.topic] <= count:
            found.append(problem)
    return found


def check_by_another_way(problem: Problem) -> None:
    question, _, solution = problem.drawn
    assert CHECKS[problem.topic](question, solution), (question, solution)


@each_difficulty
def test_another_way_from_the_text_alone_confirms_the_answer(difficulty: Difficulty) -> None:
    found = of_each_topic(difficulty, 2)
    assert {problem.topic for problem in found} == {topic.__name__ for topic in TOPICS[difficulty]}
    for problem in found:
        check_by_another_way(problem)


@pytest.mark.suite("breadth")
@each_difficulty
def test_another_way_confirms_hundreds_of_answers(difficulty: Difficulty) -> None:
    for problem in of_each_topic(difficulty, 40, 1000):
        check_by_another_way(problem)


def test_there_are_thirty_topics_and_every_form_is_used() -> None:
    topics = {topic.__name__ for topics in TOPICS.values() for topic in topics}
    assert topics == set(CHECKS)
    assert len(topics) == 30
    assert {problem.drawn.form for one in DIFFICULTIES for problem in problems(one)} == set(FORMS)


@each_difficulty
def test_the_answer_counts_and_a_changed_one_does_not(difficulty: Difficulty) -> None:
    for problem in problems(difficulty):
        _, form, solution = problem.drawn
        assert is_answer(form, solution, solution), solution
        digit = next(place for place in range(len(solution) - 1, -1, -1) if solution[place].isdecimal())
        other = f"{solution[:digit]}{(int(solution[digit]) + 3) % 7 + 1}{solution[digit + 1 :]}"
        if other != solution:
            assert not is_answer(form, other, solution), (other, solution)


@each_difficulty
def test_the_most_frequent_answer_is_rare(difficulty: Difficulty) -> None:
    found = problems(difficulty, 1000)
    assert Counter(problem.drawn.solution for problem in found).most_common(1)[0][1] <= 10


@each_difficulty
def test_no_single_number_of_the_question_is_the_answer(difficulty: Difficulty) -> None:
    for problem in problems(difficulty):
        question, form, solution = problem.drawn
        for one in question.replace("(", " ").replace(")", " ").replace(",", " ").rstrip(".").split():
            if one.lstrip("-").isdecimal() and form == "numbers":
                assert not is_answer(form, one, solution)
                assert not is_answer(form, f"-{one}", solution)


RIGHT: list[tuple[Form, str, str]] = [
    ("expanded", "2x^2 - 3x + 1/2", "1/2-3x+2x^2"),
    ("expanded", "2x^2 - 3x", r"2x^{2}-3 \cdot x"),
    ("expanded", "(3/2)x^2 - x", r"\frac{3}{2}x^2 - x"),
    ("expanded", "(3/2)x^2 - x", "3x^2/2 - x"),
    ("expanded", "(3/2)x^2 - x", r"\frac{3x^2}{2} - x"),
    ("expanded", "(3/2)x^2", "1.5x²"),
    ("expanded", "3x", "y = 3*x"),
    ("expanded", "x^2y - y", "-y + yx**2"),
    ("expanded", "3n + 1", "a_n = 1 + 3n"),
    ("expanded", "x", "f'(x) = x"),
    ("factored", "3(x + 1)(2x - 5)", r"3\left(2x-5\right)(x+1)"),
    ("factored", "(x + 1)(x - 2)", "(1+x)*(x-2)"),
    ("factored", "(x + 1)(x - 2)", "-(x+1)(2-x)"),
    ("factored", "x^2(x + 1)", "x(x+1)x"),
    ("factored", "(x + 1)^2(x - 2)", "(x-2)(x+1)(x+1)"),
    ("numbers", "x = 2 or x = -3", "-3, 2"),
    ("numbers", "x = 2 or x = -3", "x=-3 and x = 2"),
    ("numbers", "x = 2 or x = -3", r"x = 2 \text{ or } x = -3"),
    ("numbers", "x = 5/2", "2.5"),
    ("numbers", "x = 5/2", r"x = \frac{5}{2}"),
    ("numbers", "3 - 4i", "-4i+3"),
    ("numbers", "x = 2 or x = -3", r"\{-3, 2\}"),
    ("numbers", "1/2 + (3/4)i", r"\frac{1}{2} + \frac{3}{4}i"),
    ("numbers", "1/2 + (3/4)i", "1/2 + 3i/4"),
    ("assignment", "x = 2, y = -7/2", "y = -3.5 and x=2"),
    ("inequality", "x <= 5/2", r"x \le 2.5"),
    ("inequality", "x <= 5/2", "5/2 >= x"),
    ("inequality", "-1 < x <= 2", "2 ≥ x > -1"),
    ("inequality", "x < -1 or x > 4", "4 < x or x < -1"),
    ("inequality", "x < -1 or x > 4", r"x>4 \cup x<-1"),
    ("fraction", "(2x + 1)/(x - 3)", r"\frac{2x+1}{x-3}"),
    ("fraction", "2(x + 1)/(x - 3)", "-(2x+2)/(3-x)"),
    ("fraction", "11/(6x + 5)^2", "11/(36x^2+60x+25)"),
    ("fraction", "-4/(x + 1)^2", r"-\frac{4}{(x+1)^2}"),
    ("partial_fractions", "2/(x - 1) - 5/(x + 4)", r"\frac{-5}{x+4} + \frac{2}{x-1}"),
    ("partial_fractions", "2/(x - 1) - 5/(x + 4)", "-2/(1-x) - 5/(x+4)"),
    # What models wrap around answers, and how they write solutions.
    ("expanded", "2x - 3", r"\(2x - 3\)"),
    ("expanded", "2x - 3", r"\[\displaystyle 2x - 3\]"),
    ("expanded", "(3/2)x", r"\frac32x"),
    ("expanded", "(3/2)x", r"\frac{3}2x"),
    ("numbers", "133", r"\text{133}"),
    ("numbers", "x = 2 or x = -3", r"\(x = 2\) or \(x = -3\)"),
    ("numbers", "x = 2 or x = -3", "$x = 2$ or $x = -3$"),
    ("numbers", "x = 2 or x = -3", r"x = 2 \quad \text{or} \quad x = -3"),
    ("numbers", "x = 2 or x = -3", "x_1 = 2, x_2 = -3"),
    ("numbers", "x = 2 or x = -3", "x₁ = 2, x₂ = -3"),
    ("numbers", "x = 2 or x = -3", r"x \in \{-3,\ 2\}"),
    ("numbers", "x = 2 or x = -3", "x = 2 OR x = -3"),
    ("numbers", "x = 4 + 3i or x = 4 - 3i", "x = 4 ± 3i"),
    ("numbers", "x = 2 or x = -2", "±2"),
    ("numbers", "x = 4 + 3i or x = 4 - 3i", r"4 \pm 3i"),
    ("assignment", "x = 2, y = -7/2", r"x = 2,\quad y = -\frac{7}{2}"),
    ("assignment", "x = 2, y = -7/2", "$x = 2$, $y = -7/2$"),
    ("assignment", "x = 2, y = -7/2", r"\left(x, y\right) = \left(2, -7/2\right)"),
    ("inequality", "x < -1 or x > 4", r"x < -1 \quad\text{or}\quad x > 4"),
    ("inequality", "x < -1 or x > 4", r"x < -1 \lor x > 4"),
    ("inequality", "-1 <= x <= 2", r"-1 \leqslant x \leqslant 2"),
    ("inequality", "x <= -1 or x >= 4", r"\(x \leq -1\) or \(x \geq 4\)"),
]

WRONG: list[tuple[Form, str, str]] = [
    ("numbers", "x = 5", "5 ± 0"),
    ("numbers", "x = 5", "4 ± 1"),
    ("numbers", "x = 2 or x = 4", "2 ± 0, 4"),
    ("numbers", "x = 2 or x = 4", "x = 2, y = 4"),
    ("numbers", "x = 2 or x = 4", "3 ± 1 ± 0"),
    ("numbers", "133", r"\text{about 133}"),
    ("expanded", "(3/2)x", r"\frac324x"),
    ("assignment", "x = 2, y = 3", "(x, y) = (3, 2)"),
    ("assignment", "x = 2, y = 3", "(y, x) = (2, 3)"),
    ("expanded", "x^2 + 3x + 2", "(x+1)(x+2)"),
    ("expanded", "x^2 + 3x + 2", "x^2 + 2x + x + 2"),
    ("expanded", "x^2 + 3x + 2", "x(x+3) + 2"),
    ("expanded", "x^2 + 3x + 2", "x*x + 3x + 2"),
    ("expanded", "6x", "2*3x"),
    ("expanded", "x^2 + 3x + 2", "(x^3+3x^2+2x)/x"),
    ("expanded", "x", "(x)^1 + 0x"),
    ("expanded", "6", "2+4"),
    ("expanded", "x", "x = x = x"),
    ("expanded", "x^2 - 1", "x^2 - 1^2 + 0"),
    ("expanded", "x", "x*1*1"),
    ("factored", "(x + 1)(x + 2)", "x^2+3x+2"),
    ("factored", "2(x + 1)(x + 2)", "(2x+2)(x+2)"),
    ("factored", "(x + 1)(x - 1)(x + 2)", "(x^2-1)(x+2)"),
    ("factored", "(x + 1)(x + 2)", "4(x/2+1/2)(x/2+1)"),
    ("factored", "(x + 1)(x + 2)", "(x+1)(x+2)(x+3)/(x+3)"),
    ("factored", "(x + 1)(x + 2)", "(x+1)(x+2) + 0"),
    ("factored", "(x + 1)(x + 2)", "-(x+1)(x+2)"),
    ("factored", "(x + 1)(x + 2)", "(x+1)^1(x+2)^2"),
    ("numbers", "x = 2 or x = -3", "2"),
    ("numbers", "x = 2 or x = -3", "2, -3, 5"),
    ("numbers", "x = 2", "2, 2"),
    ("numbers", "x = 2 or x = -3", "2 or -3 or 2"),
    ("numbers", "6", "2*3"),
    ("numbers", "6", "5+1"),
    ("numbers", "6", "x"),
    ("numbers", "6", "36/6 or not"),
    ("numbers", "-1", "i^2"),
    ("numbers", "11", "(2-3i)(2+3i)-2"),
    ("numbers", "34 + i", "(2-3i)(5+8i)"),
    ("numbers", "6", "6 = 6"),
    ("assignment", "x = 2, y = 3", "x = 2"),
    ("assignment", "x = 2, y = 3", "x = 2, y = 3, x = 2"),
    ("assignment", "x = 2, y = 3", "x = 3, y = 2"),
    ("assignment", "x = 2, y = 3", "2, 3"),
    ("assignment", "x = 2, y = 3", "x = 2, y = 1+2"),
    ("inequality", "x < 3", "x <= 3"),
    ("inequality", "x < 3", "x > 3"),
    ("inequality", "x < 3", "x < 3 or x >= 3"),
    ("inequality", "x < 3", "2x < 6"),
    ("inequality", "x < 3", "x < 3 < 4"),
    ("inequality", "-1 < x <= 2", "-1 < x < 2"),
    ("inequality", "-1 < x < 2", "-1 < x > 2"),
    ("inequality", "-1 < x < 2", "x > -1 and x < 2 or x < 5"),
    ("inequality", "x < 3", "x < x"),
    ("fraction", "1/(x - 3)", "(x+1)/((x-3)(x+1))"),
    ("fraction", "(x - 2)/(x - 3)", "1 + 1/(x-3)"),
    ("fraction", "(x - 2)/(x - 3)", "(1 - 2/x)/(1 - 3/x)"),
    ("fraction", "(x - 2)/(x - 3)", "(x-2)(x-3)^2/(x-3)^3"),
    ("partial_fractions", "2/(x - 1) - 5/(x + 4)", "(-3x+13)/((x-1)(x+4))"),
    ("partial_fractions", "2/(x - 1) - 5/(x + 4)", "1/(x-1) + 1/(x-1) - 5/(x+4)"),
    ("partial_fractions", "2/(x - 1) - 5/(x + 4)", "2/(x-1) + (-5x)/(x^2+4x)"),
]


@pytest.mark.parametrize(("form", "solution", "said"), RIGHT)
def test_an_equal_answer_in_its_form_counts_in_any_writing(form: Form, solution: str, said: str) -> None:
    assert is_answer(form, said, solution)


@pytest.mark.parametrize(("form", "solution", "said"), WRONG)
def test_another_value_or_another_form_does_not_count(form: Form, solution: str, said: str) -> None:
    assert is_answer(form, solution, solution), "the answer itself"
    assert not is_answer(form, said, solution)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("Answer: x + 1", "x + 1"), ("Answer: 3\nAnswer: x", "x"), (r"So \boxed{\frac{x^{2}}{3}}.", r"\frac{x^{2}}{3}"),
        ("**Answer:** $x^2$", "x^2"), ("the final answer is: `2x`.", "2x"), (r"\boxed{1} or \boxed{2}", "2"),
        (r"Answer: \boxed{x", ""), ("x", "x"), ("Answer: 1 \\boxed{}", ""), ("Answer:\nx + 1", "x + 1"),
        ("### Answer\n\n\\[\n\\boxed{x}\n\\]", "x"),
    ],
)  # fmt: skip
def test_the_last_line_and_the_last_box_count(message: str, said: str) -> None:
    assert final_answer(message) == said


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x +",
        "2 3",
        "x(",
        ")",
        "x^",
        "x^-1",
        "x^y",
        "2^x",
        "x^2^3",
        "+-x",
        "--x",
        "z",
        "x_1",
        "sin(x)",
        "1/0",
        "x/(y-y)",
        "0x10",
        "1e3",
        "٣",
        "½",
        "x!",
        "x=1",
        "{x}",
        r"\frac{1}",
        r"\frac123",
        r"\frac1",
        "x'",
        "os.system",
        "__class__",
        "\x00",
        "x\u200by",
    ],
)
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises((Unreadable, TooMuch)):
        evaluate(parse(text), Budget())


@pytest.mark.parametrize(
    "text",
    [
        "x" * 401,
        "x^13",
        "9" * 16,
        "(" * 30 + "x" + ")" * 30,
        "((((x+y+1)^12)^12)^12)^12",
        "(x+y+n+i)^12*(x+y+n+i)^12",
        "+".join(["x"] * 200),
        "(x+1)" * 60,
        "((9^12)^12)^12",
        r"\frac{1}{" * 25 + "x" + "}" * 25,
        "x^12*x^12*x^12",
    ],
)
def test_what_is_larger_than_any_answer_is_refused_before_the_work_is_done(text: str) -> None:
    budget = Budget()
    with pytest.raises(TooMuch):
        evaluate(parse(text), budget)
    assert MOST_WORK - budget.left <= MOST_WORK + 200 * 200


def texts() -> st.SearchStrategy[str]:
    """Expressions that Python reads as well, with every operation written out."""
    atoms = st.one_of(st.integers(0, 99).map(str), st.sampled_from(["x", "y", "1.5"]))

    def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.builds("({}){}({})".format, inner, st.sampled_from("+-*/"), inner),
            st.builds("({})^{}".format, inner, st.integers(0, 3)),
            st.builds("(-({}))".format, inner),
        )

    return st.recursive(atoms, grow, max_leaves=5)


@settings(max_examples=50)
@given(texts(), st.integers(-9, 9), st.integers(-9, 9))
def test_an_expression_has_the_value_that_python_computes(text: str, x: int, y: int) -> None:
    try:
        above, below = evaluate(parse(text), Budget())
    except (TooMuch, Unreadable):
        return
    program = re.sub(r"(?<!\^)\b\d+(?:\.\d+)?", lambda one: f"Fraction('{one[0]}')", text).replace("^", "**")
    values = {"x": Fraction(x), "y": Fraction(y), "Fraction": Fraction, "__builtins__": {}}
    try:
        wanted = eval(program, values)
    except ZeroDivisionError:
        return

    def at(polynomial: Any) -> Fraction:
        return sum((value * x ** one[0] * y ** one[1] for one, value in polynomial.items()), Fraction(0))

    assert at(below) == 0 or Fraction(at(above), at(below)) == wanted


PIECES = (
    "Answer:", r"\boxed{", r"\frac{", "{", "}", "x", "y", "i", "x = ", " or ", ", ", "<=", "<", "(x+1)", "^2", "^12",
    r"\left(", *"\n0123456789-+.,/ *$\\()=≤²",
)  # fmt: skip


@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(PIECES), max_size=40).map("".join)))
def test_no_message_breaks_the_grading(message: str) -> None:
    for form, solution in ONE_OF_EACH:
        assert is_answer(form, said(form, message), solution) in (True, False, None)


ONE_OF_EACH: list[tuple[Form, str]] = [
    ("expanded", "2x^2 - 3x + 1"), ("factored", "3(x + 1)(2x - 5)"), ("numbers", "x = 2 or x = -3"),
    ("assignment", "x = 2, y = -7/2"), ("inequality", "-1 < x <= 5/2"), ("fraction", "(2x + 1)/(x - 3)"),
    ("partial_fractions", "2/(x - 1) - 5/(x + 4)"),
]  # fmt: skip


@cache
def identities(split: SplitType) -> set[str]:
    levels: list[tuple[Difficulty, ...]] = [*((one,) for one in DIFFICULTIES), DIFFICULTIES]
    return {one for chosen in levels for one in Algebra._held_out(TaskDraw(split, tuple(chosen)))[1]}


@each_difficulty
@given(index=st.integers(0, 2**50))
def test_no_training_problem_has_topic_and_numbers_of_one_held_out(difficulty: Difficulty, index: int) -> None:
    problem = draw_problem(f"train:{difficulty}:{index}", "train", difficulty)
    assert Algebra.load_task("train", index, [difficulty]).question == problem.drawn.question
    assert problem.identity not in identities("validation") | identities("test")


def test_validation_and_test_share_no_problem_and_have_none_twice() -> None:
    assert identities("validation").isdisjoint(identities("test"))
    splits: tuple[SplitType, ...] = ("validation", "test")
    found = [task.question for split in splits for task in Algebra.load_tasks(split)]
    assert len(found) == len(set(found)) == 600


def test_no_unseen_test_is_a_public_one() -> None:
    draw = TaskDraw("test", DIFFICULTIES, FreshTests("nobody knows this", "unseen"))
    assert len(Algebra._held_out(draw)[1]) == 600


@each_difficulty
def test_an_exploit_earns_nothing_in_any_topic(difficulty: Difficulty) -> None:
    for problem in of_each_topic(difficulty, 3):
        question, form, solution = problem.drawn
        task = AlgebraProblem(
            id="one", question=question, topic=problem.topic, form=form, difficulty=difficulty, solution=solution
        )
        exploits = Algebra.exploits(task)
        assert len(exploits) >= 47
        for what, policy in exploits.items():
            said = final_answer(next(policy).text)  # type: ignore[union-attr]
            assert not is_answer(form, said, solution), (what, question)


async def test_the_oracle_earns_all_and_an_exploit_nothing_over_the_host(player: Any) -> None:
    for index in (0, 1, 2):
        task = player.task("algebra", "train", index)
        for what, policy in Algebra.exploits(task).items():
            [episode] = await player.start("algebra", "train", index)
            await player.play(episode.episode, policy)
            assert (await player.rewards(episode.episode))[0].value == 0.0, what


def test_a_constant_is_kept_apart_from_variables() -> None:
    above, below = evaluate(parse("i*i"), Budget())
    assert above == {ONE: Fraction(-1)}
    assert below == {ONE: Fraction(1)}


def test_no_congruence_is_solved_by_a_division_of_whole_numbers() -> None:
    found = [problem for problem in problems("medium", 1000) if problem.topic == "congruence"]
    assert len(found) > 50
    for problem in found:
        factor, remainder, divisor = map(
            int, re.findall(r"(\d+)x leaves the remainder (\d+) .* by (\d+)", problem.drawn.question)[0]
        )
        solution = int(problem.drawn.solution.removeprefix("x = "))
        assert factor * solution % divisor == remainder
        assert factor * solution > divisor
        assert solution >= 10


SEVERAL: list[tuple[Form, str, str]] = [
    ("assignment", "x = 15, y = -16", "Answer: x = 15\ny = -16"),
    ("assignment", "x = 15, y = -16", "### Answer\n\n- x = 15\n- y = -16\n\nBoth equations hold."),
    ("assignment", "x = 15, y = -16", "\\boxed{x = 15} and \\boxed{y = -16}"),
    ("numbers", "x = 2 or x = -3", "So \\boxed{x = 2} or \\boxed{x = -3}."),
    ("numbers", "x = 2 or x = -3", "Answer: $x_1 = 2$\n$x_2 = -3$"),
    ("numbers", "x = 73", "Answer: x = 73\n\nx = 73 is the only one from 0 to 308."),
    ("numbers", "x = 103/18", r"Answer: x = \frac{103}{18} \approx 5.72"),
    ("numbers", "105 + 90i", "Answer: (12+3i)(10+5i) = 105 + 90i"),
    ("expanded", "2x - 3", "Answer: d/dx(x^2 - 3x) = 2x - 3"),
    ("expanded", "2x - 3", r"Answer: f^{\prime}(x) = 2x - 3"),
]
OTHERS: list[tuple[Form, str, str]] = [
    ("assignment", "x = 15, y = -16", "Answer: x = 15\ny = -16\nx = 14"),
    ("numbers", "x = 2 or x = -3", r"\boxed{x = 2} or \boxed{x = -3} or \boxed{x = 0}"),
    ("numbers", "x = 73", r"\boxed{73} \boxed{}"),
    ("numbers", "x = 73", r"\boxed{72} or \boxed{73}"),
    ("numbers", "x = 73", "Answer: x = 73\nx = 74"),
    ("numbers", "105 + 90i", "Answer: (12+3i)(10+5i)"),
    ("expanded", "2x - 3", "Answer: 2x - 3 = 2x - 3"),
]


@pytest.mark.parametrize(("form", "solution", "message"), SEVERAL)
def test_all_values_that_a_message_states_together_are_read(form: Form, solution: str, message: str) -> None:
    assert is_answer(form, said(form, message), solution)


@pytest.mark.parametrize(("form", "solution", "message"), OTHERS)
def test_a_value_too_many_among_them_makes_the_answer_wrong(form: Form, solution: str, message: str) -> None:
    assert not is_answer(form, said(form, message), solution)
