"""The configuration of a run: one TOML file, with one table per class here and in `config_learning`.

`ludus.trainer.core.settings` reads the file and applies `--section.key=value` from the command line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, FilePath, model_validator

from ludus.client.mix.policy import MixPolicy, TaskBand, check_stages
from ludus.forms.tool_calls import TextFormatName
from ludus.harnesses import NAMES
from ludus.trainer.core.config_base import Count, Positive, Rate, Seconds, Section, Share
from ludus.trainer.core.config_learning import AdvantageConfig, DpoConfig, LossConfig, OptimizerConfig, SftConfig


class LoraConfig(Section):
    """Train a low-rank adapter instead of all weights (Hu et al., 2106.09685)."""

    rank: Positive = 16
    """Rank of the update."""
    alpha: Rate = 32.0
    """Scale: the update is multiplied by alpha / rank."""
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    """Names of the linear layers that get an adapter."""


class TinyConfig(Section):
    """The model that `--tiny-from` makes."""

    hidden: Positive = 128
    """The width: a multiple of twice `heads`."""
    layers: Positive = 2
    """The number of layers."""
    heads: Positive = 4
    """The number of query heads; half as many hold keys and values."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.hidden % (2 * self.heads):
            raise ValueError(f"hidden ({self.hidden}) must be a multiple of twice the heads ({self.heads})")
        return self


class ModelConfig(Section):
    """The policy."""

    path: str
    """A folder in Hugging Face format, or a name on the Hugging Face hub."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """The dtype of the forward and backward pass and of the engines' weights. Master weights are always float32."""
    attention: Literal["auto", "sdpa", "flex", "flash"] = "auto"
    """How packed sequences attend: `sdpa` per sequence, `flex` as one block-diagonal kernel, `flash` with flash-attn.
    `auto` takes flash where it is installed, flex on a GPU, and sdpa on a CPU."""
    chat_template: FilePath | None = None
    """A Jinja file to use instead of the tokenizer's own template."""
    checkpoint_activations: bool = False
    """Recompute each layer's activations in the backward pass instead of keeping them."""
    compile: bool = False
    """Compile the layers with torch.compile."""
    lora: LoraConfig | None = None
    """Train only a LoRA adapter."""
    tiny: TinyConfig = TinyConfig()
    """The size of the model that `--tiny-from` makes in the run's folder; no meaning for other models."""


class CurriculumConfig(TaskBand):
    """The choice of tasks by pass rate: prefer tasks of medium difficulty."""

    difficulty: FilePath | None = None
    """Pass rates measured before the run (`ludus calibrate --difficulty`). They count as outcomes of the tasks, so the
    run starts with tasks in the band and does not have to find them first."""


class StageConfig(Section):
    """One stage of a curriculum: a split to use until the mean reward of its episodes is high enough."""

    split: str
    """The split of this stage."""
    until: Share = 0.8
    """The next stage begins when the mean reward of the last `window` episodes reaches this value."""
    window: Positive = 256
    """The number of episodes in that mean."""


class EnvironmentConfig(Section):
    """An environment to learn from, on a running server."""

    url: str
    """The server: `http://…`, `ws://…`, or any other address that `ludus.client.connect` accepts."""
    name: str | None = None
    """The environment's name on the server. Optional if the server has only one environment."""
    label: str | None = None
    """Its label in metrics; the environment's name when left out. Required when two entries have the same name."""
    wire: Literal["auto", "channel", "mcp", "ors"] = "auto"
    """The transport to use; `auto` tries the channel, MCP and ORS."""
    token_variable: str | None = None
    """The environment variable that holds the bearer token. Tokens do not belong in files."""
    split: str = "train"
    """The split to learn from."""
    weight: Rate = 1.0
    """Its share of the groups, relative to the other environments' weights; `mix` may change it during the run."""
    stage: Positive = 1
    """Its stage, for `mix.kind = "stages"`."""
    success_at: float | None = None
    """The lowest reward that counts as a pass for `curriculum` and `mix`; `evaluation.threshold` when left out."""
    curriculum: CurriculumConfig | None = None
    """Prefer tasks of medium difficulty (`tasks/sample` with a pass-rate band, `outcomes/report`)."""
    stages: tuple[StageConfig, ...] = ()
    """Splits to use one after the other, in order of difficulty. If set, `split` is not used."""
    secrets: dict[str, str] = Field(default_factory=dict)
    """The secrets of each episode: name → environment variable that holds the value."""


