"""The configuration of a run: one TOML file, one table per class here, and no field that does nothing.

`ludus.trainer.settings` reads it and takes `--section.key=value` from the command line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(gt=0)]


class Section(BaseModel):
    """A table of the configuration; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)


class LoraConfig(Section):
    """Train a low-rank adapter instead of all weights (Hu et al., 2106.09685)."""

    rank: Positive = 16
    """Rank of the update."""
    alpha: Rate = 32.0
    """Scale: the update is multiplied by alpha / rank."""
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    """Names of the linear layers that get an adapter."""


class ModelConfig(Section):
    """The policy."""

    path: str
    """A folder in Hugging Face format, or a name on the Hugging Face hub."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """What forward and backward compute in, and what engines are given. Master weights are always float32."""
    attention: Literal["auto", "sdpa", "flex", "flash"] = "auto"
    """How packed sequences attend: `sdpa` per sequence, `flex` as one block-diagonal kernel, `flash` with flash-attn.
    `auto` takes flash where it is installed, flex on a GPU, and sdpa on a CPU."""
    chat_template: Path | None = None
    """A Jinja file in place of the tokenizer's own template."""
    checkpoint_activations: bool = False
    """Compute each layer's activations again in the backward pass instead of keeping them."""
    compile: bool = False
    """Compile the layers with torch.compile."""
    lora: LoraConfig | None = None
    """Train an adapter only."""


class CurriculumConfig(Section):
    """Which tasks to play: those that are sometimes won."""

    low: Share = 0.2
    """Least pass rate of a task for it to be asked for again."""
    high: Share = 0.8
    """Greatest pass rate."""
    explore: Share = 0.5
    """The share of groups played on tasks of unknown pass rate."""
    difficulty: Path | None = None
    """Pass rates measured before the run (`ludus calibrate --difficulty`). They count as outcomes of the tasks, so the
    run begins with tasks in the band instead of looking for them."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low ({self.low}) must be less than high ({self.high})")
        return self


class StageConfig(Section):
    """One stage of a curriculum: a split, until its episodes succeed often enough."""

    split: str
    """The split played in this stage."""
    until: Share = 0.8
    """The next stage begins when the mean reward of the last `window` episodes reaches this."""
    window: Positive = 256
    """Episodes that the mean is taken over."""


class EnvironmentConfig(Section):
    """An environment to learn from, on a server that runs already."""

    url: str
    """The server: `http://…`, `ws://…`, or what else `ludus.client.connect` takes."""
    name: str | None = None
    """The environment's name there; may be left out when the server has only one."""
    label: str | None = None
    """What metrics call it; its name when left out. Needed when two entries have one name."""
    wire: Literal["auto", "channel", "mcp", "ors"] = "auto"
    """The wire to take; `auto` prefers the channel."""
    token_variable: str | None = None
    """The environment variable that holds the bearer token. Tokens do not belong in files."""
    split: str = "train"
    """The split to learn from."""
    weight: Rate = 1.0
    """Its share of the groups, relative to the other environments' weights."""
    curriculum: CurriculumConfig | None = None
    """Prefer tasks of medium difficulty (`tasks/sample` with a pass-rate band, `outcomes/report`)."""
    stages: tuple[StageConfig, ...] = ()
    """Staged difficulty: splits in turn; `split` is then not used."""
    secrets: dict[str, str] = Field(default_factory=dict)
    """Given to each episode: name → environment variable that holds the value."""


