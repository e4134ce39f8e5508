"""`ludus demos`: episodes to learn from, played now or recorded before, in the form that a trainer reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final, Literal

import typer

from ludus.checks.disclosure import Key, private_leaves
from ludus.checks.imitation import Demonstrations
from ludus.cli import playing as _playing
from ludus.cli import policies
from ludus.cli.common import (
    TARGET_HELP,
    EnvironmentName,
    Token,
    client_of,
    console,
    find_environment,
    is_local,
    run,
    shown,
)
from ludus.cli.dataset_files import FileKind, whole_file
from ludus.cli.episodes import print_report, stored_episodes
from ludus.client import TrajectoryWriter, read_trajectories, rollout
from ludus.client.demonstrations import Imitation, Report, Selection, pair_rows
from ludus.common.heap import settle_heap
from ludus.evaluation import ProgressBar
from ludus.evaluation.playing import collect
from ludus.protocol.episodes import EnvironmentInfo
from ludus.protocol.errors import EveryAttemptFailed, InvalidParams
from ludus.protocol.trajectory import Trajectory
from ludus.validation.core.local_environments import LocalEnvironments
from ludus.validation.core.oracle import DemonstratorPolicy, OraclePolicy

DemoPolicy = Annotated[
    str | None,
    typer.Option("--policy", "-p", help=f"{policies.POLICIES} By default the demonstrator or else the oracle."),
]
"""The option for who plays."""

COMMANDS: Final = {"demos": "Record episodes to learn from, or select them from files: demonstrations and pairs."}

Form = Literal["trajectories", "sft", "pairs"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demos", help=COMMANDS["demos"])(demos)


def demos(
    target: Annotated[
        str | None, typer.Argument(metavar="TARGET", help=f"{TARGET_HELP} Left out with --from.", show_default=False)
    ] = None,
    environment: EnvironmentName = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File to write; games.jsonl, sft.jsonl or pairs.jsonl by default."),
    ] = None,
    form: Annotated[
        Form,
        typer.Option(
            "--form",
            help="`trajectories` is what `ludus train` reads; `sft` has `messages` and `tools`; `pairs` has `prompt`, "
            "`chosen`, `rejected` and `tools`, of one task each.",
        ),
    ] = "trajectories",
    to: Annotated[
        FileKind | None, typer.Option("--to", help="Kind of file; by the name of --out by default.", show_default=False)
    ] = None,
    stored: Annotated[
        list[Path] | None,
        typer.Option("--from", help="Play nothing: take these trajectories (JSON lines). Repeatable.", dir_okay=False),
    ] = None,
    split: Annotated[str | None, typer.Option("--split", "-s", help="Split; the first one by default.")] = None,
    n: Annotated[int, typer.Option("-n", help="How many tasks, at most.", min=1)] = 500,
    samples: Annotated[int, typer.Option("--samples", help="Episodes per task.", min=1)] = 1,
    policy: DemoPolicy = None,
    model: policies.Model = None,
    base_url: policies.BaseUrl = None,
    api_key: policies.ApiKey = None,
    temperature: policies.Temperature = None,
    max_tokens: policies.MaxTokens = None,
    option: policies.RequestOption = None,
    source: _playing.Source = None,
    reward: Annotated[
        float | None,
        typer.Option(
            "--reward",
            help="Keep only episodes with at least this reward; all scored ones by default. For pairs, that of the "
            "better one.",
        ),
    ] = None,
    longest: Annotated[
        int | None, typer.Option("--longest", help="Most characters of an episode's conversation.", min=1)
    ] = None,
    without_errors: Annotated[
        bool, typer.Option("--without-errors", help="Leave out episodes in which a call failed.")
    ] = False,
    keep_duplicates: Annotated[
        bool, typer.Option("--keep-duplicates", help="Keep episodes that say exactly what an earlier one says.")
    ] = False,
    held_out: Annotated[
        bool, typer.Option("--held-out", help="Allow splits that are not for training, such as test.")
    ] = False,
    margin: Annotated[float, typer.Option("--margin", help="Least difference of rewards in a pair.", min=0)] = 0.0,
    length_ratio: Annotated[
        float | None,
        typer.Option("--length-ratio", help="Leave out pairs whose lengths differ by more than this factor.", min=1),
    ] = None,
    same_seed: Annotated[bool, typer.Option("--same-seed", help="Pair only episodes of one seed.")] = False,
    overwrite: _playing.Overwrite = False,
    concurrency: _playing.Concurrency = 16,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of the episodes and of a random policy.")] = None,
    max_turns: _playing.MaxTurns = 200,
    token: Token = None,
) -> None:
    """Record episodes to learn from: those of the environment's demonstrator or oracle, or good ones of another policy.

    Unscored episodes, repetitions and splits that are not for training are left out, and each row names where it is
    from. Demonstrations must sometimes win: exits with 1 when no kept episode earned more than 0 or there is no pair,
    and with 5 when no episode was scored. A note says when calls have values that nothing had shown before.

    [bold]ludus demos my_env.py:MyEnv --out games.jsonl[/bold]
    [bold]ludus demos my_env.py:MyEnv --policy random --samples 20 --reward 1 --form sft --out sft.parquet[/bold]
    [bold]ludus demos --from played.jsonl --from games.jsonl --form pairs --margin 0.5[/bold]
    """
    options = dict(locals())
    _check(options)
    names: dict[Form, str] = {"trajectories": "games", "sft": "sft", "pairs": "pairs"}
    kind: FileKind = to or ("parquet" if out is not None and out.suffix == ".parquet" else "jsonl")
    path = out or Path(f"{names[form]}.{kind}")
    if path.exists() and path.stat().st_size > 0 and not overwrite:
        raise typer.BadParameter(f"{path} exists; say --overwrite or another --out")
    work = _Work(form, path, kind, options)
    if stored:
        work.write(stored_episodes(stored, "--from"))
    else:
        assert target is not None
        work.play(target)
    work.print()
    if form == "trajectories" and target is not None:
        where = f"--environments.0.url={target}"
        if is_local(target):
            from ludus.validation.core.local_environments import source_of

            where = f"--serve {source_of(target)}"  # which serves the variant, too
        console.print(shown(f"To train on them: ludus train --tiny-from {path} {where}"), soft_wrap=True)


def _check(options: Mapping[str, Any]) -> None:
    """Refuse options that do not go together.

    Raises:
        BadParameter: two of them do not.
    """
    form, stored = options["form"], options["stored"]
    if bool(stored) == (options["target"] is not None):
        raise typer.BadParameter("name an environment or a server's address to play, or --from a file of trajectories")
    if form == "trajectories" and (options["to"] == "parquet" or str(options["out"]).endswith(".parquet")):
        raise typer.BadParameter("trajectories are JSON lines; Parquet needs --form sft or pairs")
    pairing = {
        "--margin": options["margin"],
        "--length-ratio": options["length_ratio"],
        "--same-seed": options["same_seed"],
    }
    if form != "pairs" and (given := [name for name, value in pairing.items() if value]):
        raise typer.BadParameter(f"{', '.join(given)} is for --form pairs")
    playing = {"ENV": options["environment"], "--split": options["split"], "--seed": options["seed"]}
    if stored and (given := [name for name, value in playing.items() if value is not None]):
        raise typer.BadParameter(f"--from plays nothing; leave out {', '.join(given)}")


class _Work:
    """The selection of episodes, and what is said of it."""

    def __init__(self, form: Form, path: Path, kind: FileKind, options: dict[str, Any]) -> None:
        self.form: Form = form
        self.path = path
        self.kind: FileKind = kind
        self.options = options
        self.report = Report()
        self.wins = 0
        self.demonstrations = Demonstrations()
        self.local: LocalEnvironments | None = None

    def selection(self, info: EnvironmentInfo | None = None) -> Selection:
        """Return which episodes to keep."""
        given = self.options
        training = None if info is None else frozenset(split.name for split in info.splits if split.type == "train")
        return Selection(
            reward=given["reward"], characters=given["longest"], failed_calls=not given["without_errors"],
            held_out=given["held_out"], duplicates=given["keep_duplicates"], training_splits=training,
        )  # fmt: skip

    def write(self, episodes: Iterable[Trajectory], info: EnvironmentInfo | None = None) -> None:
        """Write the kept ones of recorded episodes."""
        chosen = self.selection(info)
        if self.form == "trajectories":
            imitation = Imitation(chosen, self.report)
            with _playing.writer_of(self.path, self.options["overwrite"]) as writer:
                for episode in episodes:
                    if imitation.keeps(episode):
                        self._count(episode)
                        writer.write(episode)
            return
        with whole_file(self.path, self.kind) as write:
            if self.form == "sft":
                imitation = Imitation(chosen, self.report)
                for episode in episodes:
                    if (row := imitation.row(episode)) is not None:
                        self._count(episode)
                        write(row)
            else:
                pairing = {name: self.options[name] for name in ("margin", "length_ratio", "same_seed")}
                for row in pair_rows(episodes, chosen, self.report, **pairing):
                    self.wins += 1
                    write(row)

    def play(self, target: str) -> None:
        """Play the episodes and write the kept ones. Trajectories are written as they end.

        Raises:
            EveryAttemptFailed: every attempt failed for the same reason.
            InvalidParams: the split is not for training.
        """
        whole = self.form == "trajectories"
        with TemporaryDirectory(prefix="ludus-demos-") as folder:
            file = self.path if whole else Path(folder) / "played.jsonl"
            with _playing.interruptible(file if whole else None, resumable=False):
                info, stopped = run(self._played(target, file))
            if not whole and stopped is None:
                self.write(read_trajectories(file), info)
        if stopped is not None:
            raise stopped

    async def _played(self, target: str, file: Path) -> tuple[EnvironmentInfo, EveryAttemptFailed | None]:
        given: dict[str, Any] = self.options | {"source": self.options["source"] or _playing.source_of_target(target)}
        given |= {"turn_seconds": None, "episode_seconds": None, "policy": given["policy"] or "oracle"}
        choice, harness = policies.PolicyChoice.of(given), _playing.harness_of(given)
        async with AsyncExitStack() as stack:
            chosen = await stack.enter_async_context(choice.open())
            settle_heap()
            client = await stack.enter_async_context(client_of(target, given["token"], "auto"))
            info = find_environment(await client.environments(), given["environment"], target)
            _playing.check_policy(chosen, info.name)
            if isinstance(chosen, OraclePolicy):
                self.local = LocalEnvironments(*([given["source"]] if given["source"] else ()))
                if self.options["policy"] is None and DemonstratorPolicy(self.local).defined(info.name):
                    chosen = DemonstratorPolicy(self.local)
            split = given["split"] or info.splits[0].name
            _check_split(info, split, held_out=given["held_out"])
            writer: TrajectoryWriter = stack.enter_context(_playing.writer_of(file, given["overwrite"]))
            bar = stack.enter_context(ProgressBar())
            stream = rollout(
                client.environment(info.name), chosen, split=split, n=given["n"], samples=given["samples"],
                seed=given["seed"], concurrency=given["concurrency"], harness=harness, on_progress=bar,
                stop_after_same_failure=_playing.SAME_ATTEMPTS,
            )  # fmt: skip
            imitation = Imitation(self.selection(info), self.report)

            def keep(trajectory: Trajectory) -> bool:
                if kept := imitation.keeps(trajectory):
                    self._count(trajectory)
                return kept

            played = await collect(stream, writer, keep if self.form == "trajectories" else None)
            return info, played.stopped

    def _count(self, episode: Trajectory) -> None:
        """Count an episode that is kept."""
        self.wins += (episode.value or 0.0) > 0
        self.demonstrations.add(episode)

    def _private(self, environment: str, key: Key) -> list[tuple[str, str]]:
        """Return the private values of a task, if the environment's class is known here."""
        if self.local is None:
            return []
        return [(path, value) for _, path, value in private_leaves(self.local.task(environment, *key))]

    def print(self) -> None:
        """Print what was kept and left out.

        Raises:
            Exit: with 1, if there is nothing to learn from.
        """
        report = self.report
        if self.form == "pairs":
            line = f"{self.path}: {report.rows:,} pairs of {report.episodes:,} episodes"
        else:
            line = f"{self.path}: {report.rows} of {report.episodes} episodes kept, {self.wins} with a reward above 0"
        console.print(shown(line), soft_wrap=True)
        print_report(report)
        if (remark := self.demonstrations.remark(self._private)) is not None:
            console.print(shown(f"note: {remark}"), soft_wrap=True)
        if self.wins:
            return
        advice = (
            "There is no pair: no task has two episodes whose rewards differ enough. Play more --samples with a policy "
            "that wins sometimes, or lower --margin."
            if self.form == "pairs"
            else "Demonstrations must sometimes win, because training learns from differences. Use the environment's "
            "oracle, a better policy, more --samples, or easier tasks."
        )
        console.print(shown(advice))
        raise typer.Exit(1)


def _check_split(info: EnvironmentInfo, split: str, *, held_out: bool) -> None:
    """Check that a split is for training.

    Raises:
        InvalidParams: it is not, and that is not allowed.
    """
    found = next((one for one in info.splits if one.name == split), None)
    if found is not None and found.type != "train" and not held_out:
        raise InvalidParams(
            f"the split {split!r} of {info.name!r} is for {found.type}, and what is learned from it can no longer be "
            "measured there; choose another --split, or say --held-out"
        )
