"""The client: connect to servers, run episodes and rollouts, and record, read and summarize trajectories.

Everything that a trainer or an evaluation needs is importable from here:

    from ludus.client import Call, connect, rollout_all, summarize

Errors are in `ludus.protocol.errors`, tool schemas for model providers in `ludus.client.formats`, and the blocking
client is in `ludus.client.sync`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ludus.common.lazy_names import lazy_names

if TYPE_CHECKING:
    from ludus.client.addresses import ServerAddress, TaskAddress
    from ludus.client.agent_loop import Harness, run_episode
    from ludus.client.branches import Branching
    from ludus.client.causes import Cause
    from ludus.client.chains import Chain, ChainTrajectory, rollout_chains, start_chains
    from ludus.client.client import Client
    from ludus.client.connecting import WireName, connect
    from ludus.client.driver import Driver, EpisodeOutcome, Observed
    from ludus.client.environment import GroupMember, Preview, RemoteEnvironment
    from ludus.client.episode import Episode, Group
    from ludus.client.matches import Match
    from ludus.client.policies.base import Conversation, EpisodePolicy, Policy, PolicyResult, StatefulPolicy, Turn
    from ludus.client.policies.openai import OpenAIPolicy
    from ludus.client.policies.providers import ProviderPolicy
    from ludus.client.policies.random_policy import RandomPolicy
    from ludus.client.rollouts import Progress, group_seed, rollout, rollout_all
    from ludus.client.summary import Summary, pass_at_k, pass_hat_k, summarize
    from ludus.client.trajectory_files import TrajectoryWriter, read_trajectories
    from ludus.client.transports.base import Wire, WireCapabilities
    from ludus.client.worlds import World
    from ludus.protocol.actions import Action, Answer, Call
    from ludus.protocol.content import Message, text_of
    from ludus.protocol.episodes import (
        Candidate,
        EnvironmentInfo,
        EpisodeInfo,
        EpisodeLimits,
        GradeResult,
        Outcome,
        StepResult,
        TaskRow,
        ToolSpec,
        TurnMark,
        WorldChoice,
    )
    from ludus.protocol.errors import LudusError
    from ludus.protocol.items import CallItem, OutputItem
    from ludus.protocol.rewards import Reward
    from ludus.protocol.trajectory import Branch, Failure, Trajectory, Usage

__all__ = [
    "Action",
    "Answer",
    "Branch",
    "Branching",
    "Call",
    "CallItem",
    "Candidate",
    "Cause",
    "Chain",
    "ChainTrajectory",
    "Client",
    "Conversation",
    "Driver",
    "EnvironmentInfo",
    "Episode",
    "EpisodeInfo",
    "EpisodeLimits",
    "EpisodeOutcome",
    "EpisodePolicy",
    "Failure",
    "GradeResult",
    "Group",
    "GroupMember",
    "Harness",
    "LudusError",
    "Match",
    "Message",
    "Observed",
    "OpenAIPolicy",
    "Outcome",
    "OutputItem",
    "Policy",
    "PolicyResult",
    "Preview",
    "Progress",
    "ProviderPolicy",
    "RandomPolicy",
    "RemoteEnvironment",
    "Reward",
    "ServerAddress",
    "StatefulPolicy",
    "StepResult",
    "Summary",
    "TaskAddress",
    "TaskRow",
    "ToolSpec",
    "Trajectory",
    "TrajectoryWriter",
    "Turn",
    "TurnMark",
    "Usage",
    "Wire",
    "WireCapabilities",
    "WireName",
    "World",
    "WorldChoice",
    "connect",
    "group_seed",
    "pass_at_k",
    "pass_hat_k",
    "read_trajectories",
    "rollout",
    "rollout_all",
    "rollout_chains",
    "run_episode",
    "start_chains",
    "summarize",
    "text_of",
]

_MODULES: Final = {
    "ludus.client.connecting": "WireName connect",
    "ludus.client.addresses": "ServerAddress TaskAddress",
    "ludus.client.agent_loop": "Harness run_episode",
    "ludus.client.branches": "Branching",
    "ludus.client.causes": "Cause",
    "ludus.client.chains": "Chain ChainTrajectory rollout_chains start_chains",
    "ludus.client.client": "Client",
    "ludus.client.driver": "Driver EpisodeOutcome Observed",
    "ludus.client.environment": "GroupMember Preview RemoteEnvironment",
    "ludus.client.episode": "Episode Group",
    "ludus.client.matches": "Match",
    "ludus.client.policies.base": "Conversation EpisodePolicy Policy PolicyResult StatefulPolicy Turn",
    "ludus.client.policies.openai": "OpenAIPolicy",
    "ludus.client.policies.providers": "ProviderPolicy",
    "ludus.client.policies.random_policy": "RandomPolicy",
    "ludus.client.rollouts": "Progress group_seed rollout rollout_all",
    "ludus.client.summary": "Summary pass_at_k pass_hat_k summarize",
    "ludus.client.trajectory_files": "TrajectoryWriter read_trajectories",
    "ludus.client.transports.base": "Wire WireCapabilities",
    "ludus.client.worlds": "World",
    "ludus.protocol.actions": "Action Answer Call",
    "ludus.protocol.content": "Message text_of",
    "ludus.protocol.episodes": (
        "Candidate EnvironmentInfo EpisodeInfo EpisodeLimits GradeResult Outcome StepResult TaskRow ToolSpec TurnMark "
        "WorldChoice"
    ),
    "ludus.protocol.errors": "LudusError",
    "ludus.protocol.items": "CallItem OutputItem",
    "ludus.protocol.rewards": "Reward",
    "ludus.protocol.trajectory": "Branch Failure Trajectory Usage",
}
"""The modules that define the public names."""

__getattr__ = lazy_names(globals(), _MODULES)


def __dir__() -> list[str]:
    return sorted(__all__)