class RolloutConfig(Section):
    """How episodes are played."""

    groups: Positive = 8
    """Groups that one optimizer step learns from."""
    group_size: Annotated[int, Field(ge=2)] = 8
    """Episodes of each group (G)."""
    min_scored: Annotated[int, Field(ge=2)] = 2
    """Scored episodes that a group must have at least; with fewer it is dropped and another one played."""
    staleness: Count = 1
    """How many optimizer steps an episode's first weights may be older than those it trains (S). 0 is synchronous:
    rollouts wait for the update, and the update waits for rollouts."""
    concurrency: Positive = 256
    """Episodes open at once."""
    max_turns: Positive = 20
    """Turns of the policy in one episode."""
    max_tokens: Positive = 512
    """Tokens sampled in one turn."""
    context: Positive = 4096
    """Tokens of prompt, turns and observations together; what happens then is `context_overflow`."""
    context_overflow: Literal["stop", "truncate_oldest", "summarize"] = "stop"
    """`stop` ends the episode as truncated. `truncate_oldest` drops the oldest turns, `summarize` lets the policy write
    a summary of them first; both continue in a new training sample, so every token is trained on as it was sampled."""
    turn_seconds: Seconds = 300.0
    """Longest time for one turn of the policy; a longer one truncates the episode. Weight updates do not count."""
    episode_seconds: Seconds = 1800.0
    """Longest time for an episode; afterwards it is truncated. Weight updates do not count."""
    straggler_seconds: Seconds = 60.0
    """How long a group waits for its last episodes once half of them are over, or twice as long as that half took if
    that is more. Those that are still played then are truncated; those that cannot be closed are left out, and
    `min_scored` decides whether the group is used."""
    retries: Count = 2
    """Further episodes in the place of one that failed."""
    drop_zero_variance: bool = True
    """Leave out groups whose rewards are all the same, and play others instead."""
    patience: Positive = 64
    """Groups in a row that may be dropped (failed or constant; of one environment: failed) before the run stops with
    the reasons."""
    tool_calls: Literal["auto", "hermes", "llama", "pythonic"] = "auto"
    """How the model writes tool calls; `auto` tells it from the chat template."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.min_scored > self.group_size:
            raise ValueError(f"min_scored ({self.min_scored}) must not be more than group_size ({self.group_size})")
        return self


class TorchEngineConfig(Section):
    """The embedded engine."""

    slots: Positive = 64
    """Sequences decoded at once."""
    cache_tokens: Positive = 262_144
    """Tokens of key-value cache, all slots and kept prefixes together."""


class VllmEngineConfig(Section):
    """vLLM servers."""

    urls: tuple[str, ...] = ()
    """Servers that run already, each `http://host:port`. Empty: start one with `launch`."""
    launch: bool = False
    """Start `vllm serve` for the run and stop it afterwards."""
    command: str = "vllm"
    """The program that `launch` runs."""
    arguments: tuple[str, ...] = ()
    """Further arguments for it, such as `--data-parallel-size=4`."""
    variables: dict[str, str] = Field(default_factory=dict)
    """Environment variables for it."""
    port: int | None = None
    """Where the launched server listens; a free port when left out."""
    sync: Literal["nccl", "file", "lora"] = "nccl"
    """How weights travel: broadcast over NCCL; files in a folder that both see; versioned LoRA adapters."""
    folder: Path | None = None
    """The shared folder of `file` and `lora`; inside the run's own when left out."""
    clear_cache: bool = True
    """Recompute running requests' cached keys and values with the new weights. False is faster and keeps the old ones
    for what was sampled before; the returned log-probabilities are right either way."""
    master_address: str = "127.0.0.1"
    """The trainer's address as the servers see it, for NCCL."""
    start_seconds: Seconds = 600.0
    """Longest wait for a server to become ready."""
    request_seconds: Seconds = 300.0
    """Longest wait for one answer."""
    sync_seconds: Seconds = 300.0
    """Longest wait for one weight update."""


class CanaryConfig(Section):
    """The check after every weight update that engine and learner compute the same probabilities."""

    tokens: Annotated[int, Field(ge=2)] = 64
    """Length of the probe."""
    tolerance: Rate | None = None
    """Greatest mean difference of log-probabilities, in nats. When left out it is four times what the first check of
    the run finds (at least 1e-4 for float32 and 1e-2 for bfloat16), and that may be 1e-3 and 0.1 at most."""


class EngineConfig(Section):
    """What samples."""

    kind: Literal["torch", "vllm"] = "torch"
    """`torch` runs in this process, `vllm` on servers."""
    torch: TorchEngineConfig = TorchEngineConfig()
    """The embedded engine."""
    vllm: VllmEngineConfig = VllmEngineConfig()
    """vLLM."""
    canary: CanaryConfig = CanaryConfig()
    """The check of probabilities."""


class AdvantageConfig(Section):
    """How rewards become advantages; formulas in `ludus.trainer.learning.advantages`."""

    baseline: Literal["mean", "leave_one_out", "none"] = "mean"
    """What is subtracted from an episode's reward: the mean of its group, the mean of the others of its group
    (RLOO), or nothing."""
    scale: Literal["none", "group", "batch", "mean"] = "none"
    """What it is divided by: nothing (Dr.GRPO), the group's standard deviation (GRPO), that of all tokens of the step
    (REINFORCE++), the group's mean (MaxRL)."""
    ddof: Literal[0, 1] = 1
    """Of the standard deviation: 1 is the unbiased estimate."""
    epsilon: Annotated[float, Field(ge=0)] = 1e-6
    """Added to the divisor."""
    credit: Literal["episode", "step"] = "episode"
    """`episode` gives every token the episode's advantage; `step` gives a turn's tokens the rewards of that turn and
    later ones, compared within the group turn by turn."""
    discount: Share = 1.0
    """Of later turns' rewards, for `step`."""


