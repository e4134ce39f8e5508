"""The tables of a configuration that say how the policy learns: advantages, loss, optimizer and warm-up."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, FilePath, model_validator

from ludus.trainer.core.config_base import Count, Positive, Rate, Section, Share


class MonteCarloConfig(Section):
    """How the values of states are estimated, for `advantages.credit = "monte_carlo"` (VinePPO, 2410.01679)."""

    continuations: Positive = 4
    """How many times the policy plays on from a fork of each state (K). The state's value is their mean return."""
    branch_points: Positive | None = None
    """The maximum number of states of an episode that are valued, in addition to its start and its end; all when left
    out. They are spread evenly over `rollouts.max_turns`, so an episode that ends earlier has fewer. The turns between
    two of them have one advantage."""
    train: bool = False
    """Learn from the continuations as well: those of one state are compared with each other as a group is."""


class AdvantageConfig(Section):
    """How rewards become advantages; formulas in `ludus.trainer.learning.advantages`."""

    baseline: Literal["mean", "leave_one_out", "none"] = "mean"
    """The baseline to subtract from an episode's reward: the mean of its group, the mean of the other episodes of its
    group (RLOO), or nothing."""
    scale: Literal["none", "group", "batch", "mean"] = "none"
    """The divisor of the result: none (Dr.GRPO), the group's standard deviation (GRPO), the standard deviation over all
    tokens of the step (REINFORCE++), or the group's mean (MaxRL)."""
    credit: Literal["episode", "step", "monte_carlo"] = "episode"
    """`episode` gives every token the episode's advantage; `step` gives a turn's tokens the rewards of that turn and
    later ones, compared within the group turn by turn. `monte_carlo` gives them what the turn earned plus the change in
    the state's value, which forks of the episode estimate; for environments that can be forked. It has no use for
    `baseline`, because the value is the baseline."""
    discount: Share = 1.0
    """The discount of later turns' rewards, for `step` and `monte_carlo`."""
    monte_carlo: MonteCarloConfig = MonteCarloConfig()
    """How values are estimated."""

    @model_validator(mode="after")
    def _meaningful(self) -> Self:
        if self.credit == "monte_carlo" and self.scale in ("group", "mean"):
            raise ValueError(
                f'scale = "{self.scale}" compares whole episodes; for credit = "monte_carlo" use "none" or "batch"'
            )
        return self


class LossConfig(Section):
    """The loss to minimize; formulas in `ludus.trainer.learning.losses`."""

    kind: Literal["ppo", "gspo", "cispo", "reinforce", "dppo"] = "ppo"
    """The policy loss: PPO-clip (GRPO, DAPO, Dr.GRPO), sequence-level ratio (GSPO), clipped weights (CISPO),
    plain policy gradient (RLOO), clip by probability difference (DPPO-TV)."""
    aggregation: Literal["token", "sequence", "constant"] = "token"
    """How token losses are combined: the mean over all tokens of the step (DAPO), the mean over each episode's tokens
    and then over episodes (GRPO), or the sum divided by `episodes × constant` (Dr.GRPO)."""
    constant: Positive | None = None
    """The divisor of `constant`; `rollouts.context` when left out."""
    clip_low: Annotated[float, Field(ge=0)] = 0.2
    """The ratio is clipped below 1 - clip_low. For `dppo`, how much the probability may fall."""
    clip_high: Annotated[float, Field(ge=0)] = 0.28
    """The ratio is clipped above 1 + clip_high; for `cispo` this value is the cap itself, usually 5. For `dppo`, how
    much the probability may rise."""
    dual_clip: Annotated[float, Field(gt=1)] | None = None
    """The bound of the loss for negative advantages (c), as a multiple of the advantage; no bound when left out."""
    old_policy: Literal["behavior", "proximal"] = "behavior"
    """The denominator of the ratio: the engine's own probabilities (two policies, one forward pass less), or the
    learner's at the start of the step (decoupled PPO), corrected by `correction`."""
    correction: Literal["none", "decoupled", "tis", "tis_sequence", "mis", "icepop"] = "none"
    """The weight proximal / behavior, for `old_policy = "proximal"`: unchanged per token (`decoupled`), truncated per
    token (`tis`) or per sequence (`tis_sequence`), masked per sequence (`mis`) or per token (`icepop`)."""
    correction_low: Annotated[float, Field(ge=0)] = 0.0
    """For `mis` and `icepop`: lower weights count as 0."""
    correction_high: Rate = 2.0
    """The cap of `tis` and `tis_sequence`; for `mis` and `icepop`, higher weights count as 0."""
    kl: Literal["none", "k2", "k3"] = "none"
    """Estimator of the divergence from the reference: the model as it was loaded, or the policy as the warm-up (`sft`,
    `dpo`) left it."""
    kl_weight: Annotated[float, Field(ge=0)] = 1e-3
    """The weight of that divergence in the loss."""
    entropy_weight: float = 0.0
    """The weight of the entropy bonus."""
    min_entropy: Annotated[float, Field(ge=0)] = 0.0
    """The lowest entropy of the policy, in nats, at a token that counts in the policy loss. With more than 0, the
    policy learns only where it has a choice (forking tokens, 2506.01939, there the fifth of all tokens with the highest
    entropy). The divergence and the entropy bonus are of all tokens."""
    truncated: Literal["keep", "mask"] = "keep"
    """Whether tokens of truncated episodes count in the loss. These episodes count in the baseline either way."""
    overlong: Count = 0
    """DAPO's soft penalty: within this many tokens of `rollouts.context` the reward falls linearly, by 1 at most."""

    @model_validator(mode="after")
    def _meant(self) -> Self:
        if self.kind == "cispo" and self.clip_high < 1:
            raise ValueError(f"for cispo, clip_high ({self.clip_high}) is the cap of the ratio itself, and 5 is usual")
        if self.correction != "none" and self.old_policy == "behavior":
            raise ValueError(f'correction = "{self.correction}" needs old_policy = "proximal"')
        return self


