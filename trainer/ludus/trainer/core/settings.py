"""Reading and writing the configuration: a TOML file, overrides `--section.key=value`, and output as commented TOML.

Values are not converted ("10" is not a number, 1 is not true). Every error names its key and the file or argument that
contains it.
"""

from __future__ import annotations

import difflib
import json
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ludus.client.mix import MixFile
from ludus.trainer.core import schema
from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.errors import ConfigError, TrainerError

EXAMPLE: Final = {
    "output": "runs/first",
    "model": {"path": "Qwen/Qwen3-0.6B"},
    "environments": [{"url": "http://127.0.0.1:8000"}],
}
"""The keys that have no default, with example values."""


def read_config(
    path: str | Path | None, overrides: Sequence[str] = (), mixed: Mapping[str, Any] | None = None
) -> TrainConfig:
    """Read the configuration of a run.

    Args:
        path: a TOML file; None for all defaults, with `EXAMPLE` for the keys that have none.
        mixed: the tables `environments` and `mix` of a mix file (`mix_tables`), in place of those of the file.
        overrides: `--section.key=value`, later ones win. List entries are addressed by number
            (`--environments.0.url=…`; the next free number adds an entry), values are TOML or plain text, and `none`
            unsets a key.

    Raises:
        ConfigError: the file cannot be read; a key is unknown, missing, or has a wrong value; a named file is absent.
    """
    table = deepcopy(EXAMPLE) if path is None else _read_toml(Path(path))
    if mixed is not None:
        if path is not None and (conflicting := [key for key in ("environments", "mix") if key in table]):
            raise ConfigError(
                f"{path} has the table {conflicting[0]}, and --mix takes the place of it; leave one of them out"
            )
        table |= deepcopy(dict(mixed))
    sources = {_apply(table, override): override for override in overrides}
    try:
        # As JSON, because strict validation then accepts arrays as tuples and text as paths, and no other conversion.
        return TrainConfig.model_validate_json(json.dumps(table, default=str), strict=True)
    except ValidationError as error:
        # Pydantic also reports a list with invalid entries as too short.
        details = [d for d in error.errors(include_url=False) if d["type"] != "too_short" or not d["input"]]
        problems = [_explain(detail, sources, str(path or "config")) for detail in details]
        raise ConfigError("\n".join(dict.fromkeys(problems))) from None


def mix_tables(mix: MixFile, served: str | None = None) -> dict[str, Any]:
    """Return the tables `environments` and `mix` of a mix file.

    Args:
        mix: the mix.
        served: the address at which its `serve` is served.
    """
    entries = []
    for source in mix.sources:
        entry = source.model_dump(mode="json", exclude={"environment", "variant"}, exclude_none=True)
        entries.append(entry | {"name": source.name, "label": source.title, "url": mix.address(source, served)})
    return {"environments": entries, "mix": mix.policy.model_dump(mode="json", exclude_none=True)}


def write_config(config: TrainConfig) -> Path:
    """Write the effective configuration into the run's folder, as `config.toml`.

    Raises:
        TrainerError: the folder cannot be created or written to.
    """
    file = config.output / "config.toml"
    try:
        config.output.mkdir(parents=True, exist_ok=True)
        file.write_text(config_toml(config), encoding="utf-8")
    except OSError as error:
        raise TrainerError(f"cannot write {file}: {error.strerror}; choose another folder with --output") from None
    return file