class LossConfig(Section):
    """What is minimized; formulas in `ludus.trainer.learning.losses`."""

    kind: Literal["ppo", "gspo", "cispo", "reinforce", "dppo"] = "ppo"
    """The policy loss: PPO-clip (GRPO, DAPO, Dr.GRPO), sequence-level ratio (GSPO), clipped weights (CISPO),
    plain policy gradient (RLOO), clip by probability difference (DPPO-TV)."""
    aggregation: Literal["token", "sequence", "constant"] = "token"
    """The mean over all tokens of the step (DAPO), over each episode's tokens and then episodes (GRPO), or the sum
    divided by `episodes × constant` (Dr.GRPO)."""
    constant: Positive | None = None
    """The divisor of `constant`; `rollouts.context` when left out."""
    clip_low: Annotated[float, Field(ge=0)] = 0.2
    """The ratio is clipped below 1 - clip_low. For `dppo`, how much the probability may fall."""
    clip_high: Annotated[float, Field(ge=0)] = 0.28
    """The ratio is clipped above 1 + clip_high; for `cispo` it is the cap itself, and 5 is usual. For `dppo`, how much
    the probability may rise."""
    dual_clip: Annotated[float, Field(gt=1)] | None = None
    """Bound of the loss for negative advantages (c), as multiple of the advantage; none when left out."""
    old_policy: Literal["behavior", "proximal"] = "behavior"
    """What the ratio is taken against: the engine's own probabilities (two policies, one forward pass less), or the
    learner's at the start of the step (decoupled PPO), corrected by `correction`."""
    correction: Literal["none", "decoupled", "tis", "tis_sequence", "mis", "icepop"] = "none"
    """The weight proximal / behavior, for `old_policy = "proximal"`: as it is per token, truncated per token or per
    sequence, masked per sequence, masked per token."""
    correction_low: Annotated[float, Field(ge=0)] = 0.0
    """Weights below it count as 0, for `mis` and `icepop`."""
    correction_high: Rate = 2.0
    """The cap of `tis`, or above which `mis` and `icepop` count 0."""
    kl: Literal["none", "k1", "k2", "k3"] = "none"
    """Estimator of the divergence from the reference, which is the model as it was loaded."""
    kl_weight: Annotated[float, Field(ge=0)] = 1e-3
    """Its weight in the loss."""
    entropy_weight: float = 0.0
    """Weight of the entropy bonus."""
    truncated: Literal["keep", "mask"] = "keep"
    """Whether tokens of truncated episodes count in the loss. They vote in the baseline either way."""
    overlong: Count = 0
    """DAPO's soft punishment: within this many tokens of `rollouts.context` the reward falls linearly, to 1 less."""

    @model_validator(mode="after")
    def _meant(self) -> Self:
        if self.kind == "cispo" and self.clip_high < 1:
            raise ValueError(f"for cispo, clip_high ({self.clip_high}) is the cap of the ratio itself, and 5 is usual")
        if self.correction != "none" and self.old_policy == "behavior":
            raise ValueError(f'correction = "{self.correction}" needs old_policy = "proximal"')
        return self


class OptimizerConfig(Section):
    """AdamW, and how the batch is cut."""

    learning_rate: Rate = 1e-6
    """At its height."""
    warmup: Count = 0
    """Steps of linear increase at the beginning."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """What follows: constant, or down to 0 at the last step."""
    betas: tuple[float, float] = (0.9, 0.95)
    """Decay of the first and second moment."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Decoupled weight decay of matrices."""
    clip_gradient: Rate = 1.0
    """Greatest norm of the gradient."""
    tokens: Positive = 16_384
    """Tokens of one packed micro-batch, at most (a longer sample is alone)."""
    logprob_chunk: Positive = 2_048
    """Tokens whose logits exist at once."""
    epochs: Positive = 1
    """Passes over each batch."""
    minibatches: Positive = 1
    """Optimizer steps per pass; each takes whole groups."""


class SftConfig(Section):
    """Supervised warm-up before the first rollout."""

    demonstrations: tuple[Path, ...] = ()
    """Files of trajectories (`ludus run --out`); those with a reward of at least `reward` are learned from."""
    own_groups: Count = 0
    """Groups of own rollouts to play and filter in the same way (rejection sampling), with the demonstrations."""
    reward: float | None = None
    """Least reward; None learns from all that did not fail."""
    steps: Positive = 100
    """Optimizer steps."""
    batch: Positive = 32
    """Episodes in each."""
    learning_rate: Rate = 1e-5
    """Of AdamW; its other settings are those of `optimizer`."""


