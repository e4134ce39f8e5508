"""Two tasks for Inspect AI with ten samples in all: sums in one message, and questions about a shop with tools.

ludus serve inspect:examples/formats/inspect/shop.py@stock
"""

from __future__ import annotations

from inspect_ai import Task, task
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, Scorer, Target, accuracy, match, scorer
from inspect_ai.solver import TaskState, basic_agent, generate, system_message
from inspect_ai.tool import Tool, tool

SHELVES = {"apples": 12, "bread": 7, "cheese": 3, "dates": 40, "eggs": 24}
QUESTIONS = {
    "apples": "How many apples are in stock?",
    "bread": "How many loaves of bread are in stock?",
    "cheese": "How many cheeses are in stock?",
    "dates": "How many dates are in stock?",
    "eggs": "How many eggs are in stock?",
}


@tool
def count() -> Tool:
    """Give the tool that counts what is on a shelf."""

    async def execute(article: str) -> str:
        """Count an article.

        Args:
            article: The article, such as apples.
        """
        return str(SHELVES[article]) if article in SHELVES else f"There is no shelf for {article}."

    return execute


@scorer(metrics=[accuracy()])
def closeness() -> Scorer:
    """Score C for the exact number, P for a number within 2, I for another one; no number at all is not scored."""

    async def score(state: TaskState, target: Target) -> Score:
        digits = "".join(one for one in state.output.completion if one.isdigit())
        if not digits:
            return Score.unscored(reason="There is no number in the answer.")
        away = abs(int(digits) - int(target.text))
        return Score(value="C" if away == 0 else "P" if away <= 2 else "I", answer=digits)

    return score


@task
def sums() -> Task:
    """Give five sums, each answered with one message."""
    samples = [Sample(id=f"sum-{n}", input=f"What is {n} + {2 * n}?", target=str(3 * n)) for n in range(3, 8)]
    solver = [system_message("Answer with a number alone."), generate()]
    return Task(dataset=samples, solver=solver, scorer=[match(numeric=True), closeness()])


@task
def stock() -> Task:
    """Give five questions about a shop for an agent with the tools `count` and `submit`."""
    samples = [Sample(id=name, input=text, target=str(SHELVES[name])) for name, text in QUESTIONS.items()]
    return Task(dataset=samples, solver=react(tools=[count()]), scorer=closeness(), message_limit=20)


@task
def patient() -> Task:
    """Give the questions of `stock` to Inspect's basic agent, with two attempts."""
    samples = [Sample(id=name, input=text, target=str(SHELVES[name])) for name, text in QUESTIONS.items()]
    return Task(dataset=samples, solver=basic_agent(tools=[count()], max_attempts=2), scorer=match(numeric=True),
                message_limit=30)  # fmt: skip