class OptimizerConfig(Section):
    """AdamW, and how the batch is split."""

    learning_rate: Rate = 1e-6
    """The peak learning rate."""
    warmup: Count = 0
    """Steps of linear increase at the beginning."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """The learning rate after the warm-up: constant, or decreasing to 0 at the last step."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Decay of the first and second moment."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled weight decay of matrices."""
    clip_gradient: Rate = 1.0
    """The maximum norm of the gradient."""
    tokens: Positive = 16_384
    """The maximum number of tokens of one packed micro-batch (a longer sample gets its own)."""
    logprob_chunk: Positive = 2_048
    """The number of tokens whose logits exist at once."""
    epochs: Positive = 1
    """Passes over each batch."""
    minibatches: Positive = 1
    """Optimizer steps per pass; each takes whole groups."""


class SftConfig(Section):
    """Supervised warm-up before the first rollout."""

    demonstrations: tuple[FilePath, ...] = ()
    """Files of trajectories (`ludus run --out`). Trajectories with a reward of at least `reward` are used."""
    own_groups: Count = 0
    """Groups of the policy's own rollouts to run and filter in the same way (rejection sampling), in addition to the
    demonstrations."""
    reward: float | None = None
    """The lowest reward of an episode to learn from; None uses all episodes that did not fail."""
    held_out: bool = False
    """Allow episodes of splits that are not for training, such as test."""
    steps: Positive = 100
    """Optimizer steps, at most."""
    until: float | None = None
    """End the warm-up when the policy's own episodes, played after every 20 steps, have at least this mean reward; None
    takes all `steps`."""
    batch: Positive = 32
    """Episodes in each step."""
    learning_rate: Rate = 1e-5
    """The learning rate of AdamW; its other settings are those of `optimizer`."""


class DpoConfig(Section):
    """Direct preference optimization (2305.18290) before the first rollout."""

    trajectories: tuple[FilePath, ...]
    """Files of trajectories; in each task, an episode of higher reward is preferred to one of lower reward."""
    beta: Rate = 0.1
    """Strength of the reference."""
    held_out: bool = False
    """As in `sft`."""
    margin: Annotated[float, Field(ge=0)] = 0.0
    """The minimum difference of rewards in a pair."""
    steps: Positive = 100
    """Optimizer steps."""
    batch: Positive = 16
    """Pairs in each step."""
    learning_rate: Rate = 1e-6
    """The learning rate of AdamW."""
