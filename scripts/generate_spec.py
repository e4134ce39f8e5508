"""Write the generated parts of `spec/`: tables and diagrams in the text, the schemas, the requirement manifest.

    python scripts/generate_spec.py            write
    python scripts/generate_spec.py --check    exit with 1 when something is stale, writing nothing

A generated part of the text stands between two comments and is replaced as a whole:

    <!-- generated: fields StartParams -->
    …
    <!-- end -->
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from generate_schema import (
    ANY_ERRORS,
    METHOD_ERRORS,
    attribute_docstrings,
    definitions,
    docstring_of,
    outputs,
    write_or_check,
)
from spec_manifest import (
    MANIFEST,
    SPEC_DIR,
    chapters,
    core_pages,
    count_words,
    manifest_text,
    module_page,
    spec_requirements,
    wanted_manifest,
)

from ludus.protocol import METHODS, errors, identifiers, lifecycle, methods
from ludus.protocol.integers import LARGEST_INTEGER
from ludus.protocol.modules import FIELD_MODULES, METHOD_MODULES, Module
from ludus.protocol.negotiation import Settings

PART: Final = re.compile(
    r"(?P<open><!-- generated: (?P<kind>[a-z-]+)(?: (?P<argument>[^\n]*?))? -->\n).*?(?P<close><!-- end -->)", re.DOTALL
)


WHOLE_REQUEST: Final = (
    errors.Unauthenticated, errors.CapabilityRefused, errors.Forbidden, errors.PayloadTooLarge, errors.CapacityError,
)  # fmt: skip
"""The errors with which a whole HTTP request may be refused; others of the extension have no status of their own."""


@cache
def _schemas() -> Mapping[str, Any]:
    return definitions()


def table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [columns, tuple("---" for _ in columns), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in lines)


def one_line(text: str | None) -> str:
    """A docstring as one line."""
    return " ".join((text or "").split())


def type_text(schema: Mapping[str, Any]) -> str:
    """A JSON Schema in words for a table's cell."""
    if "$ref" in schema:
        return f"`{schema['$ref'].rsplit('/', 1)[-1]}`"
    if "anyOf" in schema:
        return " or ".join(type_text(option) for option in schema["anyOf"])
    if "oneOf" in schema:
        return " or ".join(type_text(option) for option in schema["oneOf"])
    if "enum" in schema:
        return " or ".join(f'`"{value}"`' for value in schema["enum"])
    if "const" in schema:
        return f'`"{schema["const"]}"`'
    match schema.get("type"):
        case "array" if "prefixItems" in schema:
            return "[" + ", ".join(type_text(item) for item in schema["prefixItems"]) + "]"
        case "array":
            return f"array of {type_text(schema.get('items', {}))}{_bounds(schema)}"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"object of {type_text(schema['additionalProperties'])}"
        case str(name):
            return name + _bounds(schema)
    return "any"


def _bounds(schema: Mapping[str, Any]) -> str:
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    parts = [
        f"{sign} {schema[key]:g}"
        for key, sign in signs.items()
        if key in schema and abs(schema[key]) != LARGEST_INTEGER  # which MTH-7 says of every integer
    ]
    match schema.get("minLength"), schema.get("maxLength"):
        case None, None:
            pass
        case least, most:
            parts.append(f"{least or 0} to {most} characters")
    if "maxItems" in schema:
        parts.append(f"at most {schema['maxItems']}")
    return f" ({', '.join(parts)})" if parts else ""


def fields(name: str) -> str:
    """The fields of one wire type, without those that belong to a module."""
    schema = _schemas()[name]
    rows = [
        _field(schema, field, f"`{field}`")
        for field in schema.get("properties", {})
        if (name, field) not in FIELD_MODULES
    ]
    return table((f"`{name}`", "type", "default", "meaning"), rows) if rows else f"`{name}` has no fields.\n"


def module_fields(name: str) -> str:
    """The fields that a module adds to types of the core."""
    rows = [
        _field(_schemas()[kind], field, f"`{kind}.{field}`")
        for (kind, field), module in FIELD_MODULES.items()
        if module == name
    ]
    return table(("field", "type", "default", "meaning"), rows)


def _field(schema: Mapping[str, Any], field: str, label: str) -> tuple[str, str, str, str]:
    shape = schema["properties"][field]
    default = "required" if field in schema.get("required", []) else _default(shape)
    return label, type_text(shape), default, one_line(shape.get("description"))


def _default(shape: Mapping[str, Any]) -> str:
    if "const" in shape:
        return f'`"{shape["const"]}"`'
    value = shape["default"]
    if value is None:
        return "`null`"
    return f'`"{value}"`' if isinstance(value, str) else f"`{str(value).lower()}`"


def method(name: str) -> str:
    """One method: what it does, its scope, params, result and errors."""
    entry = METHODS[identifiers.METHOD_PREFIX + name]
    kinds = ", ".join(str(kind.code) for kind in METHOD_ERRORS[entry.name])
    params, result = (_schemas()[kind.__name__] for kind in (entry.params, entry.result))
    asked = f"{one_line(params['description'])}\n\n{fields(entry.params.__name__)}\n" if params["properties"] else ""
    return (
        f"{asked}Result: {one_line(result['description'])}\n\n{fields(entry.result.__name__)}\n"
        f"{f'Errors: {kinds}.{chr(10)}' if kinds else ''}"
    )


def core_methods(_: str) -> str:
    """The methods of the core, each with a link to its section."""
    rows = []
    for entry in METHODS.values():
        name = entry.name.removeprefix(identifiers.METHOD_PREFIX)
        if name not in METHOD_MODULES:
            rows.append((f"`{entry.name}`", entry.summary))
    return table(("method", "what it does"), rows)


