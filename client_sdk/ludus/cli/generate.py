"""`ludus generate`: new tasks of an environment, and new environments from a description."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from ludus.cli import policies
from ludus.cli.app import ExitCode
from ludus.cli.common import Json, console, errors, parse_pairs, print_json, run, shown
from ludus.cli.init import class_name, scaffold
from ludus.evaluation.config import ModelSpec
from ludus.generation.backtranslate import Backtranslating
from ludus.generation.hops import Hopping
from ludus.generation.model import Budget, Writer
from ludus.generation.package import PackageRun, Round, generate_package
from ludus.generation.playing import VALIDATED
from ludus.generation.propose import Proposing
from ludus.generation.tasks import Calibration, Source, TaskRun, generate_tasks
from ludus.generation.template import Filling, Template
from ludus.protocol.errors import InvalidParams
from ludus.server.tasks.catalog import Published

COMMANDS: Final = {"generate": "Generate tasks or an environment, and keep only what passes every check."}

ChosenMode = Literal["propose", "template", "backtranslate", "hops"]
Actor = Literal["random", "perturbed"]

generation = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")

Model = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", help="WIRE:NAME or WIRE:NAME@URL, with a wire of openai, openai-responses, anthropic, google."
    ),
]
KeyVariable = Annotated[
    str | None, typer.Option("--api-key-env", help="Environment variable with the key; the provider's by default.")
]
PriceIn = Annotated[float | None, typer.Option("--price-in", help="Price of a million input tokens.", min=0)]
PriceOut = Annotated[float | None, typer.Option("--price-out", help="Price of a million output tokens.", min=0)]
MaxCost = Annotated[float | None, typer.Option("--max-cost", help="Stop before the models cost more.", min=0)]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", help="Stop before the models use more tokens.", min=1)]
OutputTokens = Annotated[int, typer.Option("--output-tokens", help="Most tokens of one reply.", min=1)]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, without paying twice.")]
KeepRejected = Annotated[bool, typer.Option("--keep-rejected", help="Write what was rejected, with the reasons.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.add_typer(generation, name="generate", help=COMMANDS["generate"])


@generation.command("tasks")
def tasks_command(
    target: Annotated[
        str, typer.Argument(metavar="ENV", help="NAME, NAME-VARIANT, module:Class, file.py:Class or FORMAT:TARGET.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the tasks, the journal and the report.")],
    mode: Annotated[
        ChosenMode | None,
        typer.Option(
            help="How: a model proposes; a template is filled; a policy acts and its final state is the goal; walks "
            "through the environment's graph. `template` with --template, else `propose`."
        ),
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", help="How many tasks.", min=1)] = 20,
    environment: Annotated[str | None, typer.Option("--environment", help="By name, if ENV has several.")] = None,
    split: Annotated[str, typer.Option("--split", "-s", help="Split of the tasks.")] = "train",
    seed: Annotated[int, typer.Option("--seed", help="Seed of the run.", min=0)] = 0,
    model: Model = None,
    api_key_env: KeyVariable = None,
    option: policies.RequestOption = None,
    template: Annotated[
        Path | None, typer.Option("--template", help="Template in TOML, for the mode template.")
    ] = None,
    actor: Annotated[
        Actor, typer.Option("--actor", help="Who acts in the mode backtranslate: the oracle with gaps, or at random.")
    ] = "perturbed",
    hops: Annotated[
        list[int] | None, typer.Option("--hops", help="Hops in the mode hops; several take turns. 2 by default.")
    ] = None,
    topic: Annotated[list[str] | None, typer.Option("--topic", help="Subject; several take turns.")] = None,
    persona: Annotated[list[str] | None, typer.Option("--persona", help="Who writes; several take turns.")] = None,
    per_request: Annotated[int, typer.Option("--per-request", help="Tasks that a request asks for.", min=1)] = 5,
    similarity: Annotated[
        float, typer.Option("--similarity", help="From which overlap tasks are near duplicates; 1.1: only equal ones.")
    ] = 0.8,
    margin: Annotated[
        float, typer.Option("--margin", help="How far above the random baseline guessing may score.", min=0, max=1)
    ] = 0.25,
    skip: Annotated[
        list[str] | None,
        typer.Option("--skip", metavar="KIND=REASON", help="Accept what this check finds; repeatable."),
    ] = None,
    calibrate: Annotated[
        str | None, typer.Option("--calibrate", metavar="MODEL", help="Keep tasks that this model solves sometimes.")
    ] = None,
    samples: Annotated[int, typer.Option("--samples", help="Episodes per task for --calibrate.", min=1)] = 4,
    band: Annotated[str, typer.Option("--band", help="Lowest and highest pass rate for --calibrate.")] = "0.1,0.9",
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    max_cost: MaxCost = None,
    max_tokens: MaxTokens = None,
    output_tokens: OutputTokens = 4096,
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", help="Requests and episodes at once.", min=1)] = 4,
    most: Annotated[int | None, typer.Option("--most", help="Most proposals; 10 for each task by default.")] = None,
    resume: Resume = False,
    keep_rejected: KeepRejected = False,
    as_json: Json = False,
) -> None:
    """Generate tasks of an environment, and keep those that pass every check. `ludus serve tasks:OUT` serves them.

    [bold]ludus generate tasks sql --model openai:gpt-5-mini --count 100 --out more-sql[/bold]
    [bold]ludus generate tasks triples:facts.tsv --mode hops --hops 2 --hops 3 --count 50 --out questions[/bold]

    Exits with 0 when there are as many tasks as wanted, and 1 when there are fewer.
    """
    options = dict(locals())
    chosen: ChosenMode = mode or ("template" if template is not None else "propose")
    writer = None if model is None else _model("--model", model, api_key_env, option)
    budget = _budget(options)
    make, identity = _source(chosen, writer, options)
    settings = TaskRun(
        target=target, out=out, mode=chosen, count=count, make_source=make, identity=identity, environment=environment,
        split=split, seed=seed, model=writer, output_tokens=output_tokens, budget=budget, concurrency=concurrency,
        most=most, similarity=similarity, margin=margin, checks=VALIDATED, waivers=_waivers(skip or []),
        calibration=_calibration(options), resume=resume, keep_rejected=keep_rejected,
        on_batch=lambda kept, wanted, proposed: errors.print(shown(f"{kept} of {wanted} kept, {proposed} proposed")),
    )  # fmt: skip
    try:
        report = run(generate_tasks(settings))
    except KeyboardInterrupt:
        errors.print(shown(f"interrupted: {out} has what was paid for, and --resume goes on from it"))
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    if as_json:
        print_json(report.as_json())
    else:
        for line in report.lines():
            console.print(shown(line), soft_wrap=True)
        if report.kept:
            console.print(shown(f"To serve them: ludus serve tasks:{out}"), soft_wrap=True)
    if report.kept < count:
        raise typer.Exit(ExitCode.UNSUCCESSFUL)


@generation.command("environment")
def environment_command(
    description: Annotated[
        str, typer.Argument(metavar="TEXT|FILE", help="What the environment is: a paragraph, or a .md or .txt file.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the package, named like the environment.")],
    model: Annotated[str, typer.Option("--model", "-m", help="WIRE:NAME or WIRE:NAME@URL.")],
    api_key_env: KeyVariable = None,
    option: policies.RequestOption = None,
    rounds: Annotated[int, typer.Option("--rounds", help="Versions that the model may write.", min=1, max=20)] = 3,
    calibrate: Annotated[
        str | None, typer.Option("--calibrate", metavar="MODEL", help="Let this model play what passes.")
    ] = None,
    samples: Annotated[int, typer.Option("--samples", help="Episodes per task for --calibrate.", min=1)] = 4,
    calibration_tasks: Annotated[int, typer.Option("--tasks", help="Training tasks for --calibrate.", min=1)] = 10,
    seed: Annotated[int, typer.Option("--seed", help="Another seed asks again.", min=0)] = 0,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    max_cost: MaxCost = None,
    max_tokens: MaxTokens = None,
    output_tokens: OutputTokens = 16_000,
    resume: Resume = False,
    keep_rejected: Annotated[
        bool, typer.Option("--keep-rejected", help="Keep a package that fails, in the folder rejected next to --out.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Generate the package of a new environment, and keep it if its tests and `ludus validate --strict` pass.

    The code runs only in bubblewrap sandboxes without a network. Read it before you use it.

    Exits with 0 when it is kept, and 1 when it is not.
    """
    options = dict(locals())
    if description.endswith((".md", ".txt")):
        try:
            description = Path(description).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise typer.BadParameter(f"{description} cannot be read: {error}") from None
    module, cls = class_name(out.name)
    settings = PackageRun(
        description=description, out=out, module=module, cls=cls, scaffold=scaffold,
        model=_model("--model", model, api_key_env, option), rounds=rounds, output_tokens=output_tokens,
        budget=_budget(options), seed=seed, resume=resume, keep_rejected=keep_rejected, on_round=_print_round,
        calibration=_calibration({**options, "band": "0,1"}), calibration_tasks=calibration_tasks,
    )  # fmt: skip
    report = run(generate_package(settings))
    if as_json:
        print_json(report.model_dump(mode="json"))
    else:
        verdict = f"kept in {out}: read it before you use it" if report.kept else "not kept"
        console.print(shown(f"{report.name} after {len(report.rounds)} rounds: {verdict}"), soft_wrap=True)
        for line in report.lines():
            console.print(shown(line), soft_wrap=True)
        if report.stopped is not None:
            console.print(shown(f"  stopped: {report.stopped}"), soft_wrap=True)
    if not report.kept:
        raise typer.Exit(ExitCode.UNSUCCESSFUL)


