"""A Typer group that lists its commands without importing their modules."""

from __future__ import annotations

import ast
import contextlib
import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from traceback import walk_tb
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

GROUP: Final = "ludus.commands"

EXTRAS: Final = {
    "server": "server", "sandbox": "server", "environments": "environments", "trainer": "trainer",
    "generation": "environments", "rendering": "trainer", "gateway": "trainer", "hub": "hub", "registry": "registry",
}  # fmt: skip
"""The extra that installs the dependencies of each subpackage of `ludus` that the base install does not cover."""


class MissingPackage(Exception):
    """A command's module needs a package that is not installed. The message says how to install it."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """One entry point and its commands."""

    entry: EntryPoint
    commands: Mapping[str, str]
    """One line of help for each command, by name."""

    def load(self) -> dict[str, Any]:
        """Import the module and return its commands by name.

        Raises:
            MissingPackage: the module needs a package that is not installed.
        """
        try:
            register = self.entry.load()
        except ModuleNotFoundError as error:
            raise MissingPackage(advice(self.entry.module, error)) from error
        app = typer.Typer(rich_markup_mode="rich")
        register(app)
        return dict(typer.main.get_group(app).commands)


def advice(module: str, error: ModuleNotFoundError) -> str:
    """Return how to install the package that `module` needs and that `error` reports as missing."""
    from ludus.common.distribution import DISTRIBUTION

    missing = (error.name or "").partition(".")[0]
    if "; install it with: " in error.msg:  # of `missing_extra`
        return f"the package {missing!r} is missing; install it with: {error.msg.rpartition('; install it with: ')[2]}"
    namespace, _, rest = module.partition(".")
    extra = EXTRAS.get(rest.partition(".")[0]) if namespace == "ludus" else None
    if missing == "ludus":
        return f"the module {error.name} is not installed; reinstall {DISTRIBUTION}"
    wanted = f'"{DISTRIBUTION}[{extra}]"' if extra else missing
    return f"the package {missing!r} is missing; install it with: pip install {wanted}"


def importer(error: BaseException) -> str:
    """Return the module that raised an import error: the innermost module of `ludus`, or else the innermost of all."""
    names = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
    return next((name for name in reversed(names) if name.startswith("ludus.")), names[-1] if names else "")


def discover() -> Iterator[Plugin]:
    """Yield all plugins, those of `ludus` first, then by module name; import only those without a `COMMANDS` dict."""
    entries = sorted(entry_points(group=GROUP), key=lambda e: (not e.module.startswith("ludus."), e.module, e.name))
    for entry in entries:
        declared = declared_commands(entry.module)
        if declared is not None:
            yield Plugin(entry, declared)
            continue
        plugin = Plugin(entry, {})
        try:
            commands = {name: command.get_short_help_str(80) for name, command in plugin.load().items()}
        except Exception as error:
            commands = {entry.name: f"(unavailable: {error})"}
        yield Plugin(entry, commands)


def declared_commands(module: str) -> dict[str, str] | None:
    """Return the literal `COMMANDS` of a module, read from its source; None if it has none."""
    source = _source(module)
    if source is None or "COMMANDS" not in source:
        return None
    for node in _statements(source):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == "COMMANDS":
            value = ast.literal_eval(node.value)  # type: ignore[attr-defined]
            return {str(name): str(line) for name, line in value.items()}
    return None


def _statements(source: str) -> Iterator[ast.stmt]:
    """Yield statements that may assign `COMMANDS`: those that look like it, then all of the module.

    To parse the whole modules of all commands took a tenth of the time of `ludus envs --local` when measured.
    """
    for found in re.finditer(r"^COMMANDS\b.*?\}$", source, re.MULTILINE | re.DOTALL):
        with contextlib.suppress(SyntaxError):
            yield from ast.parse(found[0]).body
    yield from ast.parse(source).body


def _source(module: str) -> str | None:
    """Return the source of a module without importing its parents, which `importlib.util.find_spec` would do."""
    path, name = None, ""
    spec = None
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        spec = PathFinder.find_spec(name, path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or [])
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    return Path(spec.origin).read_text(encoding="utf-8")


class LazyGroup(TyperGroup):
    """Lists commands with their declared help, and imports a command's module when it is invoked."""

    def __init__(self, **attrs: Any) -> None:
        super().__init__(**attrs)
        self._plugins: dict[str, Plugin] = {}
        for plugin in discover():
            for name, line in plugin.commands.items():
                if name not in self.commands:
                    self._plugins[name] = plugin
                    self.commands[name] = TyperCommand(name, help=line, rich_markup_mode=None)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; describe an invalid option in plain words, and report that Ctrl-C ended the command."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            details = getattr(error.__cause__, "errors", None)
            if details is not None:
                from ludus.protocol.messages import describe_invalid

                error.message = describe_invalid(details(include_url=False)[0])
            raise
        except KeyboardInterrupt:
            typer.echo("ludus: interrupted", err=True)
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the real command for the first argument, after importing its module.

        Help is shown even if that needs a package that is missing: without options, and with how to install it.
        """
        name, command, rest = super().resolve_command(ctx, args)
        plugin = self._plugins.pop(name, None) if name else None
        if plugin is None:
            return name, command, rest
        try:
            loaded = plugin.load()
        except MissingPackage as missing:
            options = rest[: rest.index("--")] if "--" in rest else rest
            if command is None or not {*ctx.help_option_names} & {*options}:
                raise
            command.help = f"{command.help}\n\nIts options are shown once it is installed: {missing}"
            return name, command, rest
        if name not in loaded:
            importlib.invalidate_caches()
            raise MissingPackage(f"{plugin.entry.value} announces the command {name!r} and does not register it")
        self.commands.update(loaded)
        return name, self.commands[name], rest
