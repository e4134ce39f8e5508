"""Reading and writing the configuration: a TOML file, overrides `--section.key=value`, and output as TOML.

Values are not converted ("10" is not a number, 1 is not true). Every error names its key and the file or argument
that contains it.
"""

from __future__ import annotations

import difflib
import json
import re
import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from ludus.trainer.config import Section, TrainConfig
from ludus.trainer.errors import ConfigError, TrainerError

EXAMPLE: Final = {
    "output": "runs/first",
    "model": {"path": "Qwen/Qwen3-0.6B"},
    "environments": [{"url": "http://127.0.0.1:8000"}],
}
"""The keys that have no default, with example values."""


def read_config(path: str | Path | None, overrides: Sequence[str] = ()) -> TrainConfig:
    """Read the configuration of a run.

    Args:
        path: a TOML file; None for all defaults, with `EXAMPLE` for the keys that have none.
        overrides: `--section.key=value`, later ones win. List entries are addressed by number
            (`--environments.0.url=…`; the next free number adds an entry), values are TOML or plain text, and `none`
            unsets a key.

    Raises:
        ConfigError: the file cannot be read; a key is unknown, missing, or has a wrong value; a named file is absent.
    """
    table: dict[str, Any] = json.loads(json.dumps(EXAMPLE)) if path is None else _read_toml(Path(path))
    told: dict[tuple[str, ...], str] = {}
    for override in overrides:
        told[_override(table, override)] = override
    try:
        # As JSON, because strict validation then accepts arrays as tuples and text as paths, and no other conversion.
        config = TrainConfig.model_validate_json(json.dumps(table, default=str), strict=True)
    except ValidationError as error:
        # Pydantic also reports a list with invalid entries as too short.
        details = [d for d in error.errors(include_url=False) if d["type"] != "too_short" or not d["input"]]
        problems = [_explain(detail, told, path) for detail in details]
        raise ConfigError("\n".join(dict.fromkeys(problems))) from None
    _check_files(config)
    return config


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
    config = config or read_config(None)
    head = "# A run of `ludus train`. `#key` is a key that is not set; all others are in force.\n"
    return head + "\n".join(_section(type(config), config, ())) + "\n"


# ---- reading


def _read_toml(path: Path) -> dict[str, Any]:
    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text)
    except FileNotFoundError:
        near = difflib.get_close_matches(
            path.name, [other.name for other in path.parent.glob("*.toml") if other.name != "pyproject.toml"], n=1
        )
        hint = f"; did you mean {path.parent / near[0]}?" if near else ""
        raise ConfigError(f"there is no configuration file {path}{hint}") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        shown = f"\n    {text.splitlines()[int(line[1]) - 1].strip()}" if line else ""
        raise ConfigError(f"{path} is not valid TOML: {error}{shown}") from None


def _override(table: dict[str, Any], override: str) -> tuple[str, ...]:
    """Put one `--section.key=value` into the table and return its path."""
    name, equals, text = override.removeprefix("--").partition("=")
    path = tuple(name.split("."))
    if not override.startswith("--") or not equals or not all(path):
        raise ConfigError(f"{override!r} is no value: write --section.key=value, such as --rollouts.group_size=4")
    if any("\ud800" <= char <= "\udfff" for char in override):
        raise ConfigError(f"{override!r} is not UTF-8 text")
    kinds: list[Any] = [TrainConfig]
    for depth, key in enumerate(path):
        kinds.append(_child(kinds[-1], key))
        if kinds[-1] is None:
            raise ConfigError(f"{override}: {_unknown(path[: depth + 1])}")
    place: Any = table
    for key, kind in zip(path[:-1], kinds[1:-1], strict=True):
        if (where := _place(place, key, override)) is None:
            where = [] if any(get_origin(member) is tuple for member in _members(kind)) else {}
            _put(place, key, where)
        place = where
    _place(place, path[-1], override)
    _put(place, path[-1], _value(text, kinds[-1]))
    return path


def _place(table: Any, key: str, override: str) -> Any:
    """Return the value of a key; None if it is not set."""
    if isinstance(table, list):
        if int(key) > len(table):
            raise ConfigError(f"{override}: entry {key} is too far: the next free one is {len(table)}")
        return table[int(key)] if int(key) < len(table) else None
    if isinstance(table, dict):
        return table.get(key)
    raise ConfigError(f"{override}: what should have the key {key} is {table!r}")


def _put(table: Any, key: str, value: Any) -> None:
    if isinstance(table, list):
        table[int(key) : int(key) + 1] = [value]
    elif value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _value(text: str, kind: Any) -> Any:
    """Return the value of the text after `=` for a key of that type: TOML, or the text itself; None for `none`."""
    if text == "none" and NoneType in _members(kind):
        return None
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    # A text may look like a number, as in `--model.path=7`.
    return text if not _fits(value, kind) and _fits(text, kind) else value


def _fits(value: Any, kind: Any) -> bool:
    try:
        TypeAdapter(kind).validate_json(json.dumps(value, default=str), strict=True)
    except ValidationError:
        return False
    return True


def _check_files(config: TrainConfig) -> None:
    """Raise ConfigError if a file that the configuration names does not exist."""
    named = [("model.chat_template", config.model.chat_template)]
    for n, entry in enumerate(config.environments):
        if entry.curriculum:
            named.append((f"environments.{n}.curriculum.difficulty", entry.curriculum.difficulty))
    if config.sft:
        named += [(f"sft.demonstrations.{n}", file) for n, file in enumerate(config.sft.demonstrations)]
    if config.dpo:
        named += [(f"dpo.trajectories.{n}", file) for n, file in enumerate(config.dpo.trajectories)]
    for key, file in named:
        if file is not None and not file.is_file():
            raise ConfigError(f"{key}: there is no file {file} (seen from {Path.cwd()})")


