"""Wordle: marks against a second implementation, hints of strict play, word lists, and what a game pays."""

from __future__ import annotations

import random
from collections import Counter
from importlib import resources
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.environments.wordle import Wordle
from ludus.environments.wordle.feedback import broken_hint, greens, mark, present
from ludus.environments.wordle.lists import ANSWER_FILES, allowed, answers, answers_of
from ludus.protocol import EndReason, text_of
from ludus.server import Difficulty
from ludus.server.authoring.procedural import SECRET_VARIABLE

NAME = "wordle"
EVERY_ANSWER = sorted(word for difficulty in ANSWER_FILES for word in answers(difficulty))
few_letters = st.text("abc", min_size=5, max_size=5)


def marks_by_crossing_out(guess: str, answer: str) -> str:
    """The rule as people apply it: cross out what is right, then look each other letter up in what is left."""
    left: list[str | None] = list(answer)
    marks = ["-"] * 5
    for i in range(5):
        if guess[i] == answer[i]:
            marks[i], left[i] = "G", None
    for i in range(5):
        if marks[i] == "-" and guess[i] in left:
            marks[i] = "Y"
            left[left.index(guess[i])] = None
    return "".join(marks)


@given(few_letters | st.sampled_from(EVERY_ANSWER), few_letters | st.sampled_from(EVERY_ANSWER))
def test_marks_agree_with_crossing_out(guess: str, answer: str) -> None:
    assert mark(guess, answer) == marks_by_crossing_out(guess, answer)


@given(few_letters, few_letters)
def test_no_letter_is_marked_more_often_than_it_occurs(guess: str, answer: str) -> None:
    marked = Counter(letter for letter, sign in zip(guess, mark(guess, answer), strict=True) if sign != "-")

    assert marked == Counter(guess) & Counter(answer)


@given(st.sampled_from(EVERY_ANSWER))
def test_only_the_answer_is_all_green(word: str) -> None:
    assert mark(word, word) == "GGGGG"
    assert all(mark(other, word) != "GGGGG" for other in EVERY_ANSWER[:50] if other != word)


@pytest.mark.parametrize(
    ("guess", "answer", "marks"),
    [
        ("speed", "erase", "Y-YY-"),
        ("eerie", "elate", "G---G"),
        ("llama", "label", "GYY--"),
        ("allay", "llama", "YGYY-"),
        ("sassy", "glass", "YY-G-"),
        ("crane", "crane", "GGGGG"),
        ("jumpy", "crane", "-----"),
    ],
)
def test_repeated_letters_are_marked_as_the_rules_say(guess: str, answer: str, marks: str) -> None:
    assert mark(guess, answer) == marks_by_crossing_out(guess, answer) == marks


@given(st.lists(few_letters, max_size=4), few_letters)
def test_the_answer_itself_never_breaks_a_hint(guesses: list[str], answer: str) -> None:
    history = [(guess, mark(guess, answer)) for guess in guesses]

    assert broken_hint(answer, history) is None


@given(st.lists(few_letters, min_size=1, max_size=4), few_letters, few_letters)
def test_what_breaks_no_hint_keeps_green_letters_and_all_known_ones(
    guesses: list[str], answer: str, candidate: str
) -> None:
    history = [(guess, mark(guess, answer)) for guess in guesses]
    keeps = all(candidate[i] == answer[i] for i in greens(history)) and not present(history) - Counter(candidate)

    assert (broken_hint(candidate, history) is None) == keeps


def test_there_are_enough_words_and_no_word_twice() -> None:
    lists = [answers(difficulty) for difficulty in ANSWER_FILES]
    guesses = (resources.files("ludus.environments.wordle") / "words" / "guesses.txt").read_text().split()
    words = [word for some in (*lists, guesses) for word in some]

    assert len(EVERY_ANSWER) >= 2000
    assert len(allowed()) >= 5000
    assert len(words) == len(set(words)) == len(allowed())
    assert all(len(word) == 5 and word.isascii() and word.isalpha() and word.islower() for word in words)
    assert all(list(some) == sorted(some) for some in (*lists, guesses))


def test_every_answer_belongs_to_exactly_one_split(load: Any) -> None:
    [wordle] = [cls for cls in load() if cls.__name__ == "Wordle"]
    dealt = [split.get(i).answer for split in wordle.splits.values() for i in range(split.count)]

    assert sorted(dealt) == EVERY_ANSWER


def test_the_order_of_the_tasks_reveals_nothing_about_their_words(load: Any) -> None:
    [wordle] = [cls for cls in load() if cls.__name__ == "Wordle"]
    for split in wordle.splits.values():
        words = [split.get(i).answer for i in range(split.count)]
        rising = sum(a < b for a, b in zip(words, words[1:], strict=False)) / (len(words) - 1)
        assert 0.4 < rising < 0.6


async def opened(player: Any, name: str = NAME, index: int = 0, seed: int = 0) -> tuple[str, str]:
    [episode] = await player.start(name, "train", index, seed=seed)
    return episode.episode, player.task(name, "train", index).answer


def others(answer: str, count: int) -> list[str]:
    return random.Random(answer).sample([word for word in EVERY_ANSWER if word != answer], count)