class RolloutConfig(Section):
    """How episodes are run."""

    groups: Positive = 8
    """Groups that one optimizer step learns from."""
    group_size: Annotated[int, Field(ge=2)] = 8
    """Episodes of each group (G)."""
    min_scored: Annotated[int, Field(ge=2)] = 2
    """The minimum number of scored episodes in a group. A group with fewer is dropped and replaced by another."""
    staleness: Count = 1
    """How many optimizer steps older an episode's first weights may be than the weights that it trains (S). 0 is
    synchronous: rollouts wait for the update, and the update waits for rollouts."""
    concurrency: Positive = 256
    """The maximum number of open episodes."""
    max_turns: Positive = 20
    """The maximum number of the policy's turns in one episode."""
    max_tokens: Positive = 512
    """The maximum number of tokens sampled in one turn."""
    context: Positive = 4096
    """The maximum number of tokens of prompt, turns and observations together; see `context_overflow`."""
    context_overflow: Literal["stop", "truncate_oldest", "summarize"] = "stop"
    """What to do when the context is full. `stop` ends the episode as truncated. `truncate_oldest` drops the oldest
    turns; `summarize` lets the policy write a summary of them first. Both continue in a new training sample, so every
    token is trained on as it was sampled."""
    turn_seconds: Seconds = 300.0
    """The time limit of one turn of the policy; a longer turn truncates the episode. Weight updates do not count."""
    episode_seconds: Seconds = 1800.0
    """The time limit of an episode; a longer episode is truncated. Weight updates do not count."""
    straggler_seconds: Seconds = 60.0
    """How long a group waits for its last episodes once half of them have ended; twice the time that this half took
    if that is longer. After that, episodes that still run are truncated and those that cannot be closed are left out;
    `min_scored` decides whether the group is used."""
    retries: Count = 2
    """How many more episodes may be run in place of one that failed."""
    drop_zero_variance: bool = True
    """Drop groups whose rewards are all the same, and run others instead."""
    max_dropped_groups: Positive = 64
    """How many groups in a row may be dropped (failed or constant; for one environment: failed) before the run stops
    and reports the reasons."""
    tool_calls: Literal["auto"] | TextFormatName = "auto"
    """The format in which the model writes tool calls; `auto` detects it from the chat template."""
    harness: str | None = None
    """A program that plays the episodes instead of the trainer's own loop, with the policy behind a gateway as its
    model: `command PROGRAM …` runs once per episode, `worker PROGRAM …` plays many; they are trusted code, see
    docs/gateway.md. Or an agent program that `ludus harness install` has installed, such as `codex`, in a sandbox."""
    harness_variables: dict[str, str] = Field(default_factory=dict)
    """Further environment variables of the harness: name → environment variable that holds the value."""
    harness_override: tuple[str, ...] = ()
    """Fields of the harness's requests that are ignored instead of refused, such as `stop` or `tool_choice`."""
    harness_side_calls: Literal["mask", "keep"] = "mask"
    """Whether to learn from model calls that are no part of the play, such as those for a title of the conversation:
    without tools, never continued, and their words used in no later call."""
    harness_idle_seconds: Seconds = 300.0
    """The longest time without a model call; after it the harness counts as broken and the episode as failed."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.harness is not None and self.harness.partition(" ")[0] not in ("command", "worker", *NAMES):
            raise ValueError(
                f'harness = "{self.harness}" must begin with `command ` or `worker `, or name one of {", ".join(NAMES)}'
            )
        if self.harness is not None and self.context_overflow != "stop":
            raise ValueError(
                f'context_overflow = "{self.context_overflow}" is for the trainer\'s own loop; a harness shortens its '
                "context itself"
            )
        if self.min_scored > self.group_size:
            raise ValueError(f"min_scored ({self.min_scored}) must not be more than group_size ({self.group_size})")
        return self


class SelfPlayConfig(Section):
    """Matches in environments with seats: who plays the seats that the policy does not learn from."""

    mode: Literal["self", "pool"] = "self"
    """`self`: the policy plays all seats of a match and learns from each. `pool`: it plays one seat, and frozen
    snapshots of it, which are not learned from, play the others."""
    seats: tuple[str, ...] = ()
    """The seats that the policy takes against others, drawn for each group; all when empty."""
    scripted: dict[str, Share] = Field(default_factory=dict)
    """The environment's scripted opponents that take the other seats in a share of the groups: strength → share."""
    current: Share = 0.0
    """For `pool`: the share of the groups in which the policy plays all seats, as with `self`."""
    size: Positive = 8
    """The most snapshots in the pool. A new one takes the place of the oldest."""
    every: Positive = 10
    """Steps between two snapshots. The first one is the policy before the first step."""
    draw: Literal["uniform", "recent", "pfsp"] = "pfsp"
    """How a snapshot is drawn: all alike, one of the three newest, or by the policy's win rate x against each, with the
    weight (1 - x)² (prioritized fictitious self-play; Vinyals et al. 2019, doi:10.1038/s41586-019-1724-z)."""
    evaluate_scripted: tuple[str, ...] | None = None
    """The scripted opponents of evaluations; all that the environment has when left out."""
    evaluate_pool: Count = 2
    """The number of snapshots to evaluate against: the first policy, and then the newest ones."""

    @model_validator(mode="after")
    def _shares(self) -> Self:
        if self.mode == "self" and self.current:
            raise ValueError('current is for mode = "pool"; with "self" the policy plays all seats anyway')
        if (total := sum(self.scripted.values()) + self.current) > 1:
            raise ValueError(f"the shares of scripted and current add up to {total:g}; at most 1 is possible")
        return self


