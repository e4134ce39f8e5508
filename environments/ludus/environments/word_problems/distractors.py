"""Sentences with numbers that have nothing to do with the question.

They are about people, places and times that the rest of the problem never mentions, so no reader can take them for a
part of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ludus.environments.word_problems.story import Story, clock, dollars

PLACES: Final = ("bakery", "library", "museum", "post office", "swimming pool", "town hall", "cinema", "bookstore")

Distractor = Callable[[Story], str]

DISTRACTORS: Final[tuple[Distractor, ...]] = (
    lambda story: f"{story.person()}, a cousin of {story.hero}, is {story.between(21, 79)} years old.",
    lambda story: f"The nearest {story.pick(PLACES)} is {story.between(12, 95) * 10} meters from {story.hero}'s home.",
    lambda story: f"The {story.pick(PLACES)} in town was opened in {story.between(1890, 2015)}.",
    lambda story: f"The {story.pick(PLACES)} in town closes at {clock(15 * story.between(64, 84))}.",
    lambda story: f"{story.person()}, a neighbor, paid {dollars(25 * story.between(30, 290))} for lunch last week.",
    lambda story: f"It is {story.between(12, 31)} degrees Celsius outside.",
    lambda story: f"{story.hero}'s house number is {story.between(13, 480)}.",
    lambda story: (
        f"{story.person()}, a neighbor, owns {story.between(12, 240)} books and reads {story.between(13, 90)} pages "
        "a day."
    ),
    lambda story: f"Last month, {story.hero} slept about {story.between(6, 8)} hours a night.",
    lambda story: f"The radio plays a song that lasts {story.between(150, 330)} seconds.",
    lambda story: (
        f"{story.hero}'s dog weighs {story.between(4, 38)} kilograms and eats {story.between(150, 700)} grams of "
        "food a day."
    ),
    lambda story: f"{story.hero} once read that a blue whale can weigh {story.between(90, 150)} tons.",
    lambda story: (
        f"A friend of {story.hero} was number {story.between(11, 480)} in a race of {story.between(5, 42)} kilometers."
    ),
    lambda story: f"The {story.pick(PLACES)} in town has a discount of {story.between(1, 6) * 5} percent on Sundays.",
    lambda story: (
        f"{story.person()}, a relative of {story.hero}, lives {story.between(25, 400)} kilometers away, which is "
        f"{story.between(3, 9)} hours by bus."
    ),
)
"""Ways to make such a sentence."""