async def test_six_wrong_guesses_lose_and_do_not_tell_the_word(player: Any) -> None:
    episode, answer = await opened(player)
    results = [await player.step(episode, "guess", word=word) for word in others(answer, 6)]

    assert [result.ended for result in results] == [False] * 5 + [True]
    assert results[-1].end_reason is EndReason.COMPLETED
    assert "You lose" in text_of(results[-1].content)
    assert not any(answer in text_of(result.content).lower().replace(" ", "") for result in results)
    assert results[-1].metadata == {"answer": answer}
    total, _ = await player.rewards(episode)
    assert total.value < 5 / 32
    assert total.components["turns"].value == 6.0
    assert total.components["win"].value == 0.0


async def test_a_win_pays_one_whatever_came_before(player: Any) -> None:
    for index in range(60):
        episode, answer = await opened(player, index=index)
        for word in others(answer, index % 6):
            await player.step(episode, "guess", word=word)
        won = await player.step(episode, "guess", word=answer)
        total, _ = await player.rewards(episode)

        assert won.terminated
        assert total.value == 1.0
        assert total.components["greens"].value == 5.0
        assert total.components["yellows"].value == 5.0
        assert total.components["turns"].value == index % 6 + 1


async def test_the_observation_shows_letters_marks_and_guesses_left(player: Any) -> None:
    episode, answer = await opened(player)
    [word] = others(answer, 1)
    result = await player.step(episode, "guess", word=f" {word.upper()} ")

    marks = " ".join(marks_by_crossing_out(word, answer))
    assert text_of(result.content) == f"{' '.join(word.upper())}\n{marks}\nGuesses left: 5."


@pytest.mark.parametrize("word", ["", "tool", "sixsix", "zzzzz", "cr4ne", "crane slate", "ÀÉÎÕÜ"])
async def test_what_is_not_a_listed_word_costs_no_guess(player: Any, word: str) -> None:
    episode, answer = await opened(player)
    refused = await player.step(episode, "guess", word=word)
    next_one = await player.step(episode, "guess", word=others(answer, 1)[0])

    assert refused.error.code == "refused"
    assert refused.reward is None
    assert "Guesses left: 5." in text_of(next_one.content)


async def test_refused_guesses_alone_run_into_the_step_limit(player: Any) -> None:
    episode, _ = await opened(player)
    results = [await player.step(episode, "guess", word="zzzzz") for _ in range(20)]

    assert results[-1].end_reason is EndReason.STEP_LIMIT
    assert (await player.rewards(episode))[0].value == 0.0


async def test_strict_play_refuses_guesses_that_drop_a_hint(player: Any) -> None:
    episode, answer = await opened(player, "wordle-hard")
    first = next(word for word in EVERY_ANSWER if 0 < mark(word, answer).count("G") < 5)
    await player.step(episode, "guess", word=first)
    dropping = next(word for word in EVERY_ANSWER if not set(word) & set(answer))
    refused = await player.step(episode, "guess", word=dropping)

    assert "does not keep the hints: letter" in refused.error.message
    assert (await player.step(episode, "guess", word=answer)).reward.components["win"].value == 1.0


async def test_the_easy_variant_reveals_one_true_letter(player: Any) -> None:
    places = set()
    for seed in range(30):
        [episode] = await player.start("wordle-easy", "train", 3, seed=seed)
        answer = player.task("wordle-easy", "train", 3).answer
        [hint] = [line for line in text_of(episode.prompt[0].content).splitlines() if line.startswith("Hint: letter")]
        place, letter = int(hint.split()[2]), hint.split()[4].rstrip(".")
        places.add(place)
        assert answer[place - 1].upper() == letter
    assert len(places) > 2


async def test_random_words_rarely_win(player: Any) -> None:
    rng = random.Random(5)
    words = sorted(allowed())
    totals = []
    for index in range(200):
        episode, _ = await opened(player, index=index)
        while not (await player.step(episode, "guess", word=rng.choice(words))).ended:
            pass
        totals.append((await player.rewards(episode))[0].value)
    assert sum(totals) / len(totals) < 0.1


@pytest.mark.parametrize(("difficulty", "word"), [("easy", "table"), ("medium", "acrid"), ("hard", "umbra")])
def test_difficulty_is_how_common_the_word_is(difficulty: Difficulty, word: str) -> None:
    assert word in answers(difficulty)


def test_a_secret_draws_the_words_of_test_tasks_in_an_order_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    levels: tuple[Difficulty, ...] = ("easy", "medium", "hard")
    count = len(answers_of("test", levels))

    def drawn() -> list[tuple[str, str]]:
        tasks = [Wordle.load_task("test", index, levels) for index in range(count)]
        return [(task.id, task.answer) for task in tasks]

    monkeypatch.delenv(SECRET_VARIABLE, raising=False)
    public, training = drawn(), Wordle.load_task("train", 0, levels)
    orders = []
    for secret in ("nobody knows this", "another"):
        monkeypatch.setenv(SECRET_VARIABLE, secret)
        fresh = drawn()
        assert sorted(word for _, word in fresh) == sorted(word for _, word in public)
        assert sum(one[1] == other[1] for one, other in zip(public, fresh, strict=True)) < count / 20
        assert {id for id, _ in fresh}.isdisjoint(id for id, _ in public)
        assert not any("nobody" in id for id, _ in fresh)
        orders.append(fresh)
    assert orders[0] != orders[1]
    assert Wordle.load_task("train", 0, levels) == training