def _print_round(one: Round) -> None:
    errors.print(shown(f"round {one.number + 1}: {f'{one.failed} fails' if one.failed else 'passes'}"))
    if one.failed is not None:
        for line in one.detail.splitlines()[-12:]:
            errors.print(shown(f"  {line}"), soft_wrap=True)


def _source(mode: ChosenMode, model: ModelSpec | None, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return what opens the source of candidates, and what decides which candidates it makes.

    Raises:
        BadParameter: an option is missing, or does not go with the mode.
    """
    seed = options["seed"]
    if mode == "template" or options["template"] is not None:
        if mode != "template" or options["template"] is None:
            raise typer.BadParameter("--template goes with the mode template, which needs it")
        template = Template(options["template"])
        text = options["template"].read_text(encoding="utf-8")
        return lambda published, writer: Filling(published, template, seed=seed), {"template": text}
    if mode == "hops":
        hops: Sequence[int] = options["hops"] or [2]
        return lambda published, writer: Hopping(published, hops, seed=seed), {"hops": list(hops)}
    if mode == "backtranslate":
        actor: Actor = options["actor"]

        def backtranslating(published: Published, writer: Writer | None) -> Source:
            return Backtranslating(published, actor, writer=writer, seed=seed)

        return backtranslating, {"actor": actor}
    if model is None:
        raise typer.BadParameter("the mode propose needs --model; without a model: --template FILE, or another --mode")
    topics, personas, each = options["topic"] or [], options["persona"] or [], options["per_request"]

    def proposing(published: Published, writer: Writer | None) -> Source:
        assert writer is not None
        return Proposing(published, writer, seed=seed, topics=topics, personas=personas, per_request=each)

    return proposing, {"topics": topics, "personas": personas, "per_request": each}


def _model(option: str, name: str, key: str | None, fields: list[str] | None) -> ModelSpec:
    pairs = parse_pairs("--option", fields or (), "NAME=JSON")
    try:
        spec = ModelSpec(
            model=name, api_key_env=key, options={field: policies.json_or_text(text) for field, text in pairs.items()}
        )
    except ValueError as error:
        raise typer.BadParameter(f"{option} {name!r}: {error}") from None
    if spec.wire is None:
        raise typer.BadParameter(f"{option} {name!r} is no model endpoint; write openai:NAME or openai:NAME@URL")
    return spec


def _calibration(options: dict[str, Any]) -> Calibration | None:
    if options["calibrate"] is None:
        return None
    low, comma, high = options["band"].partition(",")
    try:
        edges = float(low), float(high)
    except ValueError:
        edges = (1.0, 0.0)
    if not comma or not 0 <= edges[0] <= edges[1] <= 1:
        raise typer.BadParameter(f"--band {options['band']!r} must be two pass rates, the lower one first: 0.1,0.9")
    spec = _model("--calibrate", options["calibrate"], options["api_key_env"], None)
    return Calibration(spec, options["samples"], *edges)


def _budget(options: dict[str, Any]) -> Budget:
    names = ("max_tokens", "max_cost", "price_in", "price_out")
    try:
        return Budget(**{name: options[name] for name in names})
    except InvalidParams as error:
        raise typer.BadParameter(error.message) from None


def _waivers(pairs: list[str]) -> dict[str, str]:
    reasons = {}
    for pair in pairs:
        kind, _, reason = pair.partition("=")
        if kind not in VALIDATED or not reason.strip():
            raise typer.BadParameter(f"--skip {pair}: write KIND=REASON, with a kind of {', '.join(VALIDATED)}")
        reasons[kind] = reason.strip()
    return reasons
