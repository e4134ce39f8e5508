"""Write `spec/schema/`: JSON Schemas of every wire type and of evaluations, an OpenRPC document of every method.

The JSON Schema of the rollout service is written to `docs/assets/`.

    python scripts/generate_schema.py            write the files
    python scripts/generate_schema.py --check    exit with 1 when a file is stale, writing nothing

The types are read from `ludus.protocol`. `WireModel` does not collect attribute docstrings when it is imported
(that costs start-up time), so they are read here, from the source.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from pydantic.json_schema import models_json_schema
from pydantic_core import to_jsonable_python

from ludus.gateway.service import json_schema
from ludus.protocol import (
    METHODS,
    Method,
    WireModel,
    actions,
    content,
    episodes,
    errors,
    evaluation,
    identifiers,
    jsonrpc,
    lifecycle,
    methods,
    negotiation,
    rewards,
    tasks,
    worlds,
)

ROOT: Final = Path(__file__).resolve().parent.parent
SCHEMA_DIR: Final = ROOT / "spec" / "schema"
SCHEMA_FILE: Final = "episodes.schema.json"
OPENRPC_FILE: Final = "openrpc.json"
EVALUATION_FILE: Final = "evaluation.schema.json"
ROLLOUT_SERVICE_FILE: Final = ROOT / "docs" / "assets" / "rollout-service.schema.json"
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
ID_BASE: Final = "https://ludus.dev/schema/"
SCHEMA_ID: Final = f"{ID_BASE}episodes/{identifiers.EXTENSION_VERSION}"

MODULES: Final[tuple[ModuleType, ...]] = (
    actions, content, episodes, errors, identifiers, jsonrpc, lifecycle, methods, negotiation,
    rewards, tasks, worlds,
)  # fmt: skip
"""Every public module of the protocol, for docstrings."""

LISTING_ERRORS: Final = (errors.EnvironmentNotFound, errors.SplitNotFound)
EPISODE_ERRORS: Final = (errors.EpisodeNotFound,)

METHOD_ERRORS: Final[Mapping[str, tuple[type[errors.LudusError], ...]]] = {
    methods.LIST_ENVIRONMENTS.name: (),
    methods.LIST_SPLITS.name: (errors.EnvironmentNotFound,),
    methods.LIST_TASKS.name: (*LISTING_ERRORS, errors.EnvironmentFailed),
    methods.GET_TASK.name: (*LISTING_ERRORS, errors.TaskNotFound, errors.EnvironmentFailed),
    methods.SAMPLE_TASKS.name: (*LISTING_ERRORS, errors.EnvironmentFailed),
    methods.START.name: (
        *LISTING_ERRORS, errors.TaskNotFound, errors.KeyConflict, errors.Unsupported, errors.CapacityError,
        errors.EnvironmentFailed, errors.InfrastructureFailed,
    ),
    methods.STEP.name: (
        *EPISODE_ERRORS, errors.StepConflict, errors.KeyConflict, errors.EpisodeEnded, errors.CapacityError,
        errors.EnvironmentFailed, errors.InfrastructureFailed,
    ),
    methods.GRADE.name: (
        *EPISODE_ERRORS, errors.KeyConflict, errors.EpisodeEnded, errors.CapacityError, errors.EnvironmentFailed,
        errors.InfrastructureFailed,
    ),
    methods.REWARDS.name: EPISODE_ERRORS,
    methods.GET_EPISODE.name: EPISODE_ERRORS,
    methods.FORK.name: (
        *EPISODE_ERRORS, errors.KeyConflict, errors.Unsupported, errors.CapacityError,
        errors.EnvironmentFailed, errors.InfrastructureFailed,
    ),
    methods.CLOSE.name: EPISODE_ERRORS,
    methods.SCORE_GROUP.name: (
        errors.EpisodeNotFound, errors.GroupNotFound, errors.KeyConflict, errors.Unsupported, errors.EnvironmentFailed,
    ),
    methods.REPORT_OUTCOMES.name: (
        *LISTING_ERRORS, errors.TaskNotFound, errors.KeyConflict, errors.EnvironmentFailed,
    ),
    methods.LIST_WORLDS.name: (),
    methods.GET_WORLD.name: (errors.WorldNotFound,),
    methods.BRANCH_WORLD.name: (
        errors.WorldNotFound, errors.WorldVersionNotFound, errors.KeyConflict, errors.CapacityError,
        errors.InfrastructureFailed,
    ),
    methods.RESET_WORLD.name: (
        errors.WorldNotFound, errors.WorldVersionNotFound, errors.KeyConflict, errors.WorldBusy,
    ),
    methods.DELETE_WORLD.name: (errors.WorldBusy,),
}  # fmt: skip
"""What each method may answer besides the errors that any may: `ANY_ERRORS`."""

ANY_ERRORS: Final[tuple[type[errors.LudusError], ...]] = (
    errors.InvalidParams, errors.Unauthenticated, errors.Forbidden, errors.PayloadTooLarge, errors.InternalError,
    errors.ShuttingDown,
)  # fmt: skip
"""What every method may answer."""

RULES: Final[Mapping[str, dict[str, Any]]] = {
    "GetTaskParams": {
        "oneOf": [
            {"properties": {"task": {"type": "string"}, "index": {"type": "null"}}, "required": ["task"]},
            {"properties": {"task": {"type": "null"}, "index": {"type": "integer"}}, "required": ["index"]},
        ]
    },
    "StartParams": {
        "not": {
            "properties": {"task": {"type": "string"}, "index": {"type": "integer"}},
            "required": ["task", "index"],
        }
    },
    "WorldChoice": {
        "anyOf": [
            {"properties": {"branch": {"const": False}, "version": {"type": "null"}}},
            {"properties": {"branch": {"const": True}, "id": {"type": "string"}}, "required": ["branch", "id"]},
        ]
    },
    "Reward": {
        "oneOf": [
            {"properties": {"value": {"type": "number"}}},
            {
                "properties": {"value": {"type": "null"}, "reason": {"type": "string", "minLength": 1}},
                "required": ["reason"],
            },
        ]
    },
}
"""What model validators demand beyond the types of single fields."""


COMMON: Final[Mapping[str, str]] = {
    "environment": "The environment's name.",
    "split": "The split's name.",
    "task": "The task's id.",
    "index": "The task's place in its split, from 0.",
    "episode": "The episode's id.",
    "group": "The group's id.",
    "key": "The idempotency key: new for each new request, the same when it is sent again.",
    "seed": "The seed of the episode's randomness.",
    "tool": "The tool's name.",
    "arguments": "The tool's arguments.",
    "status": "The episode's status.",
    "end_reason": "Why the episode ended; null while it has not.",
}
"""What a field of that name means wherever the type does not say."""

_WHOLE_OBJECTS: Final = ("#/$defs/TaskRow", "#/$defs/StartedEpisode")
"""Types that a field holds whole, where `COMMON` speaks of a name or an id."""


@cache
def attribute_docstrings(module: str) -> Mapping[str, Mapping[str, str]]:
    """The strings under the attributes of a module's classes, by class and attribute; `""` holds the module's own."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return {"": dict(_documented(tree.body)), **{node.name: dict(_documented(node.body)) for node in classes}}


