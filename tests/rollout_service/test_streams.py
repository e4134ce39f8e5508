"""What a caller gets: lines with exact tokens, each episode once, unscored ones apart."""

from __future__ import annotations

from typing import Any

import pytest
from rollout_clients import Endpoint, World
from token_endpoint import VERSION, digest_of, logprob_of


def check_exact(lines: list[dict[str, Any]], endpoint: Endpoint) -> None:
    """All samples are what the endpoint saw and sampled, token by token."""
    seen = set(endpoint.facts()["seen"])
    for line in lines:
        for sample in line["samples"]:
            lengths = {len(sample[name]) for name in ("ids", "mask", "logprobs", "versions", "turns")}
            assert lengths == {len(sample["ids"])}
            for place, (token, own) in enumerate(zip(sample["ids"], sample["mask"], strict=True)):
                expected = (logprob_of(token, place), int(VERSION)) if own else (0.0, -1)
                assert (sample["logprobs"][place], sample["versions"][place]) == expected
            ends = [at + 1 for at, own in enumerate(sample["mask"]) if own and sum(sample["mask"][at + 1 : at + 2]) == 0]
            assert len(ends) == max(sample["turns"]) + 1
            assert {digest_of(sample["ids"][:end]) for end in ends} <= seen


def test_a_request_is_answered_with_one_line_for_each_episode_and_a_last_line_with_counts(world: World) -> None:
    lines = world.service.play(world.request("mixed", n=4, samples=2))
    assert [line["line"] for line in lines] == list(range(9))
    *episodes, end = lines
    assert {line["type"] for line in episodes} == {"episode"}
    assert sorted(line["index"] for line in episodes) == list(range(8))
    assert all((line["group"], line["sample"]) == divmod(line["index"], 2) for line in episodes)
    assert {line["task"] for line in episodes} == {"sum-0", "sum-1", "sum-2", "sum-3"}
    assert len({(line["group"], line["seed"]) for line in episodes}) == 4, "a group has one seed"
    assert {line["reward"] for line in episodes} == {0.0, 1.0}
    counts = {"episodes": 8, "scored": 8, "unscored": 0, "canceled": 0, "attempts": 8}
    assert (end["type"], end["state"], end["counts"]) == ("end", "completed", counts)
    check_exact(episodes, world.endpoint)


@pytest.mark.parametrize("model", ["text", "blind", "changed"])
def test_an_endpoint_without_exact_tokens_is_refused_before_the_first_episode(model: str, world: World) -> None:
    from rollout_clients import Answer

    with pytest.raises(Answer) as refused:
        world.service.play(world.request(model))
    assert (refused.value.status, refused.value.kind) == (422, "Unsupported")