class ChainsConfig(Section):
    """Chains of tasks in environments with worlds: each task begins with the state that the one before it left. A group
    is one chain, and each of its samples plays in a branch of one world."""

    credit: Literal["to_go", "chain", "task"] = "to_go"
    """The rewards of a chain that count for an episode, which is compared with those of the same task in the other
    samples: its own and those of later tasks (`to_go`; GPOMDP, Baxter and Bartlett 2001, doi:10.1613/jair.806), those
    of all tasks (`chain`), or only its own (`task`), which does not teach to leave a good state to later tasks."""


class TorchEngineConfig(Section):
    """The embedded engine."""

    slots: Positive = 64
    """Sequences decoded at once."""
    cache_tokens: Positive = 262_144
    """The size of the key-value cache in tokens, for all slots and kept prefixes together."""


class VllmEngineConfig(Section):
    """The vLLM servers."""

    urls: tuple[str, ...] = ()
    """Running servers, each `http://host:port`. Leave empty to start one with `launch`."""
    launch: bool = False
    """Start `vllm serve` for the run and stop it afterwards."""
    command: str = "vllm"
    """The program that `launch` runs."""
    arguments: tuple[str, ...] = ()
    """Further arguments for it, such as `--data-parallel-size=4`."""
    variables: dict[str, str] = Field(default_factory=dict)
    """Environment variables for it."""
    port: int | None = None
    """The port of the launched server; a free port when left out."""
    sync: Literal["nccl", "file", "lora"] = "nccl"
    """How weights are sent: broadcast over NCCL; files in a shared folder; versioned LoRA adapters."""
    folder: Path | None = None
    """The shared folder of `file` and `lora`; inside the run's own folder when left out."""
    clear_cache: bool = True
    """Recompute running requests' cached keys and values with the new weights. False is faster and keeps the old ones
    for tokens sampled before the update; the returned log-probabilities are correct either way."""
    master_address: str = "127.0.0.1"
    """The trainer's address as the servers see it, for NCCL."""
    start_seconds: Seconds = 600.0
    """The maximum time for a server to become ready."""
    request_seconds: Seconds = 300.0
    """The maximum time for one answer."""
    sync_seconds: Seconds = 300.0
    """The maximum time for one weight update."""