def module_table(_: str) -> str:
    """Every module with its page, the number of its requirements and what the settings hold for it."""
    counts = Counter(found.chapter for found in spec_requirements().values() if found.level == "MUST")
    rows = []
    for module in Module:
        page = module_page(module)
        about = one_line(docstring_of(Module, module.name))
        rows.append((f"[`{module}`]({page})", str(counts[page]), about, _settings_of(module)))
    return table(("module", "MUSTs", "what it is", "its settings"), rows)


def _settings_of(module: Module) -> str:
    return f"`{json.dumps(Settings.of(frozenset({module})).to_wire()['modules'][module])}`"


def any_errors(_: str) -> str:
    """The errors that every method may answer."""
    return ", ".join(str(kind.code) for kind in ANY_ERRORS) + ".\n"


def error_table(_: str) -> str:
    """Every error that travels. A class that has more specific ones, such as `NotFound`, does not."""
    rows = []
    for kind in _leaves(errors.LudusError):
        if kind.code and len(_leaves(kind)) == 1:
            status = str(kind.http_status) if kind in WHOLE_REQUEST else ""
            rows.append((str(kind.code), f"`{kind.__name__}`", status, one_line(kind.__doc__)))
    return table(("code", "name", "HTTP status", "meaning"), rows)


def _leaves(kind: type[errors.LudusError]) -> list[type[errors.LudusError]]:
    ours = (child for child in kind.__subclasses__() if child.__module__ == errors.__name__)
    return [kind, *(leaf for child in ours for leaf in _leaves(child))]


def lifecycle_diagram(_: str) -> str:
    """The lifecycle as Mermaid."""
    return f"```mermaid\n{lifecycle.mermaid()}```\n"


def statuses(_: str) -> str:
    """Every status."""
    rows = [
        (f"`{status}`", "yes" if status in lifecycle.FINAL_STATUSES else "no",
         one_line(docstring_of(lifecycle.EpisodeStatus, status.name)))
        for status in lifecycle.EpisodeStatus
    ]  # fmt: skip
    return table(("status", "final", "meaning"), rows)


def end_reasons(_: str) -> str:
    """Every end reason with the status it leads to."""
    rows = []
    for reason in lifecycle.EndReason:
        status = lifecycle.TRANSITIONS[lifecycle.EpisodeStatus.RUNNING, lifecycle.EVENT_OF_REASON[reason]]
        marks = ("yes" if mark else "no" for mark in (lifecycle.is_terminated(reason), lifecycle.is_truncated(reason)))
        rows.append(
            (f"`{reason}`", f"`{status}`", *marks, one_line(docstring_of(lifecycle.EndReason, reason.name)))
        )  # fmt: skip
    return table(("end reason", "status", "terminated", "truncated", "meaning"), rows)


def scopes(_: str) -> str:
    """Every scope with the methods it opens."""
    rows = []
    for scope in methods.Scope:
        names = [f"`{m.name.removeprefix(identifiers.METHOD_PREFIX)}`" for m in METHODS.values() if m.scope is scope]
        rows.append((f"`{scope}`", ", ".join(names) or one_line(docstring_of(methods.Scope, scope.name))))
    rows.append(
        (
            f"`{methods.SPLIT_SCOPE_PREFIX}<name>`",
            one_line(attribute_docstrings(methods.__name__)[""]["SPLIT_SCOPE_PREFIX"]),
        )
    )
    return table(("scope", "opens"), rows)


def names(_: str) -> str:
    """The identifiers and paths."""
    rows = [
        ("extension identifier", identifiers.EXTENSION_ID),
        ("version", identifiers.EXTENSION_VERSION),
        ("method prefix", identifiers.METHOD_PREFIX),
        ("control plane", identifiers.CONTROL_PATH),
    ]
    return table(("what", "value"), [(what, f"`{value}`") for what, value in rows])


def summary(_: str) -> str:
    """How many requirements and words the core and the modules have."""
    levels = ("MUST", "SHOULD", "MAY")
    pages = {"core": core_pages(), "modules": [SPEC_DIR / module_page(module) for module in Module]}
    rows = []
    for part, found in pages.items():
        counts = Counter(one.level for one in spec_requirements().values() if one.chapter.startswith(part))
        rows.append((part, *(str(counts[level]) for level in levels), f"{count_words(found):,}"))
    return table(("part", *(f"`{level}`" for level in levels), "words"), rows)


GENERATORS: Final[Mapping[str, Callable[[str], str]]] = {
    "any-errors": any_errors,
    "end-reasons": end_reasons,
    "errors": error_table,
    "fields": fields,
    "lifecycle": lifecycle_diagram,
    "method": method,
    "methods": core_methods,
    "module-fields": module_fields,
    "modules": module_table,
    "names": names,
    "scopes": scopes,
    "statuses": statuses,
    "summary": summary,
}


def rendered(text: str) -> str:
    """A chapter with its generated parts brought up to date.

    Raises:
        KeyError: a part of an unknown kind, type or method.
    """

    def replace(match: re.Match[str]) -> str:
        body = GENERATORS[match["kind"]](match["argument"] or "")
        return f"{match['open']}\n{body}\n{match['close']}"

    return PART.sub(replace, text)


def all_outputs() -> dict[Path, str]:
    """Every file under `spec/` that is written here, with its text."""
    texts = {path: rendered(path.read_text("utf-8")) for path in chapters()}
    return {**outputs(), **texts, MANIFEST: manifest_text(wanted_manifest())}


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when something is stale")
    return write_or_check(all_outputs(), parser.parse_args().check, "scripts/generate_spec.py")


if __name__ == "__main__":
    sys.exit(main())