# ---- explaining errors


def _explain(detail: ErrorDetails, told: dict[tuple[str, ...], str], file: str | Path | None) -> str:
    path = tuple(str(part) for part in detail["loc"])
    source = next(
        (text for known, text in reversed(told.items()) if path[: len(known)] == known), str(file or "config")
    )
    name = ".".join(path)
    if detail["type"] == "extra_forbidden":
        return f"{source}: {_unknown(path)}"
    field = _fields(_kind_at(path[:-1])).get(path[-1])
    if detail["type"] == "missing":
        return f"{source}: {name} is missing{f': {_one_line(field.description)}' if field else ''}"
    shown = detail["input"]
    if detail["type"] == "tuple_type" and isinstance(shown, dict):
        return f"{source}: {name} is a list of tables: write [[{name}]], not [{name}]"
    what = detail["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    what = what.replace("must be an object", "must be a table").replace("a valid string", "text in quotes")
    what = what.replace("Tuple", "The list").replace(" after validation", "")
    given = "" if isinstance(shown, dict) else f" = {json.dumps(shown, ensure_ascii=False)}"
    return f"{source}: {name}{given}: {what}"


def _unknown(path: tuple[str, ...]) -> str:
    """Return the message for a key that does not exist, with the key that was probably meant."""
    kind = _kind_at(path[:-1])
    known = list(_fields(kind))
    key, inside = path[-1], ".".join(path[:-1])
    if any(get_origin(member) is tuple for member in _members(kind)):
        return f"unknown key {inside}.{key}; entries of {inside} go by number, such as {inside}.0"
    prefix = f"{inside}." if inside else ""
    near = [f"{prefix}{name}" for name in difflib.get_close_matches(key, known, n=1)]
    if not near:
        everywhere = {p.rpartition(".")[2]: p for p in reversed(list(_paths(TrainConfig)))}
        near = [everywhere[name] for name in difflib.get_close_matches(key, everywhere, n=1, cutoff=0.75)]
    hint = (
        f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}" if known else f"{inside} is no table"
    )
    return f"unknown key {prefix}{key}; {hint}"


def _paths(kind: type[Section], prefix: str = "") -> Iterator[str]:
    """Yield the path of every key of a section and its subsections, with `0` for list entries."""
    for name, field in kind.model_fields.items():
        yield prefix + name
        for member in _members(field.annotation):
            listed = get_origin(member) is tuple and get_args(member)[0]
            inner = listed or member
            if _is_section(inner):
                yield from _paths(inner, f"{prefix}{name}.{'0.' if listed else ''}")


# ---- the types of keys


def _members(kind: Any) -> tuple[Any, ...]:
    """Return the alternatives of a type, without `Annotated`."""
    if get_origin(kind) is Annotated:
        return _members(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return tuple(member for part in get_args(kind) for member in _members(part))
    return (kind,)


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)


def _fields(kind: Any) -> dict[str, Any]:
    """Return the fields of a table type; an empty dict for any other type."""
    return next((dict(member.model_fields) for member in _members(kind) if _is_section(member)), {})


def _child(kind: Any, key: str) -> Any:
    """Return the type of a key within a type; None if the type cannot have that key."""
    if key in (fields := _fields(kind)):
        return fields[key].annotation
    for member in _members(kind):
        if get_origin(member) is dict:
            return get_args(member)[1]
        if get_origin(member) is tuple and key.isdecimal():
            return get_args(member)[0]
    return None


def _kind_at(path: tuple[str, ...]) -> Any:
    kind: Any = TrainConfig
    for key in path:
        kind = _child(kind, key)
    return kind


# ---- writing


def _section(kind: type[Section], value: Section | None, path: tuple[str, ...], listed: bool = False) -> Iterator[str]:
    """Yield the lines of a table: first its values, then its tables, as TOML requires. Unset keys are `#key = …`."""
    off = "#" if value is None else ""
    if path:
        yield f"\n\n# {_one_line((kind.__doc__ or '').split(chr(10) * 2)[0])}"
        yield off + (f"[[{'.'.join(path)}]]" if listed else f"[{'.'.join(path)}]")
    tables: list[tuple[str, type[Section], bool]] = []
    for name, field in kind.model_fields.items():
        members = [(member, False) for member in _members(field.annotation)]
        members += [(get_args(member)[0], True) for member, _ in members if get_origin(member) is tuple]
        inner = [(name, member, many) for member, many in members if _is_section(member)]
        tables += inner
        if not inner:
            yield from _comment(field)
            yield off + _line(name, field, value)
    for name, inner_kind, many in tables:
        held = None if value is None else getattr(value, name)
        for one in (held or (None,)) if many else (held,):
            yield from _section(inner_kind, one, (*path, name), many)


def _line(name: str, field: FieldInfo, section: Section | None) -> str:
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    held = default if section is None else getattr(section, name)
    if held is None:
        return f"#{name} =" if section is not None else f"{name} ="
    changed = section is not None and not field.is_required() and held != default
    return f"{name} = {_toml(held)}" + (f"  # default: {_toml(default)}" if changed else "")


def _comment(field: FieldInfo) -> Iterator[str]:
    choices = [part for member in _members(field.annotation) if get_origin(member) is Literal
               for part in get_args(member)]  # fmt: skip
    text = _one_line(field.description) + (f" ({', '.join(map(str, choices))})" if choices else "")
    yield ""
    yield from textwrap.wrap(text, 110, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        inside = ", ".join(f"{_toml(key)} = {_toml(item)}" for key, item in value.items())
        return f"{{ {inside} }}" if inside else "{}"
    if value is None:
        return "not set"
    # JSON's escapes are valid in TOML, except that JSON does not escape DEL.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