def config_toml(config: TrainConfig | None = None) -> str:
    """Return a configuration (the defaults when None) as TOML: every key, its meaning, and its default if it differs.

    Keys that are not set appear as comments. `read_config` reads the text back to an equal configuration.
    """
    head = "# A run of `ludus train`. `#key` is a key that is not set; all others are in force.\n"
    values = (config or read_config(None)).model_dump(mode="json")
    return head + "\n".join(_table(schema.root(), values, ())) + "\n"


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        toml_files = {str(file) for file in path.parent.glob("*.toml") if file.name != "pyproject.toml"}
        near = difflib.get_close_matches(str(path), toml_files, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(f"there is no configuration file {path}{hint}") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def _apply(table: Any, override: str) -> schema.Path:
    """Put one `--section.key=value` into the table and return its path."""
    name, equals, text = override.removeprefix("--").partition("=")
    path = tuple(name.split("."))
    if not override.startswith("--") or not equals or not all(path):
        raise ConfigError(f"{override!r} is no value: write --section.key=value, such as --rollouts.group_size=4")
    if any("\ud800" <= char <= "\udfff" for char in override):
        raise ConfigError(f"{override!r} is not UTF-8 text")
    for depth, key in enumerate(path, start=1):
        nodes, is_last = schema.kinds(path[:depth]), depth == len(path)
        at: Any = int(key) if isinstance(table, list) and key.isdecimal() else key
        if not nodes:
            raise ConfigError(f"{override}: {schema.describe_unknown(path[:depth])}")
        if isinstance(table, list) and at <= len(table):
            table += [None] * (at == len(table))
        elif isinstance(table, dict):
            table.setdefault(at, None)
        else:
            raise ConfigError(f"{override}: {'.'.join(path[: depth - 1])} = {table!r} has no place for {key}")
        if is_last or table[at] is None:
            empty: Any = [] if any("items" in kind for kind in nodes) else {}
            table[at] = _value(text, nodes) if is_last else empty
        table = table[at]
    return path


def _value(text: str, nodes: Sequence[schema.Node]) -> Any:
    """Return the value of the text after `=` for such a key: TOML, or the text itself; None for `none`."""
    types = {kind.get("type") for kind in nodes}
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return None if text == "none" and "null" in types else text
    return text if "string" in types and not isinstance(value, str) else value  # as in `--model.path=7`


def _explain(detail: ErrorDetails, sources: dict[schema.Path, str], file: str) -> str:
    path = tuple(str(part) for part in detail["loc"])
    name, value, kind = ".".join(path), detail["input"], detail["type"]
    source = next((text for key, text in reversed(sources.items()) if path[: len(key)] == key), file)
    if kind == "extra_forbidden":
        return f"{source}: {schema.describe_unknown(path)}"
    if kind == "missing":
        return f"{source}: {name} is missing: {schema.description(schema.field(path))}"
    if kind == "path_not_file":
        return f"{source}: {name}: there is no file {value} (seen from {Path.cwd()})"
    if kind == "tuple_type" and isinstance(value, dict):
        return f"{source}: {name} is a list of tables: write [[{name}]], not [{name}]"
    message = detail["msg"].removeprefix("Value error, ").replace("Input should be", "must be").replace("Tuple", "List")
    message = message.replace("must be an object", "must be a table").replace("a valid string", "text in quotes")
    if message == "must be a table" and isinstance(value, str) and value.startswith("{"):
        message += ", written as in TOML: {key = 1}"
    assigned = "" if isinstance(value, dict) else f" = {json.dumps(value, ensure_ascii=False)}"
    return f"{source}: {name}{assigned}: {message}"


# ---- writing


def _table(
    node: schema.Node, values: dict[str, Any] | None, path: schema.Path, *, listed: bool = False
) -> Iterator[str]:
    """Yield the lines of a table: first its values, then its tables, as TOML requires. Unset keys are `#key = …`."""
    off = "#" if values is None else ""
    if path:
        name = ".".join(path)
        yield f"\n\n# {schema.description(node)}"
        yield off + (f"[[{name}]]" if listed else f"[{name}]")
    tables: list[tuple[str, schema.Node, bool]] = []
    for name, field in node["properties"].items():
        nodes = schema.alternatives(field)
        inner = [(kind, False) for kind in nodes]
        inner += [(kind, True) for outer in nodes if "items" in outer for kind in schema.alternatives(outer["items"])]
        below = [(name, kind, listed_table) for kind, listed_table in inner if "properties" in kind]
        tables += below
        if not below:
            choices = ", ".join(str(choice) for kind in nodes for choice in kind.get("enum", ()))
            text = schema.description(field) + (f" ({choices})" if choices else "")
            yield ""
            yield from textwrap.wrap(text, 110, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
            yield _line(name, field, values)
    for name, kind, listed_table in tables:
        table_values = None if values is None else values[name]
        for entry in (table_values or [None]) if listed_table else [table_values]:
            yield from _table(kind, entry, (*path, name), listed=listed_table)


def _line(name: str, field: schema.Node, values: dict[str, Any] | None) -> str:
    default = field.get("default")
    value = default if values is None else values[name]
    off = "#" if values is None or value is None else ""
    changed = values is not None and "default" in field and value != default
    note = f"  # default: {'not set' if default is None else _toml(default)}" if changed and value is not None else ""
    return f"{off}{name} ={'' if value is None else f' {_toml(value)}'}{note}"


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_toml(key)} = {_toml(item)}" for key, item in value.items()) + " }"
    # JSON's escapes are valid in TOML, except that JSON does not escape DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
