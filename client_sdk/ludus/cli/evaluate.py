"""`ludus eval`: play models × environments × splits, and compare two evaluations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from ludus.cli import playing, policies
from ludus.cli.app import ExitCode
from ludus.cli.common import Json, client_of, errors, find_environment, parse_pairs, print_json, run, shown
from ludus.cli.evaluation_tables import show_comparison, show_results
from ludus.cli.hub_options import DEFAULT, HubAddress
from ludus.client import Policy
from ludus.common.heap import settle_heap
from ludus.evaluation.comparison import compare
from ludus.evaluation.config import EnvironmentSpec, EvaluationConfig, ModelSpec, parse_config, read_table
from ludus.evaluation.folder import RESULTS, read_results
from ludus.evaluation.matrix import OpenEnvironment, evaluate, token_of
from ludus.evaluation.models import open_model
from ludus.evaluation.progress import ProgressBar
from ludus.protocol.errors import InvalidParams, Unsupported
from ludus.protocol.evaluation import EvaluationResults
from ludus.viewing.evaluation import write_evaluation_page

COMMANDS: Final = {"eval": "Evaluate models on environments, and compare evaluations."}
REPORT: Final = "report.html"

PUBLISHERS: Final = "ludus.evaluations"
"""The group of entry points of modules that publish results: they have `register(app)`, which adds subcommands to
`ludus eval`, `published(to)`, which refuses a wrong `--submit`, and `upload`, which does what it asks for."""


class _Group(TyperGroup):
    """A group whose default command is `run`, so that `ludus eval FILE` is `ludus eval run FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Put `run` in front of arguments that name no command."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["run", *args]
        return super().parse_args(ctx, args)


evaluation = typer.Typer(cls=_Group, no_args_is_help=True, rich_markup_mode="rich")


def register(app: typer.Typer) -> None:
    """Add the command, with the subcommands of installed packages that publish results."""
    for entry in sorted(entry_points(group=PUBLISHERS), key=lambda entry: entry.name):
        entry.load().register(evaluation)
    app.add_typer(evaluation, name="eval", help=COMMANDS["eval"])


Config = Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Configuration in TOML.", dir_okay=False)]
Folder = Annotated[Path, typer.Option("--out", "-o", help="Folder for results.json and the trajectories.")]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "-m",
        help="WIRE:NAME or WIRE:NAME@URL, with a wire of openai, openai-responses, anthropic and google; or random, "
        "oracle, module:callable, file.py:callable. Repeatable.",
    ),
]
Environments = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        "-e",
        help="Environment to serve meanwhile (NAME, module:Class or file.py:Class), the address of a server, or "
        "NAME@ADDRESS for one environment of it. Repeatable.",
    ),
]
KeyVariable = Annotated[
    str | None,
    typer.Option(
        "--api-key-env", help="Environment variable with the key of the models; the provider's usual one by default."
    ),
]


Splits = Annotated[list[str] | None, typer.Option("--split", "-s", help="Split; repeatable. The first one by default.")]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=JSON", help="Further field of each request to a model; repeatable."),
]
Tasks = Annotated[int | None, typer.Option("-n", help="How many tasks of each split; all by default.", min=1)]
Samples = Annotated[int | None, typer.Option("--samples", help="Episodes per task; 1 by default.", min=1)]
Seed = Annotated[int | None, typer.Option("--seed", help="Seed of the episodes; 0 by default.", min=0)]
Concurrency = Annotated[int | None, typer.Option("--concurrency", "-c", help="Episodes at once; 16 by default.", min=1)]
Retries = Annotated[
    int | None, typer.Option("--retries", help="Further attempts after infrastructure failures; 2 by default.", min=0)
]
Attempts = Annotated[
    int | None,
    typer.Option("--attempts", help="How many times a request to a model is made if it fails; 5 by default.", min=1),
]
Patience = Annotated[
    float | None,
    typer.Option(
        "--patience",
        help="Seconds that the pauses of one request may take while its endpoint is too busy (HTTP 429); 600 by "
        "default.",
        min=0,
    ),
]
MaxTurns = Annotated[int | None, typer.Option("--max-turns", help="Turns in an episode; 200 by default.", min=1)]
SuccessAt = Annotated[
    float | None, typer.Option("--success-at", help="Reward that counts as success; the greatest one by default.")
]
Probes = Annotated[
    list[str] | None,
    typer.Option(
        "--probe",
        help="Contamination check: no-tools, truncated-prompt or no-tools-truncated-prompt. Repeatable.",
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Play only what --out does not hold yet.")]
Submit = Annotated[
    str | None,
    typer.Option(
        "--submit",
        metavar="OWNER/NAME@VERSION",
        help="Upload the results to the board of this published version, without the conversations.",
    ),
]
SubmitToken = Annotated[
    str | None, typer.Option("--hub-token", envvar="LUDUS_HUB_TOKEN", show_envvar=True, help="Token of the hub.")
]


@evaluation.command("run")
def eval_command(
    config: Config = None,
    out: Folder = Path("evaluation"),
    model: Models = None,
    env: Environments = None,
    split: Splits = None,
    api_key_env: KeyVariable = None,
    option: Options = None,
    n: Tasks = None,
    samples: Samples = None,
    seed: Seed = None,
    concurrency: Concurrency = None,
    retries: Retries = None,
    attempts: Attempts = None,
    patience: Patience = None,
    max_turns: MaxTurns = None,
    turn_seconds: playing.TurnSeconds = None,
    episode_seconds: playing.EpisodeSeconds = None,
    success_at: SuccessAt = None,
    probe: Probes = None,
    resume: Resume = False,
    keep_going: playing.KeepGoing = False,
    submit: Submit = None,
    hub: HubAddress = DEFAULT,
    hub_token: SubmitToken = None,
    as_json: Json = False,
) -> None:
    """Play models × environments × splits and report rewards, pass@k, pass^k, cost and contamination.

    The options override the configuration's fields; --model and --env replace its models and environments.

    Exits with 0 when every episode was played and scored, 1 when some were not, 5 when none was.
    """
    settings = _config(config, dict(locals()))
    # Before the episodes, which may take hours.
    publisher = None if submit is None else _publisher()
    if publisher is not None:
        publisher.published(submit)
    with playing.interruptible(out):
        results = run(_evaluate(settings, out, resume, keep_going))
    if as_json:
        print_json(results.model_dump(mode="json"))
    else:
        show_results(results)
    for problem in results.problems():
        errors.print(shown(problem), soft_wrap=True)
    write_evaluation_page(results, out / REPORT)
    errors.print(shown(f"results: {out / RESULTS}, {out / REPORT}"), soft_wrap=True)
    if publisher is not None:
        run(publisher.upload(results, out, submit, (), hub, hub_token))
    if code := _exit_code(results):
        raise typer.Exit(code)


def _publisher() -> Any:
    """Return the module that publishes results.

    Raises:
        Unsupported: no installed package does.
    """
    for entry in entry_points(group=PUBLISHERS):
        return entry.load()
    raise Unsupported("--submit: no installed package publishes results; the results are in the folder of --out")


@evaluation.command("compare")
def compare_command(
    a: Annotated[Path, typer.Argument(metavar="A", help="Folder or results.json of the first evaluation.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Folder or results.json of the second evaluation.")],
    model_a: Annotated[str | None, typer.Option("--model-a", help="Model of A, if it has several.")] = None,
    model_b: Annotated[str | None, typer.Option("--model-b", help="Model of B, if it has several.")] = None,
    as_json: Json = False,
) -> None:
    """Compare two evaluations on the tasks that both have, paired by task, with intervals and p-values.

    To compare two models of one evaluation, name it twice, and the models with --model-a and --model-b.
    """
    first = read_results(a)
    second = first if a.resolve() == b.resolve() else read_results(b)
    comparison = compare(first, second, model_a=model_a, model_b=model_b)
    if as_json:
        print_json(comparison.model_dump(mode="json"))
        return
    show_comparison(comparison)
    for cell in comparison.cells:
        for note in cell.notes:
            errors.print(shown(f"{cell.environment} / {cell.split}: {note}"), soft_wrap=True)
    for note in comparison.notes:
        errors.print(shown(note), soft_wrap=True)


def _config(path: Path | None, options: Mapping[str, Any]) -> EvaluationConfig:
    """Return the file's configuration with the options in place of its fields.

    Raises:
        BadParameter: a field or an option is invalid, or there is no model or environment.
    """
    try:
        table = read_table(path) if path is not None else {}
        if options["model"]:
            table["models"] = [{"model": one} for one in options["model"]]
        if options["env"]:
            table["environments"] = [_environment(one) for one in options["env"]]
        for name in ("n", "samples", "seed", "concurrency", "retries", "max_turns", "turn_seconds", "episode_seconds"):
            if options[name] is not None:
                table[name] = options[name]
        if options["probe"]:
            table["probes"] = options["probe"]
        _apply(table, "environments", splits=options["split"], success_at=options["success_at"])
        given = parse_pairs("--option", options["option"] or (), "NAME=JSON")
        fields = {name: policies.json_or_text(text) for name, text in given.items()}
        _apply(
            table, "models", api_key_env=options["api_key_env"], options=fields or None,
            attempts=options["attempts"], patience=options["patience"],
        )  # fmt: skip
        for name, option in (("models", "--model"), ("environments", "--env")):
            if not table.get(name):
                raise InvalidParams(f"there are no {name}: give {option}, or [[{name}]] in a file")
        return parse_config(table, str(path) if path is not None else "the options")
    except InvalidParams as error:
        raise typer.BadParameter(error.message) from None
    except OSError as error:
        raise typer.BadParameter(f"cannot read {path}: {error.strerror}") from None


def _environment(text: str) -> dict[str, Any]:
    name, at, address = text.partition("@")
    if at and address.startswith(("http://", "https://")):
        return {"target": address, "environment": name}
    return {"target": text}


def _apply(table: dict[str, Any], name: str, **fields: Any) -> None:
    """Set fields of every entry of an array of tables; those that are None stay as they are."""
    entries = table.get(name)
    if isinstance(entries, list):
        given = {key: value for key, value in fields.items() if value is not None}
        table[name] = [entry | given if isinstance(entry, dict) else entry for entry in entries]


async def _evaluate(config: EvaluationConfig, out: Path, resume: bool, keep_going: bool) -> EvaluationResults:
    settle_heap()
    with ProgressBar() as bar:
        return await evaluate(
            config, out, open_environment=_open_environment, open_policy=lambda spec: _open_policy(spec, config),
            resume=resume, keep_going=keep_going, on_progress=bar,
            on_cell=lambda name: errors.print(shown(f"playing {name}", "dim"), soft_wrap=True),
        )  # fmt: skip


@asynccontextmanager
async def _open_environment(spec: EnvironmentSpec) -> AsyncIterator[OpenEnvironment]:
    async with client_of(spec.target, token_of(spec), "auto") as client:
        info = find_environment(await client.environments(), spec.environment, spec.target)
        yield OpenEnvironment(client.environment(info.name), info)


@asynccontextmanager
async def _open_policy(spec: ModelSpec, config: EvaluationConfig) -> AsyncIterator[Policy]:
    if spec.wire is not None:
        async with open_model(spec) as policy:
            yield policy
        return
    sources: Sequence[str | None] = [
        playing.source_of_target(environment.target) for environment in config.environments
    ]
    source = sources[0] if len(sources) == 1 else None
    async with policies.PolicyChoice(spec.model, {}, source, config.seed).open() as policy:
        yield policy


def _exit_code(results: EvaluationResults) -> ExitCode:
    scored = sum(cell.scored for cell in results.cells)
    whole = results.finished and all(cell.scored == cell.planned for cell in results.cells)
    return ExitCode.OK if whole else ExitCode.UNSUCCESSFUL if scored else ExitCode.FAILED
