"""Find a hidden five-letter word in six guesses, whose letters are marked green and yellow."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, ClassVar, Final

from ludus.environments.wordle.feedback import GREEN, broken_hint, greens, mark, present
from ludus.environments.wordle.lists import allowed, answers_of
from ludus.protocol import Answer, Call, Component, EpisodeLimits, Reward, StepResult
from ludus.server import Difficulty, Private, ProceduralEnvironment, Result, Task, TaskDraw, ToolError, tool
from ludus.server.authoring.partition import SplitType

LENGTH: Final = 5


class WordleTask(Task):
    """A word to find."""

    guesses: int = 6
    """Guesses allowed."""
    difficulty: Difficulty
    """How common the word is: easy is everyday, hard is rare."""
    answer: Private[str]


class Wordle(ProceduralEnvironment[WordleTask]):
    """Find a hidden five-letter word in six guesses; each guess is marked letter by letter."""

    version = "0.1.0"
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "easy": {"hints": 1},
        "hard": {"strict": True},
        "sparse": {"shaping": 0.0},
    }
    reward_range = (0.0, 1.0)
    limits = EpisodeLimits(max_steps=20)
    forkable = True
    blocking = False

    shaping: ClassVar[float] = 1 / 32
    """The reward for each letter whose place is found, taken from the reward for winning. Use a power of two, so that
    rewards add up to exactly 1."""
    strict: ClassVar[bool] = False
    """True if guesses must keep every hint so far."""
    hints: ClassVar[int] = 0
    """The number of letters, drawn with the episode's seed, that the prompt reveals."""

    @classmethod
    def count_tasks(cls, split: SplitType, difficulties: Sequence[Difficulty]) -> int:
        """Return how many words a split has."""
        return len(answers_of(split, tuple(difficulties)))

    @classmethod
    def make_task(cls, draw: TaskDraw[Difficulty]) -> WordleTask:
        """Return a word of the split."""
        word, difficulty = answers_of(draw.split, tuple(draw.difficulties), draw.secret)[draw.index]
        return WordleTask(id=draw.id, difficulty=difficulty, answer=word)

    def setup(self) -> None:
        """Draw the letters that the prompt reveals."""
        self._history: list[tuple[str, str]] = []
        self._told = sorted(self.rng.sample(range(LENGTH), self.hints))

    def prompt(self) -> str:
        """Return the rules and the hints."""
        lines = [
            f"Find a hidden English word of {LENGTH} letters in at most {self.task.guesses} guesses.",
            "Call `guess` with a word. The reply shows your letters and, below each, its mark: G means the right "
            "letter in the right place, Y means the letter is in the word at another place, - means the letter is not "
            "in the word, or not that often. What is not in my word list is refused and costs no guess.",
        ]
        if self.strict:
            lines.append(
                "Each guess must keep the hints so far: G letters in their places, and every Y letter in the word."
            )
        lines += [f"Hint: letter {place + 1} is {self.task.answer[place].upper()}." for place in self._told]
        lines.append("The game ends when you guess the word (you win) or when your guesses are used up (you lose).")
        return "\n".join(lines)

    @tool(inline=True)
    def guess(self, word: str) -> Result:
        """Guess the hidden word.

        Args:
            word: an English word of five letters.
        """
        guess = word.strip().lower()
        self._check(guess)
        marks = mark(guess, self.task.answer)
        before, self._history = self._history, [*self._history, (guess, marks)]
        won = marks == GREEN * LENGTH
        left = self.task.guesses - len(self._history)
        if won:
            rest = "You win."
        else:
            rest = f"Guesses left: {left}." if left else "You have no guesses left. You lose."
        text = f"{' '.join(guess.upper())}\n{' '.join(marks)}\n{rest}"
        finished = won or left == 0
        metadata = {"answer": self.task.answer} if finished else {}
        return Result(text, self._reward(before, won), finished=finished, metadata=metadata)

    def _check(self, guess: str) -> None:
        if len(guess) != LENGTH or not (guess.isascii() and guess.isalpha()):
            raise ToolError(f"Guess one English word of exactly {LENGTH} letters, A to Z. No guess was used.")
        if guess not in allowed():
            raise ToolError(f"{guess.upper()} is not in my word list. No guess was used.")
        if self.strict and (broken := broken_hint(guess, self._history)):
            raise ToolError(f"{guess.upper()} does not keep the hints: {broken}. No guess was used.")

    def _reward(self, before: list[tuple[str, str]], won: bool) -> Reward:
        placed = len(greens(self._history)) - len(greens(before))
        found = present(self._history).total() - present(before).total()
        win = 1.0 - LENGTH * self.shaping
        components = {
            "win": Component(value=float(won), weight=win),
            "greens": Component(value=float(placed), weight=self.shaping),
            "yellows": Component(value=float(found), weight=0.0),
            "turns": Component(value=1.0, weight=0.0),
        }
        return Reward.of(win * won + self.shaping * placed, components)

    @classmethod
    def oracle(cls, task: WordleTask) -> Generator[Call | Answer, StepResult, None]:
        """Guess the answer."""
        yield Call("guess", {"word": task.answer})

    @classmethod
    def equivalents(cls, task: WordleTask) -> Mapping[str, Generator[Call | Answer, StepResult, None]]:
        """Return ways to the answer with other words before it, or in other letters."""

        def guess(*words: str) -> Generator[Call | Answer, StepResult, None]:
            for word in words:
                yield Call("guess", {"word": word})

        other = next(word for word in ("crane", "slate", "audio") if word != task.answer)
        return {
            "another word first": guess(other, task.answer),
            "a word that is refused first": guess("zzzzz", task.answer),
            "capital letters": guess(f" {task.answer.upper()} "),
        }
