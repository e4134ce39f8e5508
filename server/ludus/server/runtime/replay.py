"""Brings a new episode to the state of another one, by repeating its steps."""

from __future__ import annotations

from ludus.protocol.episodes import StepResult
from ludus.protocol.errors import Unsupported
from ludus.server.runtime.episode import Episode
from ludus.server.runtime.steps import StepRunner


async def repeat(runner: StepRunner, source: Episode, episode: Episode, upto: int) -> None:
    """Run the first `upto` steps of `source` in `episode`, with the same noise, and require the same observations.

    Raises:
        Unsupported: a step gave another observation, so the environment is not deterministic.
    """
    for record in (source.records or ())[:upto]:
        assert record.tool is not None
        key = f"fork/{record.number}"
        # A refused call with large arguments has only a digest left. No tool received it, so it is refused again as is.
        refused = record.outcome.error if record.digest is not None and isinstance(record.outcome, StepResult) else None
        again = runner.accept(episode, record.number, key, record.tool, record.arguments, record.turn, refused=refused)
        outcome = await again.wait()
        if not isinstance(record.outcome, StepResult) or outcome.content != record.outcome.content:
            name = episode.published.name
            raise Unsupported(
                f"repeating step {record.number} led elsewhere, so environment {name!r} is not deterministic; set "
                "`forkable = False`",
                environment=name,
            )
