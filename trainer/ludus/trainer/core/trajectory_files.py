"""Read files of trajectories to learn from."""

from __future__ import annotations

from pathlib import Path

from ludus.client.demonstrations import latest_of_each_policy
from ludus.client.trajectory_files import read_trajectories
from ludus.protocol.errors import ParseError
from ludus.protocol.trajectory import Trajectory
from ludus.trainer.core.errors import ConfigError


def read_latest(path: Path) -> list[Trajectory]:
    """Return the last trajectory of each episode and policy in a file.

    Raises:
        ConfigError: the file does not exist, is not a file of trajectories, or holds several scored ones of an episode,
            of which all but the last would be lost.
    """
    try:
        trajectories, hidden = latest_of_each_policy(read_trajectories(path))
    except (OSError, ParseError) as error:
        raise ConfigError(f"trajectories cannot be read from {path}: {error}") from None
    if hidden:
        scored = hidden + sum(trajectory.scored for trajectory in trajectories)
        raise ConfigError(
            f"{path}: {hidden} of its {scored} scored episodes have the policy, the task and the number of a later "
            "one, as seats of one match do by default, so they would be left out. Play each with a number of its own "
            "(`run_episode(…, sample=number)`), or keep one of each"
        )
    return trajectories
