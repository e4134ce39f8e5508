"""`final_answer`: which part of a message is its answer, wherever a model writes it."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from ludus.server import final_answer, stated_answers

STATED = (
    ("Answer: 12", "12"),
    ("Answer:\n12", "12"),
    ("Answer:\n\n12\n\nI hope this helps.", "12"),
    ("**Answer:**\n\n**12**", "12"),
    ("**Answer**: 12", "12"),
    ("### Answer\n\n12", "12"),
    ("## Final Answer\n\n$$12$$\n", "12"),
    ("**Final Answer**\n\n\\[\n\\boxed{12}\n\\]", "12"),
    ("Answer:\n\\boxed{12}", "12"),
    ("Answer:\n\\[\n12\n\\]\nDone.", "12"),
    ("Answer:\n```\n12\n```", "12"),
    ("Answer:\nWe add both, so it is\n\\boxed{12}", "12"),
    ("Answer: \\(12\\)", "12"),
    ("Answer: \\[12\\].", "12"),
    ("The answer is 12.", "12"),
    ("The answer is:\n\n12", "12"),
    ("So the final answer is: **12**", "12"),
    ("Therefore, the answer is $\\boxed{12}$.", "12"),
    ("> **Answer:** 12", "12"),
    ("- Answer:\n\n  > 12", "12"),
    ("Answer: 3\nAnswer: 12", "12"),
    ("Answer:\n3\n\nAnswer:\n12", "12"),
    ("\\boxed{3}\nAnswer: 12", "12"),
    ("Answer: 3 or \\boxed{12}", "12"),
    ("So it is \\boxed{12}.\n\nAnswer:", "12"),
    ("Answer: 3\n\\[\\boxed{12}\\]\n**Answer:**\n", "12"),
    ("\\boxed{12}\nAnswer: 3\nAnswer:", ""),
    ("12", "12"),
    ("So it is \\boxed{\\frac{1}{\\{2\\}}}", "\\frac{1}{\\{2\\}}"),
    ("\\boxed {12}", "12"),
    ("Answer: Paris.", "Paris"),
    ("Answer: x_1 = 2", "x_1 = 2"),
    ("", ""),
    ("Answer:", ""),
    ("Answer: 12\nAnswer:", ""),
    ("Answer: \\boxed{12", ""),
    ("Answer: \\boxed{}", ""),
    ("\\boxed{1} or \\boxed{}", ""),
    ("the result is 12", "the result is 12"),
    ("An answer that is 12", "An answer that is 12"),
    ("The answer isn't 12", "The answer isn't 12"),
)


@pytest.mark.parametrize(("message", "answer"), STATED)
def test_the_answer_is_found_wherever_a_message_states_it(message: str, answer: str) -> None:
    assert final_answer(message) == answer
    assert final_answer(message.replace("\n", "\r\n")) == answer


def test_of_many_answers_only_the_last_counts_and_all_are_stated() -> None:
    message = "\n".join(f"Answer:\n{number}" for number in range(2000))
    assert final_answer(message) == "1999"
    assert stated_answers("Answer: 1\nfinal answer:\n\n2") == ["1", "2"]
    assert stated_answers("1") == []


def test_a_message_of_a_megabyte_is_read_from_its_end_only() -> None:
    assert final_answer("Answer: 3\n" + " " * 1_000_000) == ""
    assert final_answer(" " * 1_000_000 + "\nAnswer:\n3") == "3"


def test_the_work_grows_with_the_length_of_a_message_and_not_with_its_square() -> None:
    def lines_run(message: str) -> int:
        lines = 0

        def count(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal lines
            lines += 1
            return count

        before = sys.gettrace()
        sys.settrace(count)
        try:
            final_answer(message)
        finally:
            sys.settrace(before)
        return lines

    for piece in ("Answer:\n", "Answer:\n\\boxed{", "answer\n\\[", "{}", "\\boxed{{}"):
        once, twice = (lines_run(f"{piece * count}\n\\boxed{{{'{' * count}") for count in (300, 600))
        assert twice < 2.5 * once
