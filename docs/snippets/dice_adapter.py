import random

from .adapter import Adapter, HostedEpisode, description, split
from .values import result


class DiceAdapter(Adapter):
    def describe(self):
        return [
            description(f"dice-{self.target}", "Guess a sum.", [split("train", None)], gradable=True, solvable=True)
        ]

    def task(self, environment, split, index):
        dice = random.Random(index)
        total = sum(dice.randint(1, int(self.target)) for _ in range(self.options.get("rolls", 1)))
        return {"id": f"roll-{index}", "private": {"total": total}}

    def open(self, environment, task, seed):
        return Roll(task["private"]["total"])

    def solution(self, environment, task):
        return [{"answer": str(task["private"]["total"])}]


class Roll(HostedEpisode):
    prompt = "What is the sum of the dice?"

    def __init__(self, total):
        self.total = total

    def grade(self, answer):
        return result("", reward=float(answer.strip() == str(self.total)))


ADAPTER = DiceAdapter