class DpoConfig(Section):
    """Direct preference optimization (2305.18290) before the first rollout."""

    trajectories: tuple[Path, ...]
    """Files of trajectories; in each task, an episode of higher reward is preferred to one of lower reward."""
    beta: Rate = 0.1
    """Strength of the reference."""
    margin: Annotated[float, Field(ge=0)] = 0.0
    """Least difference of rewards for a pair."""
    steps: Positive = 100
    """Optimizer steps."""
    batch: Positive = 16
    """Pairs in each."""
    learning_rate: Rate = 1e-6
    """Of AdamW."""


class ParallelConfig(Section):
    """Ranks under torchrun: replicate × shard × tensor = world size."""

    replicate: Positive = 1
    """Copies of the sharded model (HSDP)."""
    shard: int = -1
    """Ranks that share one copy (FSDP2); -1 takes what is left."""
    tensor: Positive = 1
    """Ranks that share each layer."""


class CheckpointConfig(Section):
    """Saving and resuming."""

    every: Count = 50
    """Steps between checkpoints; 0 saves only at the end and on SIGTERM."""
    keep: Positive = 2
    """Newest checkpoints kept."""
    resume: bool = True
    """Go on from the newest checkpoint in the run's folder, if there is one."""
    export: bool = True
    """Write the final policy in Hugging Face format."""


class EvaluationConfig(Section):
    """Held-out tasks, played now and then."""

    every: Count = 50
    """Steps between evaluations; 0 evaluates only before the first and after the last step."""
    split: str = "test"
    """The split, of each environment."""
    tasks: Positive = 64
    """Tasks of each environment, always the same ones."""
    samples: Positive = 1
    """Episodes per task (n); pass@k and pass^k are told for every power of two k ≤ n."""
    threshold: float = 1.0
    """The least reward that counts as success."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    """Of sampling; 0 is greedy."""
    first: bool = True
    """Whether to evaluate before the first step."""
    persistent: bool = False
    """Whether the evaluation before the first step is repeated with the policy kept from giving up: a turn without a
    tool call is sampled again, up to 16 times. `evaluation/<label>/persistent/…` then shows how much of a later gain
    is only persistence. Environments that grade a final message are left out."""


class LoggingConfig(Section):
    """Where metrics go. `metrics.jsonl` and `rollouts.jsonl` in the run's folder are always written."""

    console: bool = True
    """A live table in the terminal, or lines where there is none."""
    tensorboard: bool = False
    """Event files in the run's folder."""
    wandb: str | None = None
    """The Weights & Biases project."""
    mlflow: str | None = None
    """The MLflow experiment."""
    trackio: str | None = None
    """The trackio project."""
    report: bool = True
    """Write `report.html` at every evaluation and at the end."""
    rollouts: Count = 4
    """Whole rollouts of each step to keep in `rollouts.jsonl`."""


class TrainConfig(Section):
    """A run."""

    output: Path
    """The run's folder: metrics, checkpoints, report, final model."""
    steps: Count = 100
    """Optimizer batches to learn from. 0 does the warm-up only."""
    seed: Count = 0
    """Of everything random: initial order, tasks, episodes and sampling."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the learner and the torch engine compute."""
    threads: Positive | None = None
    """Threads of torch on the CPU; torch's own choice when left out."""
    model: ModelConfig
    """The policy."""
    environments: Annotated[tuple[EnvironmentConfig, ...], Field(min_length=1)]
    """What to learn from."""
    rollouts: RolloutConfig = RolloutConfig()
    """How episodes are played."""
    engine: EngineConfig = EngineConfig()
    """What samples."""
    advantages: AdvantageConfig = AdvantageConfig()
    """How rewards become advantages."""
    loss: LossConfig = LossConfig()
    """What is minimized."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """AdamW, and how the batch is cut."""
    sft: SftConfig | None = None
    """Supervised warm-up."""
    dpo: DpoConfig | None = None
    """Preference warm-up, after `sft`."""
    parallel: ParallelConfig = ParallelConfig()
    """Ranks."""
    checkpoints: CheckpointConfig = CheckpointConfig()
    """Saving and resuming."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """Held-out tasks."""
    logging: LoggingConfig = LoggingConfig()
    """Where metrics go."""
