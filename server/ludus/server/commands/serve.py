"""The commands `ludus serve` and `ludus token`."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import typer

from ludus.protocol.errors import AuthoringError
from ludus.protocol.messages import describe_invalid
from ludus.protocol.methods import SPLIT_SCOPE_PREFIX, Scope
from ludus.server.auth.limits import STRANGER_REQUESTS, WRONG_TOKENS, TokenLimits, parse_limits
from ludus.server.auth.tokens import (
    TOKEN_FILE_VARIABLE,
    TokenFile,
    TokenFileError,
    new_token,
    read_token_file,
    write_token_file,
)

COMMANDS: Final = {
    "serve": "Serve environments over MCP, ORS and the channel.",
    "token": "Create, list and revoke trainer tokens.",
}
"""One line of help for each command, as a literal that the command line reads without importing this module."""

DEFAULT_SCOPES: Final = (Scope.TASKS_READ, Scope.EPISODES_RUN, Scope.REWARDS_READ)
"""The scopes of a token by default: it may train, but not use test splits."""

_STDIO_OPTIONS: Final = ("environment", "split", "task", "index", "seed", "play_only")
_UNITS: Final = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}

TokenFilePath = Annotated[Path, typer.Option("--file", envvar=TOKEN_FILE_VARIABLE, help="The token file.")]
"""The option for the token file of the commands under `ludus token`."""

Specs = Annotated[list[str], typer.Argument(help="NAME, module:Class, file.py:Class or FORMAT:TARGET, one or more.")]
"""The argument of `ludus serve`."""

Interpreter = Annotated[
    str | None, typer.Option(help="For FORMAT:TARGET: the interpreter that has the package, as #python=PATH.")
]
"""The option for the interpreter of a hosted package."""

FormatOptions = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="For FORMAT:TARGET: any other option; repeatable."),
]
"""The option for what a format has no option of `ludus serve` for."""

JournalName = Annotated[
    str | None,
    typer.Option(
        "--journal", metavar="FILE|URL",
        help="File, or postgresql://USER@HOST/DATABASE, in which episodes survive the death of the server.",
    ),
]  # fmt: skip
JournalSync = Annotated[
    str, typer.Option(help="What the journal survives: normal (death of the process) or full (loss of power).")
]
"""The options for durable episodes."""

HostAddress = Annotated[str, typer.Option(help="Address to listen on; any address except loopback needs tokens.")]
EnvironmentName = Annotated[
    str | None, typer.Option(help="With --stdio: serve one episode of this environment; without it, the catalog.")
]
Noises = Annotated[
    list[str] | None,
    typer.Option(help="Disturb tools: [NAME:]rate=0.1,kinds=tool_error+delay,seed=3, or JSON; repeatable."),
]
WorkerCount = Annotated[
    str | None,
    typer.Option(
        "--workers", metavar="N or MIN-MAX",
        help="Server processes behind one address; episodes are spread over them. Of a range, as many as are needed.",
    ),
]  # fmt: skip
ScaleUpLoad = Annotated[
    float, typer.Option(help="With --workers MIN-MAX: episodes of each worker above which one is added.")
]
ScaleDownLoad = Annotated[
    float, typer.Option(help="With --workers MIN-MAX: episodes that each of the others may have when one is ended.")
]
ScaleUpSeconds = Annotated[
    float, typer.Option(help="With --workers MIN-MAX: seconds of high load before a worker is added.")
]
ScaleDownSeconds = Annotated[
    float, typer.Option(help="With --workers MIN-MAX: seconds of low load before a worker is ended.")
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray", metavar="ADDRESS",
        help="With --workers: run them in this Ray cluster: auto, HOST:PORT, or local to start a Ray here.",
    ),
]  # fmt: skip
RayCpus = Annotated[float, typer.Option(help="With --ray: CPUs that Ray reserves for each worker.")]
RayMemory = Annotated[float | None, typer.Option(help="With --ray: GiB of memory that Ray reserves for each worker.")]
RayWorkingDir = Annotated[
    Path | None, typer.Option(help="With --ray: folder that Ray copies to the nodes, where the workers run in it.")
]
RayName = Annotated[
    str | None, typer.Option(help="With --ray: name under which clients find the server: ludus+ray://auto/NAME.")
]
WorkerId = Annotated[
    str | None,
    typer.Option("--worker", help="Id of this server among several that a proxy of yours puts behind one address."),
]
DrainSeconds = Annotated[
    float, typer.Option(help="With --workers: most seconds for a worker's episodes before it is restarted.")
]
Reload = Annotated[bool, typer.Option("--reload", help="Restart when a source file of the environments changes.")]
UnresponsiveSeconds = Annotated[
    float, typer.Option(help="With --workers: seconds without a sign of life after which a worker is replaced.")
]
CapabilityKeyFile = Annotated[
    Path | None,
    typer.Option(help="File of the key that signs play addresses (hexadecimal), for servers that share them."),
]
PublicUrl = Annotated[
    str | None,
    typer.Option(envvar="LUDUS_PUBLIC_URL", help="Address that clients use when a proxy forwards to this server."),
]
TrustedProxies = Annotated[
    list[str] | None, typer.Option(help="Address or network of a proxy whose headers are used; repeatable.")
]
AllowedOrigins = Annotated[list[str] | None, typer.Option(help="Origin whose pages may use the server; repeatable.")]
ResultTtlSeconds = Annotated[
    float, typer.Option(min=0, help="Seconds for which a closed episode answers repeated requests.")
]
EndedBytes = Annotated[
    int, typer.Option(min=0, help="Most bytes of episodes that have ended; beyond it, the oldest are forgotten.")
]
ShutdownSeconds = Annotated[
    float, typer.Option(help="Seconds for which running steps may continue when the server stops.")
]
"""Options of `ludus serve`."""

DifficultyFiles = Annotated[
    list[Path] | None,
    typer.Option(help="Difficulty file of `ludus calibrate` that curricula start with; repeatable."),
]
"""The option for difficulty files."""

Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--limit", metavar="NAME=VALUE",
        help="What each token may use: steps_per_second=100, open_episodes=50, stored_bytes=2GiB, …; repeatable.",
    ),
]  # fmt: skip
"""The option for the limits of each token on a server."""

MaxWorlds = Annotated[int, typer.Option(min=0, help="Most worlds of one token.")]
WorldBytes = Annotated[
    int, typer.Option(min=1024, help="Most bytes of the state of a world; a larger one makes no new version.")
]
WorldsBytes = Annotated[
    int, typer.Option(min=1024, help="Bytes of all versions of all worlds, beyond which no world is made.")
]
WorldVersions = Annotated[int, typer.Option(min=1, help="Latest versions of a world that are kept, and the first.")]
WorldIdleSeconds = Annotated[float, typer.Option(help="Seconds after which an unused world is deleted.")]
UsageFile = Annotated[
    Path | None, typer.Option(help="File in which servers of one machine count together what tokens use.")
]
"""The option for shared counts."""

Checked = Annotated[
    bool | None,
    typer.Option(
        "--check/--no-check",
        help="Play an episode of each environment before it is announced; by default of those of FORMAT:TARGET.",
    ),
]
"""The option for the trial of environments."""

StartupSeconds = Annotated[float, typer.Option(help="Most seconds for what an environment does once at startup.")]
"""The option for the limit on class hooks."""

token = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("serve")(serve)
    app.add_typer(token, name="token", help=COMMANDS["token"])


def serve(
    environments: Specs,
    host: HostAddress = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    stdio: Annotated[bool, typer.Option("--stdio", help="Serve MCP on standard input and output instead.")] = False,
    environment: EnvironmentName = None,
    split: Annotated[str | None, typer.Option(help="With --environment: the task's split.")] = None,
    task: Annotated[str | None, typer.Option(help="With --environment: the task's id.")] = None,
    index: Annotated[int | None, typer.Option(min=0, help="With --environment: the task's index.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="With --environment: the episode's seed.")] = None,
    play_only: Annotated[bool, typer.Option("--play-only", help="With --stdio: tools only, no rewards.")] = False,
    noise: Noises = None,
    tasks: Annotated[str | None, typer.Option(help="For FORMAT:TARGET: the file of tasks, as #tasks=FILE.")] = None,
    verifier: Annotated[str | None, typer.Option(help="For FORMAT:TARGET: what scores, as #verifier=…")] = None,
    python: Interpreter = None,
    options: FormatOptions = None,
    check: Checked = None,
    journal: JournalName = None,
    journal_sync: JournalSync = "normal",
    workers: WorkerCount = None,
    worker: WorkerId = None,
    scale_up_load: ScaleUpLoad = 256.0,
    scale_down_load: ScaleDownLoad = 128.0,
    scale_up_seconds: ScaleUpSeconds = 5.0,
    scale_down_seconds: ScaleDownSeconds = 60.0,
    ray: RayAddress = None,
    ray_cpus: RayCpus = 1.0,
    ray_memory: RayMemory = None,
    ray_working_dir: RayWorkingDir = None,
    ray_name: RayName = None,
    drain_seconds: DrainSeconds = 3600.0,
    unresponsive_seconds: UnresponsiveSeconds = 10.0,
    difficulty: DifficultyFiles = None,
    limit: Limits = None,
    usage_file: UsageFile = None,
    token_file: Annotated[
        Path | None, typer.Option(envvar=TOKEN_FILE_VARIABLE, help="File of trainer tokens; see `ludus token`.")
    ] = None,
    capability_key_file: CapabilityKeyFile = None,
    capability_seconds: Annotated[float, typer.Option(help="Seconds for which a play address is valid.")] = 3600.0,
    public_url: PublicUrl = None,
    root_path: Annotated[str, typer.Option(help="Path prefix under which a proxy publishes the server.")] = "",
    trusted_proxy: TrustedProxies = None,
    proxy_headers: Annotated[str, typer.Option(help="Headers that those proxies set: x-forwarded or forwarded.")] = (
        "x-forwarded"
    ),
    allow_host: Annotated[list[str] | None, typer.Option(help="Additional Host name to accept; repeatable.")] = None,
    allow_origin: AllowedOrigins = None,
    cors: Annotated[bool, typer.Option("--cors", help="Let pages of --allow-origin read the answers.")] = False,
    max_episodes: Annotated[int, typer.Option(min=1, help="Most episodes that run at the same time.")] = 100_000,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Most steps of one episode.")] = None,
    idle_seconds: Annotated[float, typer.Option(help="Seconds after which an unused episode expires.")] = 900.0,
    tool_seconds: Annotated[float, typer.Option(help="Most seconds for one tool call.")] = 60.0,
    startup_seconds: StartupSeconds = 300.0,
    setup_seconds: Annotated[float, typer.Option(help="Most seconds for one episode's setup.")] = 60.0,
    episode_seconds: Annotated[float | None, typer.Option(help="Most seconds for one episode.")] = None,
    result_ttl_seconds: ResultTtlSeconds = 60.0,
    ended_bytes: EndedBytes = 128 * 1024 * 1024,
    body_bytes: Annotated[int, typer.Option(help="Most bytes of one request.")] = 4 * 1024 * 1024,
    threads: Annotated[int, typer.Option(min=1, help="Most threads for blocking environment code.")] = 64,
    max_worlds: MaxWorlds = 10_000,
    world_bytes: WorldBytes = 64 * 1024 * 1024,
    worlds_bytes: WorldsBytes = 8 * 1024 * 1024 * 1024,
    world_versions: WorldVersions = 16,
    world_idle_seconds: WorldIdleSeconds = 86_400.0,
    shutdown_seconds: ShutdownSeconds = 10.0,
    metrics_open: Annotated[bool, typer.Option("--metrics-open", help="Show /metrics without a token.")] = False,
    log_format: Annotated[str, typer.Option(envvar="LUDUS_LOG_FORMAT", help="console or json.")] = "console",
    log_level: Annotated[str, typer.Option(envvar="LUDUS_LOG_LEVEL", help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
    access_log: Annotated[bool, typer.Option("--access-log", help="Log every request.")] = False,
    reload: Reload = False,
) -> None:
    """Serve environments over MCP, ORS and the channel.

    [bold]ludus serve guess_number countdown[/bold]
    [bold]ludus serve my_env.py:Arithmetic --port 9000[/bold]
    [bold]ludus serve gymnasium:FrozenLake-v1 --python envs/gym/bin/python[/bold]
    """
    arguments = dict(locals())
    from ludus.server.serving.serve import run
    from ludus.server.tasks.formats import with_options
    from ludus.server.tasks.loading import load_environments
    from ludus.server.tasks.noisy import all_with_noise

    arguments["environments"] = environments = with_options(environments, _format_options(arguments))
    arguments["check"] = "formats" if check is None else "all" if check else "none"
    if reload:
        _serve_with_reload(arguments)
    if ray is not None and workers is None:
        raise typer.BadParameter("--ray runs workers: add --workers N")
    if workers is not None:
        _serve_with_workers(arguments)
    classes = all_with_noise(load_environments(environments), noise or ())
    settings = _settings(arguments)
    if stdio:
        _serve_stdio(classes, settings, {name: arguments[name] for name in _STDIO_OPTIONS})
        return
    _refuse_stdio_options(arguments)
    raise typer.Exit(run(classes, settings))


def _refuse_stdio_options(options: dict[str, Any]) -> None:
    option = next((name for name in _STDIO_OPTIONS if options[name] not in (None, False)), None)
    if option is not None:
        raise typer.BadParameter(f"--{option.replace('_', '-')} works only with --stdio: add --stdio or leave it out")


def _format_options(options: dict[str, Any]) -> dict[str, str]:
    """Return the options of a format that the command line gives."""
    format_options = {name: options[name] for name in ("tasks", "verifier", "python") if options[name] is not None}
    for text in options["options"] or ():
        name, separator, value = text.partition("=")
        if not separator or not name or name in format_options:
            problem = "is given twice" if name in format_options else "is not NAME=VALUE"
            raise typer.BadParameter(f"--set {text!r} {problem}")
        format_options[name] = value
    return format_options


def _serve_with_reload(options: dict[str, Any]) -> NoReturn:
    from ludus.server.serving.reload import run_with_reload

    if options["stdio"]:
        raise typer.BadParameter(
            "--reload restarts the server, which would end the client's session: leave out --stdio"
        )
    if options["workers"] is not None:
        raise typer.BadParameter("--reload restarts a server of one process: leave out --workers")
    raise typer.Exit(run_with_reload(options["environments"], options["noise"] or (), _settings(options)))


def _serve_with_workers(options: dict[str, Any]) -> NoReturn:
    from ludus.server.workers.supervisor import run_workers

    if options["stdio"]:
        raise typer.BadParameter("--workers needs an address for clients, which --stdio has not: leave one of them out")
    if options["worker"] is not None:
        raise typer.BadParameter("--workers names its workers itself: leave out --worker")
    _refuse_stdio_options(options)
    settings = _settings(options)
    if settings.check != "none" and settings.ray is None:  # with Ray, this machine may have no environment
        asyncio.run(_try_apart(options["environments"], settings))
    settings = settings.model_copy(update={"check": "none"})
    raise typer.Exit(run_workers(options["environments"], options["noise"] or (), settings))


async def _try_apart(specs: Sequence[str], settings: Any) -> None:
    """Play an episode of environments that other processes are to serve."""
    from ludus.server.hosting.host import EpisodeHost
    from ludus.server.hosting.trial import try_environments
    from ludus.server.tasks.formats import parse_source
    from ludus.server.tasks.loading import load_environments

    if settings.check == "formats":
        specs = [spec for spec in specs if parse_source(spec) is not None]
    if specs:
        async with EpisodeHost(load_environments(specs), limits=settings.limits) as host:
            await try_environments(host, settings.check)


_ADDRESS_LIMITS: Final = (WRONG_TOKENS, STRANGER_REQUESTS)
"""The limits of client addresses, which `--limit` sets as it sets those of tokens."""


def _worker_counts(text: str | None) -> dict[str, Any]:
    """Return the settings that `N` or `MIN-MAX` stands for."""
    if text is None:
        return {}
    least, dash, maximum = text.partition("-")
    if not least.isdigit() or (dash and not maximum.isdigit()):
        raise typer.BadParameter(f"--workers {text!r} is not a number of workers, such as 4, or a range, such as 1-8")
    return {"workers": int(least), "max_workers": int(maximum) if dash else None}


def _settings(options: dict[str, Any]) -> Any:
    from pydantic import ValidationError

    from ludus.server.runtime.limits import ServerLimits
    from ludus.server.serving.settings import ServerSettings

    values = {name: value for name, value in options.items() if name in ServerSettings.model_fields}
    values |= _worker_counts(options["workers"])
    values["allow_hosts"] = tuple(options["allow_host"] or ())
    values["trusted_proxies"] = tuple(options["trusted_proxy"] or ())
    values["difficulty"] = tuple(options["difficulty"] or ())
    values["allow_origins"] = tuple(options["allow_origin"] or ())
    values["log_level"] = options["log_level"].upper()
    values |= _token_limits(options["limit"] or ())
    limits = {name: value for name, value in options.items() if name in ServerLimits.model_fields}
    try:
        return ServerSettings(**values, limits=ServerLimits(**limits))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        option = "--" + str(problem["loc"][-1]).replace("_", "-")
        if problem["loc"][0] in ("token_limits", *_ADDRESS_LIMITS):
            option = f"--limit {problem['loc'][-1]}"
        raise typer.BadParameter(f"{option}: {describe_invalid(problem)}") from None


def _token_limits(texts: Sequence[str]) -> dict[str, Any]:
    """Return the settings that hold the limits of tokens and of client addresses."""
    try:
        limits = parse_limits(texts, (*TokenLimits.model_fields, *_ADDRESS_LIMITS))
    except ValueError as error:
        raise typer.BadParameter(f"--limit: {error}") from None
    of_addresses: dict[str, Any] = {name: limits.pop(name) for name in _ADDRESS_LIMITS if name in limits}
    return {"token_limits": limits, **of_addresses}


def _serve_stdio(classes: Sequence[Any], settings: Any, which: dict[str, Any]) -> None:
    from ludus.server.hosting.host import EpisodeHost
    from ludus.server.hosting.trial import try_environments
    from ludus.server.tasks.difficulty import load_difficulty_files
    from ludus.server.transports.mcp.stdio import serve_stdio

    if settings.token_limits.any or settings.usage_file is not None:
        raise typer.BadParameter("--limit and --usage-file work only without --stdio, which has one client")
    if settings.durable:
        raise typer.BadParameter("--journal works only without --stdio, whose episodes end with their client")
    from ludus.server.web import logs

    logs.configure(settings.log_format, settings.log_level)

    async def main() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with EpisodeHost(classes, limits=settings.limits) as host:
            load_difficulty_files(host.catalog, settings.difficulty)
            await try_environments(host, settings.check)
            serving = asyncio.create_task(serve_stdio(host, **which))
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                stopping.cancel()
                return await serving
        # A thread still reads standard input, and only the end of the input would wake it.
        logs.flush()
        os._exit(0)

    try:
        asyncio.run(main())
    finally:
        logs.flush()


@token.command("create")
def create(
    name: Annotated[str, typer.Option(help="Name of the holder; appears in logs.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(help=f"{', '.join(Scope)}, or {SPLIT_SCOPE_PREFIX}NAME for a test split; repeat for several."),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="What the holder may use, such as steps_per_second=100 or open_episodes=50; repeatable.",
        ),
    ] = None,
    expires: Annotated[str | None, typer.Option(help="30m, 12h, 7d, 4w, or a date such as 2030-01-31.")] = None,
    file: TokenFilePath = Path("tokens.json"),
) -> None:
    """Create a token, print it once, and add its hash to the token file."""
    try:
        limits = _limits_of_token(limit) if limit else None
        secret, record = new_token(name, tuple(scope or DEFAULT_SCOPES), _expiry(expires) if expires else None, limits)
        records = read_token_file(file).tokens if file.exists() else ()
        if name in {record.name for record in records}:
            raise TokenFileError(f"{file} has a token named {name!r} already: use another name, or remove it first")
        write_token_file(file, TokenFile(tokens=(*records, record)))
    except TokenFileError as error:
        raise AuthoringError(str(error)) from None
    except OSError as error:
        raise AuthoringError(f"cannot write {file}: {error.strerror or error}") from None
    typer.echo(secret)
    until = f"until {record.expires:%Y-%m-%d %H:%M} UTC" if record.expires else "without expiry"
    typer.echo(
        f"Keep it: only its hash is stored. {name!r} may {', '.join(record.scopes)} {until}, on servers started with "
        f"--token-file {os.fspath(file)}" + (f"; limits: {_shown(record.limits)}" if record.limits else ""),
        err=True,
    )


def _limits_of_token(texts: Sequence[str]) -> TokenLimits:
    """Return the limits that options give."""
    from pydantic import ValidationError

    try:
        return TokenLimits.parse(texts)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        raise typer.BadParameter(f"{problem['loc'][-1]}: {describe_invalid(problem)}", param_hint="--limit") from None
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--limit") from None


def _shown(limits: TokenLimits) -> str:
    return ", ".join(
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in limits.given().items()
    )


@token.command("list")
def list_tokens(file: TokenFilePath = Path("tokens.json")) -> None:
    """List the tokens of a file: names, scopes, expiry. The tokens themselves are not kept anywhere."""
    try:
        records = read_token_file(file).tokens
    except TokenFileError as error:
        raise AuthoringError(str(error)) from None
    for record in records:
        expired = record.expires is not None and record.expires <= datetime.now(UTC)
        until = "never expires" if record.expires is None else f"{'EXPIRED' if expired else 'until'} {record.expires}"
        limits = f"\t{_shown(record.limits)}" if record.limits is not None else ""
        typer.echo(f"{record.name}\t{','.join(record.scopes)}\t{until}{limits}")


@token.command("revoke")
def revoke(
    name: Annotated[str, typer.Argument(help="Whose token.")],
    file: TokenFilePath = Path("tokens.json"),
) -> None:
    """Remove a token from a file; running servers notice within a second or two."""
    try:
        records = read_token_file(file).tokens
        remaining = tuple(record for record in records if record.name != name)
        if len(remaining) == len(records):
            names = ", ".join(record.name for record in records) or "none"
            raise TokenFileError(f"{file} has no token named {name!r}; there are: {names}")
        write_token_file(file, TokenFile(tokens=remaining))
    except TokenFileError as error:
        raise AuthoringError(str(error)) from None
    except OSError as error:
        raise AuthoringError(f"cannot write {file}: {error.strerror or error}") from None


def _expiry(text: str) -> datetime:
    """Return the time that `text` gives: a span from now, a date (its end, UTC), or a date with a time."""
    span = re.fullmatch(r"(\d{1,6})([mhdw])", text.strip())
    if span:
        return (datetime.now(UTC) + int(span[1]) * _UNITS[span[2]]).replace(microsecond=0)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is neither a span like 7d nor a date like 2030-01-31", param_hint="--expires"
        ) from None
    if len(text) == len("2030-01-31"):
        moment += timedelta(days=1)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
