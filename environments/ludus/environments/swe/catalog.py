"""The faults that tasks may have: those that people wrote, and those made from the sources that stood the trials.

`faults.json` has what was measured about each of them; `python -m ludus.environments.swe.selection` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

from ludus.environments.swe.blueprint import Blueprint, Fault, blueprint
from ludus.environments.swe.mutations import derived_faults
from ludus.server.authoring.partition import digest

FILE: Final = "faults.json"


class Trial(NamedTuple):
    """What was measured about a fault.

    Attributes:
        always: the hidden tests that always fail with it, by their keys.
        sometimes: the ones that failed at least once.
        searchable: whether a program repairs it that exchanges tokens until a visible test passes.
    """

    always: tuple[str, ...]
    sometimes: tuple[str, ...]
    searchable: bool


class Catalog(NamedTuple):
    """The faults of a blueprint.

    Attributes:
        trials: what was measured about each, by name.
        pairs: the pairs of which each fault shows also with the other.
    """

    trials: Mapping[str, Trial]
    pairs: tuple[tuple[str, str], ...]


@cache
def _recorded() -> dict[str, Catalog]:
    text = (resources.files("ludus.environments.swe") / FILE).read_text("utf-8")
    catalogs = {}
    for template, content in json.loads(text).items():
        trials = {
            name: Trial(tuple(trial["always"]), tuple(trial["sometimes"]), trial["searchable"])
            for name, trial in content["faults"].items()
        }
        catalogs[template] = Catalog(trials, tuple((first, second) for first, second in content["pairs"]))
    return catalogs


def catalog(template: str) -> Catalog:
    """Return the faults of a blueprint that tasks may have."""
    return _recorded()[template]


def fault_named(made: Blueprint, name: str) -> Fault:
    """Return a fault of a blueprint, written or derived.

    Raises:
        KeyError: there is none of that name.
    """
    return made.faults[name] if name in made.faults else derived_faults(made.name)[name]


def reserve_of(template: str, derived: Iterable[str]) -> frozenset[str]:
    """Return half of the derived faults of a blueprint, of which only fresh test tasks are made."""
    return frozenset(sorted(derived, key=lambda name: digest(f"swe:reserve:{template}:{name}"))[::2])


@cache
def reserve(template: str) -> frozenset[str]:
    """Return the faults of a blueprint in reserve for fresh test tasks."""
    return reserve_of(template, catalog(template).trials.keys() - blueprint(template).faults.keys())


def own_checks(template: str, name: str, other: str | None = None) -> tuple[str, ...]:
    """Return the keys of the hidden tests that are about a fault, and not about another one of the same task."""
    trials = catalog(template).trials
    own = (f"fault {name}",) if name in blueprint(template).faults else trials[name].always
    excluded = trials[other].sometimes if other is not None else ()
    return tuple(key for key in own if key not in excluded)


__all__ = ["FILE", "Catalog", "Trial", "catalog", "fault_named", "own_checks", "reserve", "reserve_of"]
