"""A word is to be guessed letter by letter: a taskset of verifiers' v1 API whose environment speaks between turns."""

import verifiers.v1 as vf

__all__ = ["LetterGame", "LetterGameEnv"]

WORDS = ["garden", "window", "silver", "castle", "violin", "summer", "bridge", "pepper", "rocket", "anchor"]


class WordData(vf.TaskData):
    """A word."""

    word: str


class WordTask(vf.Task[WordData]):
    """The environment scores it."""


class LetterGame(vf.Taskset[WordTask, vf.TasksetConfig]):
    """Ten words of six letters."""

    def load(self):
        """Return the tasks."""
        for word in WORDS:
            yield WordTask(WordData(prompt="Guess a word of six letters. Say a letter.", word=word), self.config.task)


class LetterGameConfig(vf.EnvConfig):
    """The one who guesses, and how often."""

    player: vf.AgentConfig = vf.AgentConfig()
    guesses: int = 5


class LetterGameEnv(vf.Env[LetterGameConfig]):
    """Answers letters with the places where they are."""

    async def run(self, task, agents):
        """Play one word."""
        word, known, guesses = task.data.word, set(), 0
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated:
                guesses += 1
                said = segment.last_reply.strip().lower()
                known |= set(word) if said == word else set(said[:1]) & set(word)
                if known == set(word) or guesses == self.config.guesses:
                    break
                shown = "".join(letter if letter in known else "_" for letter in word)
                segment = await interaction.turn(f"{shown} ({self.config.guesses - guesses} left)")
        interaction.trace.record_reward("found", len(known) / len(set(word)), 1.0)
        interaction.trace.record_metric("guesses", guesses)
