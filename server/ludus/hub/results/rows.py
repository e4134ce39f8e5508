"""Episodes of runs, between the database and the wire."""

from __future__ import annotations

from datetime import datetime

from ludus.hub.database.result_tables import ResultEpisode
from ludus.registry.types.results import RunEpisode


def episode_row(run_id: int, row: RunEpisode, state: str, now: datetime) -> dict[str, object]:
    """Return the columns of a new episode."""
    ended = state == "ended"
    return {
        "run_id": run_id, "place": row.place, "task": row.task, "task_index": row.index, "sample": row.sample,
        "seed": row.seed, "state": state, "attempts": row.attempts, "reward": row.reward,
        "value": row.value if ended else None, "end": row.end if ended else None, "steps": row.steps,
        "ended_at": now if ended else None, "input_tokens": row.input_tokens, "output_tokens": row.output_tokens,
    }  # fmt: skip


def public_row(row: ResultEpisode, lowest: float) -> RunEpisode:
    """Return an episode as all may see it; one that has not ended counts `lowest`."""
    return RunEpisode(
        place=row.place, task=row.task, index=row.task_index, sample=row.sample, seed=row.seed, reward=row.reward,
        value=row.value if row.value is not None else lowest, end=row.end or row.state, steps=row.steps,
        attempts=row.attempts, input_tokens=row.input_tokens, output_tokens=row.output_tokens,
    )  # fmt: skip