class CanaryConfig(Section):
    """The check after every weight update that engine and learner compute the same probabilities."""

    tokens: Annotated[int, Field(ge=2)] = 64
    """The number of tokens that are compared."""
    tolerance: Rate | None = None
    """The maximum mean difference of log-probabilities, in nats. When left out, it is four times the difference in the
    first check of the run (at least 1e-4 for float32 and 1e-2 for bfloat16); that first difference may be at most 1e-3
    for float32 and 0.1 for bfloat16."""


class EngineConfig(Section):
    """The inference engine that samples."""

    kind: Literal["torch", "vllm"] = "torch"
    """`torch` runs in this process, `vllm` on servers."""
    torch: TorchEngineConfig = TorchEngineConfig()
    """The embedded engine."""
    vllm: VllmEngineConfig = VllmEngineConfig()
    """The vLLM servers."""
    canary: CanaryConfig = CanaryConfig()
    """The check of probabilities."""


class ParallelConfig(Section):
    """Ranks under torchrun: replicate × shard = world size."""

    replicate: Positive = 1
    """Copies of the sharded model (HSDP)."""
    shard: int = -1
    """Ranks that share one copy (FSDP2); -1 uses all remaining ranks."""


class CheckpointConfig(Section):
    """Saving and resuming."""

    every: Count = 50
    """Steps between checkpoints; 0 saves only at the end and on SIGTERM."""
    keep: Positive = 2
    """How many of the newest checkpoints to keep."""
    resume: bool = True
    """Resume from the newest checkpoint in the run's folder, if there is one."""
    export: bool = True
    """Write the final policy in Hugging Face format."""


class EvaluationConfig(Section):
    """Evaluations on held-out tasks."""

    every: Count = 50
    """Steps between evaluations; 0 evaluates only before the first and after the last step."""
    split: str = "test"
    """The split of held-out tasks in each environment."""
    tasks: Positive = 64
    """Tasks of each environment, always the same ones."""
    samples: Positive = 1
    """Episodes per task (n); pass@k and pass^k are reported for every power of two k ≤ n."""
    threshold: float = 1.0
    """The lowest reward that counts as success."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    """The sampling temperature; 0 is greedy."""
    first: bool = True
    """Evaluate before the first step."""
    persistent: bool = False
    """Repeat the evaluation before the first step with a policy that does not give up: a turn without a tool call is
    sampled again, up to 16 times. `evaluation/<label>/persistent/…` then shows how much of a later gain is only
    persistence. Environments that grade a final message are left out."""


class LoggingConfig(Section):
    """Where metrics go. `metrics.jsonl` and `rollouts.jsonl` in the run's folder are always written."""

    console: bool = True
    """Show a live table in the terminal, or print lines where there is no terminal."""
    tensorboard: bool = False
    """Write event files into the run's folder."""
    wandb: str | None = None
    """The Weights & Biases project."""
    mlflow: str | None = None
    """The MLflow experiment."""
    trackio: str | None = None
    """The trackio project."""
    report: bool = True
    """Write `report.html` at every evaluation and at the end."""
    rollouts: Count = 4
    """The number of whole rollouts of each step to keep in `rollouts.jsonl`."""


