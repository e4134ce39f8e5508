"""Checks of what a server does with methods and fields of modules that it does not announce."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ludus.conformance.checks import NotApplicable, Suite, expect
from ludus.conformance.context import NO_TOOL, CheckContext, new_key
from ludus.protocol.modules import FIELD_MODULES, METHOD_MODULES

suite = Suite()

_VALUES: Final[Mapping[tuple[str, str], Any]] = {
    ("StartParams", "limits"): {"maxSteps": 5},
    ("StartParams", "tools"): ["any"],
    ("StartParams", "secrets"): {"NAME": "value"},
    ("StartParams", "seats"): "all",
    ("StartParams", "opponent"): "any",
    ("StartParams", "world"): {},
    ("StepParams", "turn"): {"number": 1},
}
"""For fields of params that belong to a module, a value that is not the default."""

_TESTED: Final = _VALUES.keys() | {
    field for field in FIELD_MODULES if field[0] in ("StartedEpisode", "EnvironmentInfo")
}
"""The fields that the check sends, or finds in the results that it has."""


@suite.check("methods and fields of modules that the server does not announce are refused", "NEG-17", negative=True)
async def unannounced(context: CheckContext) -> None:
    methods = [name for name, module in METHOD_MODULES.items() if not context.offers(module)]
    fields = [field for field, module in FIELD_MODULES.items() if field in _TESTED and not context.offers(module)]
    if not methods and not fields:
        raise NotApplicable("the server announces every module that has methods or fields")
    for method in methods:
        await context.refused(-32601, method)
    start: dict[str, Any] = {**context.place, "key": new_key()}
    started = await context.start()
    step = {"episode": started["episode"], "step": 1, "tool": NO_TOOL[0], "arguments": {}, "key": new_key()}
    requests = {"StartParams": ("episodes/start", start), "StepParams": ("episodes/step", step)}
    results = {"StartedEpisode": started, "EnvironmentInfo": context.target.environment}
    for kind, field in fields:
        if kind in requests:
            method, params = requests[kind]
            reply = await context.refused(-32602, method, **params, **{field: _VALUES[kind, field]})
            expect(
                field in reply.message, f"the refusal of {method} does not name the field {field}: {reply.message!r}"
            )
        value = results.get(kind, {}).get(field)
        expect(
            _says_nothing(value), f"{field} of {kind} is {value!r}, although the server does not announce its module"
        )


def _says_nothing(value: Any) -> bool:
    """Return whether a value is null, false or an object of such values, as all defaults of modules' fields are."""
    return all(map(_says_nothing, value.values())) if isinstance(value, Mapping) else value in (None, False)
