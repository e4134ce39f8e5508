"""Applies noise to the calls of an environment; `ludus.server.authoring.noise` decides which calls, and how."""

from __future__ import annotations

import asyncio
from collections import Counter

from ludus.protocol.episodes import NoiseKind, StepResult
from ludus.server.authoring.noise import Noise, NoiseEvent
from ludus.server.execution.clock import current_clock
from ludus.server.runtime.episode import Call, Episode, StepRecord


def disturbed(call: Call, noise: Noise, counts: Counter[NoiseKind]) -> Call:
    """Wrap the call of a tool: disturb some calls, mark their results, and count them by kind.

    A call with wrong arguments is not disturbed, except by a delay, because the agent must see its mistake. Neither is
    the last call that the step limit allows, because no retry can follow it, nor the end of an episode.
    """

    async def disturb(episode: Episode, record: StepRecord) -> StepResult:
        last_step = episode.limits.max_steps
        event = noise.draw(episode.noise_key, record.number) if last_step is None or record.number < last_step else None
        if event is None:
            return await call(episode, record)
        if event.kind == "delay":
            _mark(record, event, counts)
            await _delay(episode, event.seconds())
            result = await call(episode, record)
        elif event.kind == "tool_error":
            assert record.tool is not None
            episode.tools[record.tool].arguments(record.arguments)
            _mark(record, event, counts)
            result = event.instead(record.number)
        else:
            original = await call(episode, record)
            result = original if original.ended else event.after(original)
            if result is original:
                return original
            record.original_result = original
            _mark(record, event, counts)
        return result.model_copy(update={"noise": event.kind})

    return disturb


def _mark(record: StepRecord, event: NoiseEvent, counts: Counter[NoiseKind]) -> None:
    record.noise = event.kind
    counts[event.kind] += 1


async def _delay(episode: Episode, seconds: float) -> None:
    """Wait before a call, and move its deadline by as much, but not past the episode's deadline."""
    clock = current_clock()
    assert clock is not None
    later = clock.deadline + seconds
    clock.move(later if episode.deadline is None else min(later, episode.deadline))
    await asyncio.sleep(seconds)
