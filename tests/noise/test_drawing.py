"""Which steps noise disturbs, and how: decided by the seed only, without text that the environment did not write."""

from __future__ import annotations

from collections import Counter
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ludus.protocol import ImageBlock, NoiseKind, StepResult, TextBlock, text_of
from ludus.protocol.errors import AuthoringError
from ludus.server import Noise
from ludus.server.tasks.noisy import parse_noise

TEXTS = st.text(st.characters(codec="utf-8"), max_size=300)


def kinds_of(noise: Noise, noise_key: str = "7", steps: int = 400) -> list[str | None]:
    hits = [noise.draw(noise_key, step) for step in range(1, steps + 1)]
    return [None if hit is None else hit.kind for hit in hits]


def test_noise_depends_on_its_seed_the_episode_and_the_step_alone() -> None:
    noise = Noise(rate=0.3)
    assert kinds_of(noise) == kinds_of(Noise(rate=0.3))
    assert kinds_of(noise) != kinds_of(Noise(rate=0.3, seed=1))
    assert kinds_of(noise) != kinds_of(noise, noise_key="8")
    assert len(set(kinds_of(noise))) > 1


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.1, 0.5, 1.0])
def test_the_share_of_hit_steps_is_the_rate(rate: float) -> None:
    steps = 20_000
    share = sum(kind is not None for kind in kinds_of(Noise(rate=rate), steps=steps)) / steps
    assert abs(share - rate) <= 4 * (rate * (1 - rate) / steps) ** 0.5


def test_a_higher_rate_keeps_the_hits_of_a_lower_one() -> None:
    low, high = kinds_of(Noise(rate=0.1)), kinds_of(Noise(rate=0.2))
    kept = [(a, b) for a, b in zip(low, high, strict=True) if a is not None]
    assert kept
    assert all(a == b for a, b in kept)


def test_kinds_come_by_their_weights() -> None:
    counts = Counter(kinds_of(Noise(rate=1.0, kinds={"delay": 3.0, "truncation": 1.0, "tool_error": 0.0}), steps=8000))
    assert set(counts) == {"delay", "truncation"}
    assert abs(counts["delay"] / 8000 - 0.75) < 0.02


def test_an_answer_is_lost_only_where_that_was_asked_for() -> None:
    assert set(kinds_of(Noise(rate=1.0), steps=2000)) == {*get_args(NoiseKind)} - {"lost_answer"}


def told(kind: NoiseKind, text: str, seed: int) -> tuple[StepResult, StepResult]:
    hit = Noise(rate=1.0, kinds={kind: 1.0}, seed=seed).draw("7", 1)
    assert hit is not None
    result = StepResult(step=1, content=(TextBlock(text=text),))
    return result, hit.after(result)


@given(TEXTS, st.integers(0, 1000))
def test_flaky_output_shows_nothing_that_the_tool_did_not_say(text: str, seed: int) -> None:
    before, after = told("flaky_output", text, seed)
    (block,) = after.content
    assert isinstance(block, TextBlock)
    lines = text.split("\n")
    for line in block.text.split("\n"):
        assert any(
            len(line) == len(one) and all(a in (b, "#") for a, b in zip(line, one, strict=True)) for one in lines
        )
    assert (after is before) == (after.content == before.content)


@given(TEXTS, st.integers(0, 1000))
def test_truncation_shows_the_beginning_at_least_the_share_to_keep_and_says_that_it_cut(text: str, seed: int) -> None:
    before, after = told("truncation", text, seed)
    if not text:
        assert after is before
        return
    shown = "".join(block.text for block in after.content[:-1] if isinstance(block, TextBlock))
    assert text.startswith(shown)
    assert 0.3 * len(text) - 1 <= len(shown) < len(text)
    assert text_of(after.content[-1:]) == f"[observation cut: {len(shown)} of {len(text)} characters shown]"


@pytest.mark.parametrize("kind", ["truncation", "flaky_output"])
def test_an_answer_without_text_is_left_alone_or_left_out_and_never_garbled(kind: Any) -> None:
    image = ImageBlock.of(b"\x89PNG")
    for seed in range(20):
        hit = Noise(rate=1.0, kinds={kind: 1.0}, seed=seed).draw("7", 1)
        assert hit is not None
        content = hit.after(StepResult(step=1, content=(image,))).content
        assert content == (image,) or (kind == "truncation" and image not in content)


@pytest.mark.parametrize("seed", range(10))
def test_a_delay_stays_within_its_bounds(seed: int) -> None:
    hit = Noise(rate=1.0, kinds={"delay": 1.0}, delay_seconds=4.0, seed=seed).draw("7", 1)
    assert hit is not None
    assert 0.4 <= hit.seconds() <= 4.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": 1.1}, {"rate": -0.1}, {"rate": float("nan")}, {"kinds": ["fire"]}, {"kinds": {}}, {"kinds": []},
        {"kinds": {"delay": -1.0}}, {"kinds": {"delay": 0.0}}, {"kinds": {"delay": float("inf")}}, {"kinds": 3},
        {"kinds": {"delay": 1e308, "tool_error": 1e308}},
        {"delay_seconds": 0}, {"delay_seconds": 61}, {"keep": 1.0}, {"lines": 0}, {"seed": -1}, {"volume": 3},
    ],
)  # fmt: skip
def test_settings_out_of_bounds_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Noise(**wrong)


def test_settings_as_they_are_typed() -> None:
    assert parse_noise("rate=0.1,kinds=tool_error+delay,seed=3") == Noise(
        rate=0.1, kinds={"tool_error": 1.0, "delay": 1.0}, seed=3
    )
    assert parse_noise(' {"rate": 0.2, "kinds": {"delay": 2}, "per_episode": true}') == Noise(
        rate=0.2, kinds={"delay": 2.0}, per_episode=True
    )
    assert parse_noise("per_episode=true, delay_seconds = 0.5") == Noise(per_episode=True, delay_seconds=0.5)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("rat=0.1", "no setting 'rat'; there are: rate, kinds"),
        ("rate", "'rate' is no NAME=VALUE"),
        ("", "no NAME=VALUE"),
        ("rate=2", "rate: Input should be less than or equal to 1"),
        ("kinds=fire", "Input should be 'tool_error'"),
        ('{"rate":', "cannot be read"),
        ('{"kinds": [["delay"]]}', "kinds"),
    ],
)
def test_settings_that_cannot_be_read_are_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(AuthoringError, match="noise") as refusal:
        parse_noise(text)
    assert why in refusal.value.message
