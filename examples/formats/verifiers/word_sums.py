"""Sums of numbers that are written as words, answered in XML tags; one turn, two reward functions and a metric."""

import verifiers as vf
from datasets import Dataset

SUMS = [
    ("seven plus five", "12"),
    ("twenty plus eleven", "31"),
    ("forty-two minus nine", "33"),
    ("six times eight", "48"),
    ("a dozen plus a score", "32"),
    ("ninety divided by fifteen", "6"),
    ("three times three times three", "27"),
    ("one hundred minus fifty-eight", "42"),
    ("half of seventy-six", "38"),
    ("the square of fourteen", "196"),
]


def load_environment(format_weight: float = 0.25, few_shot: bool = False) -> vf.Environment:
    """Return the environment.

    Args:
        format_weight: the weight of the tags in the reward.
        few_shot: whether the prompt shows an example.
    """
    parser = vf.XMLParser(["reasoning", "answer"], answer_field="answer")

    def correct(completion, answer) -> float:
        return 1.0 if (parser.parse_answer(completion) or "").strip() == answer else 0.0

    def length(completion) -> float:
        return float(len(completion[-1].content or ""))

    rubric = vf.Rubric(funcs=[correct, parser.get_format_reward_func()], weights=[1.0, format_weight], parser=parser)
    rubric.add_metric(length)
    example = [
        {"role": "user", "content": "two plus two"},
        {"role": "assistant", "content": parser.format(reasoning="2 + 2", answer="4")},
    ]
    rows = [{"question": f"What is {text}?", "answer": answer} for text, answer in SUMS]
    return vf.SingleTurnEnv(
        dataset=Dataset.from_list(rows),
        eval_dataset=Dataset.from_list(rows[:4]),
        system_prompt=f"Answer in this form:\n{parser.get_format_str()}",
        few_shot=example if few_shot else None,
        parser=parser,
        rubric=rubric,
    )