class TrainConfig(Section):
    """A run."""

    output: Path
    """The run's folder: metrics, checkpoints, report, final model."""
    steps: Count = 100
    """Optimizer batches to learn from. 0 does the warm-up only."""
    max_idle_steps: Count = 10
    """The run stops after this many steps in a row in which all episodes earned the same. Unless that is the most
    there is, it did not learn: the last line and the exit code say so. 0 goes on."""
    plateau: Count = 0
    """The run ends when the rewards have reached no new height for this many steps; 0 goes on to the last step."""
    seed: Count = 0
    """The seed of everything random: initial order, tasks, episodes and sampling."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """The device of the learner and the torch engine."""
    threads: Positive | None = None
    """Threads of torch on the CPU; torch's default when left out."""
    model: ModelConfig
    """The policy."""
    environments: Annotated[tuple[EnvironmentConfig, ...], Field(min_length=1)]
    """The environments to learn from."""
    mix: MixPolicy = MixPolicy()
    """How the environments share the groups. `--mix FILE` takes this table and the environments from a mix file."""
    rollouts: RolloutConfig = RolloutConfig()
    """How episodes are run."""
    self_play: SelfPlayConfig | None = None
    """Self-play in environments with seats. When left out, the policy plays the first seat against scripts."""
    chains: ChainsConfig | None = None
    """Chains of tasks in environments with worlds. When left out, each task is played alone, in a world of its own."""
    engine: EngineConfig = EngineConfig()
    """The inference engine that samples."""
    advantages: AdvantageConfig = AdvantageConfig()
    """How rewards become advantages."""
    loss: LossConfig = LossConfig()
    """The loss to minimize."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """AdamW, and how the batch is split."""
    sft: SftConfig | None = None
    """Supervised warm-up."""
    dpo: DpoConfig | None = None
    """Preference warm-up, after `sft`."""
    parallel: ParallelConfig = ParallelConfig()
    """Ranks."""
    checkpoints: CheckpointConfig = CheckpointConfig()
    """Saving and resuming."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """Evaluations on held-out tasks."""
    logging: LoggingConfig = LoggingConfig()
    """Where metrics go."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.mix.kind == "stages":
            check_stages([environment.stage for environment in self.environments])
        if self.rollouts.harness is not None and self.evaluation.persistent:
            raise ValueError("evaluation.persistent is for the trainer's own loop and not for a harness")
        if self.self_play is not None:
            self._check_self_play()
        if self.chains is not None and self.advantages.credit == "monte_carlo":
            raise ValueError('chains exclude advantages.credit = "monte_carlo": an episode in a world cannot be forked')
        if self.advantages.credit == "monte_carlo":
            if self.rollouts.harness is not None:
                raise ValueError(
                    'advantages.credit = "monte_carlo" is for the trainer\'s own loop and not for a harness'
                )
            if self.rollouts.concurrency < 2:
                raise ValueError(
                    'advantages.credit = "monte_carlo" opens forks next to their episode: rollouts.concurrency must be '
                    "at least 2"
                )
        return self

    def _check_self_play(self) -> None:
        """Raise `ValueError` if a setting cannot be combined with `self_play`."""
        if self.rollouts.harness is not None:
            raise ValueError("self_play is for the trainer's own loop and not for a harness")
        if self.advantages.credit == "monte_carlo":
            raise ValueError('self_play excludes advantages.credit = "monte_carlo": a match cannot be forked')
        pool = self.self_play is not None and self.self_play.mode == "pool"
        if pool and self.engine.kind == "vllm" and self.engine.vllm.sync != "lora":
            raise ValueError('self_play.mode = "pool" with vLLM needs engine.vllm.sync = "lora"')
        if self.mix.kind != "fixed" or any(
            environment.curriculum or environment.stages for environment in self.environments
        ):
            raise ValueError(
                "self_play excludes curriculum, stages and mixes that follow results: what a match earns depends on "
                "the opponent and not only on the task"
            )
