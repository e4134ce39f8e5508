"""A number from 1 to 50 is to be guessed; the environment answers each guess with a hint. Several turns, no tools."""

import re

import verifiers as vf
from datasets import Dataset

SECRETS = [7, 50, 1, 33, 25, 12, 48, 19, 41, 3]


class NumberHunt(vf.MultiTurnEnv):
    """Answers guesses until one is right."""

    async def setup_state(self, state, **kwargs):
        """Begin without guesses."""
        state["guesses"] = []
        await super().setup_state(state, **kwargs)

    async def env_response(self, messages, state, **kwargs):
        """Answer a guess."""
        found = re.search(r"\d+", messages[-1].content or "")
        if found is None:
            return [{"role": "user", "content": "That is no number. Guess again."}]
        guess, secret = int(found[0]), int(state["answer"])
        state["guesses"].append(guess)
        if guess == secret:
            answer = [{"role": "user", "content": f"Yes, it is {secret}."}]
            state["final_env_response"] = answer
            return answer
        hint = "higher" if secret > guess else "lower"
        return [
            {"role": "user", "content": f"No, it is {hint} than {guess}."},
            {"role": "user", "content": f"Guesses so far: {len(state['guesses'])}."},
        ]


def solved(state) -> float:
    """Return whether the number was found."""
    return 1.0 if int(state["answer"]) in state["guesses"] else 0.0


def economy(state) -> float:
    """Return the share of guesses that were not needed."""
    return 1.0 / max(1, len(state["guesses"]))


def load_environment(max_turns: int = 6) -> vf.Environment:
    """Return the environment.

    Args:
        max_turns: how many messages the agent may send.
    """
    rows = [{"question": "I think of a number from 1 to 50. What is it?", "answer": str(one)} for one in SECRETS]
    return NumberHunt(
        dataset=Dataset.from_list(rows),
        rubric=vf.Rubric(funcs=[solved, economy], weights=[1.0, 0.5]),
        max_turns=max_turns,
    )