def _documented(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for statement, following in zip(body, body[1:], strict=False):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                pass
            case _:
                continue
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            if isinstance(following.value.value, str):
                yield name, inspect.cleandoc(following.value.value)


def docstring_of(kind: type, attribute: str) -> str | None:
    """The docstring under `attribute` in the class that declares it."""
    for base in kind.__mro__:
        if base.__module__.startswith("ludus.protocol."):
            found = attribute_docstrings(base.__module__).get(base.__name__, {}).get(attribute)
            if found is not None:
                return found
    return None


def wire_models() -> list[type[WireModel]]:
    """Every wire type, in the order of the modules."""
    found: dict[str, type[WireModel]] = {}
    for module in MODULES:
        for name, value in vars(module).items():
            if isinstance(value, type) and issubclass(value, WireModel) and value.__module__ == module.__name__:
                found[name] = value
    return list(found.values())


def definitions() -> dict[str, Any]:
    """The schemas of all wire types by name, with descriptions from the docstrings."""
    models = wire_models()
    _, document = models_json_schema([(model, "validation") for model in models])
    by_name: dict[str, type] = {model.__name__: model for model in models}
    by_name |= {kind.__name__: kind for kind in (lifecycle.EpisodeStatus, lifecycle.EndReason)}
    for name, schema in document["$defs"].items():
        kind = by_name[name]
        schema.pop("title", None)
        schema["description"] = inspect.cleandoc(kind.__doc__ or "")
        schema |= RULES.get(name, {})
        for field, info in getattr(kind, "model_fields", {}).items():
            shape = schema["properties"][info.alias]
            shape.pop("title", None)
            if "const" in shape and info.alias not in schema.get("required", ()):
                schema["required"] = [*schema.get("required", ()), info.alias]
            if info.default_factory is not None:  # pydantic leaves these defaults out
                default = info.get_default(call_default_factory=True, validated_data={})
                shape["default"] = to_jsonable_python(default, exclude_none=True)
            names_it = shape.get("type") != "array" and shape.get("$ref") not in _WHOLE_OBJECTS
            text = docstring_of(kind, field) or (COMMON.get(field) if names_it else None)
            if text is not None:
                shape["description"] = text
    _drop_discriminators(document["$defs"])
    return dict(document["$defs"])


def _drop(schema: Any, keyword: str, is_superfluous: Callable[[Any], bool]) -> None:
    """Remove a keyword from a schema and its parts where its value is superfluous; `properties` may hold its name."""
    if isinstance(schema, dict):
        if keyword in schema and is_superfluous(schema[keyword]):
            del schema[keyword]
        for part in schema.values():
            _drop(part, keyword, is_superfluous)
    elif isinstance(schema, list):
        for part in schema:
            _drop(part, keyword, is_superfluous)


def _drop_discriminators(schema: Any) -> None:
    """Remove `discriminator`, which is OpenAPI's keyword and not JSON Schema's."""
    _drop(schema, "discriminator", lambda value: isinstance(value, dict) and "propertyName" in value)


def schema_document() -> dict[str, Any]:
    """The JSON Schema document: all types under `$defs`."""
    return {
        "$schema": DIALECT,
        "$id": SCHEMA_ID,
        "title": f"Ludus Episodes {identifiers.EXTENSION_VERSION}",
        "description": "Every wire type of the extension. Generated by scripts/generate_schema.py.",
        "$defs": definitions(),
    }


def evaluation_document() -> dict[str, Any]:
    """The JSON Schema of the results of `ludus eval`."""
    schema = evaluation.EvaluationResults.model_json_schema()
    _drop(schema, "title", lambda value: isinstance(value, str))  # pydantic makes titles of names
    _drop_discriminators(schema)
    return {
        "$schema": DIALECT,
        "$id": f"{ID_BASE}{evaluation.EVALUATION_FORMAT.removeprefix('ludus.')}",
        "title": f"Results of an evaluation, {evaluation.EVALUATION_FORMAT}",
        **schema,
    }


def openrpc_document() -> dict[str, Any]:
    """The methods as OpenRPC 1.3: params by name, results, errors and the scope each needs (`x-scope`)."""
    schemas = definitions()
    kinds = {kind.__name__: kind for names in METHOD_ERRORS.values() for kind in (*names, *ANY_ERRORS)}
    return {
        "openrpc": "1.3.2",
        "info": {
            "title": f"Ludus Episodes ({identifiers.EXTENSION_ID})",
            "version": identifiers.EXTENSION_VERSION,
            "description": "Generated by scripts/generate_schema.py.",
        },
        "methods": [_openrpc_method(method, schemas) for method in METHODS.values()],
        "components": {
            "schemas": _pointing_to_components(schemas),
            "errors": {
                name: {"code": kind.code, "message": inspect.cleandoc(kind.__doc__ or "")}
                for name, kind in sorted(kinds.items(), key=lambda item: item[1].code)
            },
        },
    }


def _pointing_to_components(schema: Any) -> Any:
    """Return a copy whose references point into the OpenRPC document, so that it needs no other file."""
    if isinstance(schema, dict):
        return {
            key: value.replace("#/$defs/", "#/components/schemas/") if key == "$ref" else _pointing_to_components(value)
            for key, value in schema.items()
        }
    return [_pointing_to_components(part) for part in schema] if isinstance(schema, list) else schema


def _openrpc_method(method: Method[Any, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    params = schemas[method.params.__name__]
    required = params.get("required", [])
    return {
        "name": method.name,
        "summary": method.summary,
        "description": params["description"],
        "paramStructure": "by-name",
        "params": [
            {
                "name": name,
                "required": name in required,
                "schema": {"$ref": f"#/components/schemas/{method.params.__name__}/properties/{name}"},
            }
            for name in params["properties"]
        ],
        "result": {
            "name": method.result.__name__,
            "schema": {"$ref": f"#/components/schemas/{method.result.__name__}"},
        },
        "errors": [
            {"$ref": f"#/components/errors/{kind.__name__}"} for kind in (*ANY_ERRORS, *METHOD_ERRORS[method.name])
        ],
        "x-scope": str(method.scope),
        "x-params": method.params.__name__,
    }


def outputs() -> dict[Path, str]:
    """Every file this script writes, with its text."""
    documents = {
        SCHEMA_DIR / SCHEMA_FILE: schema_document(),
        SCHEMA_DIR / OPENRPC_FILE: openrpc_document(),
        SCHEMA_DIR / EVALUATION_FILE: evaluation_document(),
        ROLLOUT_SERVICE_FILE: json_schema(),
    }
    return {path: json.dumps(document, indent=2, ensure_ascii=False) + "\n" for path, document in documents.items()}


def write_or_check(wanted: Mapping[Path, str], check: bool, command: str) -> int:
    """Write the files, or say which are stale. Returns the exit status."""
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text("utf-8") != text]
    for path in stale:
        if check:
            print(f"{path.relative_to(ROOT)} is stale: run `python {command}`", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path], "utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    return 1 if check and stale else 0


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when a file is stale")
    return write_or_check(outputs(), parser.parse_args().check, "scripts/generate_schema.py")


if __name__ == "__main__":
    sys.exit(main())
