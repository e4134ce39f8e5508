"""Choose the faults that tasks may have, and write `faults.json`.

    python -m ludus.environments.swe.selection

It is run again after a blueprint or a kind of derived faults has changed; it takes some minutes. A derived fault stays
if in each of some repositories the visible tests pass with it, a hidden test always fails, and a short session shows
it, from which a visible test follows that fails with it and passes without.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import combinations
from pathlib import Path
from textwrap import indent
from typing import Any, Final, NamedTuple

from ludus.environments.swe.blueprint import Blueprint, Fault, blueprint, fill, names
from ludus.environments.swe.catalog import FILE, fault_named, reserve_of
from ludus.environments.swe.mutations import derived_faults
from ludus.environments.swe.problem import assemble, every_check, with_faults, words_for
from ludus.environments.swe.reference import Check, outcomes_of
from ludus.environments.swe.reports import find_session, written_report
from ludus.environments.swe.searching import search_repair, visible_tests_pass
from ludus.server.authoring.partition import digest

REPOSITORIES: Final = 5
"""In how many repositories, with domains and constants of their own, a fault is tried."""
MOST_PAIRS: Final = 80
"""How many pairs of faults are kept of the faults in reserve, and as many of the others."""
DIGESTS: Final = "--digests"
"""The argument of the processes that `unstable` compares."""
_SECONDS: Final = 2
"""Of processor time."""


class _Endless(BaseException):
    """A package did not return."""


class Repository(NamedTuple):
    """A right repository in which faults are tried.

    Attributes:
        seed: what it is drawn from.
        words: what open names stand for.
        sound: the modules.
        tests: the modules of visible tests.
        checks: the hidden tests, each with its key.
        expected: what they note.
    """

    seed: str
    words: Mapping[str, str]
    sound: Mapping[str, str]
    tests: Mapping[str, str]
    checks: Sequence[tuple[str, Check]]
    expected: Sequence[Any]

    def failing(self, modules: Mapping[str, str]) -> tuple[set[str], set[str]]:
        """Return the keys of the hidden tests that fail each time, and of those that fail at all."""
        outcomes = outcomes_of(modules, [check for _, check in self.checks])
        failed = [outcome != other for outcome, other in zip(outcomes, self.expected, strict=True)]
        some = {key for (key, _), fails in zip(self.checks, failed, strict=True) if fails}
        return some - {key for (key, _), fails in zip(self.checks, failed, strict=True) if not fails}, some


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raise `_Endless` in a block that takes longer."""

    def stop(number: int, frame: object) -> None:
        raise _Endless

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@cache
def repository(template: str, number: int) -> Repository:
    """Return a right repository of a blueprint."""
    made, seed = blueprint(template), f"selection:{number}"
    domain = number % len(made.domains)
    problem = assemble(made, "medium", "otter", domain, [], seed)
    words = words_for(made, domain, "otter", random.Random(digest(f"problem:{seed}")))
    keys = [key for key in every_check(made) for _ in range(len(problem.checks) // len(every_check(made)))]
    checks = list(zip(keys, problem.checks, strict=True))
    tests = {path: fill(text, words) for path, text in made.tests.items()}
    sound = {path: text for path, text in problem.sound.items() if path.removeprefix("otter/") in _own(made, words)}
    return Repository(seed, words, sound, tests, checks, outcomes_of(problem.sound, problem.checks))


def _own(made: Blueprint, words: Mapping[str, str]) -> set[str]:
    return {fill(path, words) for path in made.files}


def trial_of(template: str, fault: Fault) -> dict[str, Any] | None:
    """Return what `faults.json` says about a fault; None if it suits no task."""
    always: set[str] | None = None
    sometimes: set[str] = set()
    searchable = False
    try:
        for number in range(REPOSITORIES):
            with _within(_SECONDS):
                each, some = _failing(repository(template, number), fault)
            always, sometimes = each if always is None else always & each, sometimes | some
            if not always:
                return None
        for number in range(REPOSITORIES if fault.derived else 1):
            example = _example(repository(template, number), fault, sorted(always or ()))
            if example is None:
                return None
            if number == 0 and not fault.derived:
                searchable = _is_searchable(repository(template, 0), fault, example)
    except (_Endless, MemoryError, SyntaxError):
        return None
    return {"always": sorted(always or ()), "sometimes": sorted(sometimes), "searchable": searchable}


def _failing(place: Repository, fault: Fault) -> tuple[set[str], set[str]]:
    given = with_faults(place.sound, [fault], place.words)
    if fault.derived and not visible_tests_pass(given, place.tests):
        return set(), set()
    return place.failing(given)


def _example(place: Repository, fault: Fault, keys: Sequence[str]) -> dict[str, str] | None:
    """Return the visible tests with those that show a fault; None if it has no session, or they do not show it."""
    tests, given = dict(place.tests), with_faults(place.sound, [fault], place.words)
    if fault.derived:
        texts = list(dict.fromkeys(check.text for key, check in place.checks if key in keys))
        with _within(4 * _SECONDS):
            session = find_session("otter", [place.sound], [given], texts, f"{place.seed}:{fault.name}")
        if session is None:
            return None
        first = next(iter(tests))
        method = written_report(session, "otter", f"{place.seed}:{fault.name}").example
        tests[first] += f"\n{indent(method, '    ')}"
    else:
        for path, method in fault.examples.items():
            tests[path] += f"\n{indent(fill(method, place.words), '    ')}"
    with _within(_SECONDS):
        shows = visible_tests_pass(place.sound, tests) and not visible_tests_pass(given, tests)
    return tests if shows else None


def _is_searchable(place: Repository, fault: Fault, tests: Mapping[str, str]) -> bool:
    """Return whether exchanging tokens of the modules that the hint names repairs a fault."""
    given = with_faults(place.sound, [fault], place.words)
    named = [path for path in given if given[path] != place.sound[path]]
    repaired = search_repair(given, tests, named, pass_in_time)
    return repaired is not None and not place.failing(repaired)[1]


def pass_in_time(modules: Mapping[str, str], tests: Mapping[str, str]) -> bool:
    """Return whether the visible tests pass within a tenth of a second of processor time."""
    try:
        with _within(0.1):
            return visible_tests_pass(modules, tests)
    except _Endless:
        return False


def pairs_of(template: str, trials: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return pairs of faults of which each shows also with the other, in a fixed order."""
    made = blueprint(template)
    kept: list[tuple[str, str]] = []
    reserve = reserve_of(template, trials.keys() - made.faults.keys())
    for pool in (trials.keys() - reserve, reserve):
        every = sorted(combinations(sorted(pool), 2), key=lambda pair: digest(f"swe:{template}:{'+'.join(pair)}"))
        chosen: list[tuple[str, str]] = []
        for pair in every:
            if len(chosen) == MOST_PAIRS:
                break
            if _fit(made, pair, trials):
                chosen.append(pair)
        kept += chosen
    return kept


def _fit(made: Blueprint, pair: tuple[str, str], trials: Mapping[str, Mapping[str, Any]]) -> bool:
    faults = [fault_named(made, name) for name in pair]
    if not are_apart(made, faults):
        return False
    own = [
        set(trials[fault.name]["always"] if fault.derived else [f"fault {fault.name}"])
        - set(trials[other.name]["sometimes"])
        for fault, other in (faults, faults[::-1])
    ]
    if not all(own):
        return False
    try:
        for number in range(2):
            place = repository(made.name, number)
            with _within(_SECONDS):
                both = with_faults(place.sound, faults, place.words)
                each, _ = place.failing(both)
                if (
                    not all(keys & each for keys in own)
                    or (faults[0].derived or faults[1].derived)
                    and not visible_tests_pass(both, place.tests)
                ):
                    return False
            for fault, other, keys in zip(faults, faults[::-1], own, strict=True):
                if fault.derived:
                    right = [place.sound, with_faults(place.sound, [other], place.words)]
                    wrong = [with_faults(place.sound, [fault], place.words), both]
                    texts = list(dict.fromkeys(check.text for key, check in place.checks if key in keys))
                    with _within(4 * _SECONDS):
                        if find_session("otter", right, wrong, texts, f"{place.seed}:{fault.name}") is None:
                            return False
    except _Endless:
        return False
    return True


def are_apart(made: Blueprint, faults: Sequence[Fault]) -> bool:
    """Return whether faults may be in one task: their edits are in different places, and neither hides the other."""
    if any(other.name in fault.apart for fault in faults for other in faults):
        return False
    for first, second in combinations(faults, 2):
        for edit in first.edits:
            for other in second.edits:
                if edit.path == other.path and _overlap(made.files[edit.path], edit.right, other.right):
                    return False
    return True


def _overlap(text: str, first: str, second: str) -> bool:
    start, other = text.index(first), text.index(second)
    return start < other + len(second) and other < start + len(first)


def digests_of(template: str, chosen: Iterable[str]) -> dict[str, int]:
    """Return a digest of what the hidden tests note with each of some faults."""
    made, place = blueprint(template), repository(template, 0)
    checks = [check for _, check in place.checks]
    found = {}
    for name in chosen:
        given = with_faults(place.sound, [fault_named(made, name)], place.words)
        found[name] = digest(json.dumps([outcomes_of(given, checks) for _ in range(2)]))
    return found


def unstable(template: str, chosen: Sequence[str]) -> set[str]:
    """Return the faults whose effects depend on the order of sets, which differs between processes."""
    runs = []
    for hash_seed in ("1", "2", "3", "4"):
        command = [sys.executable, "-m", "ludus.environments.swe.selection", DIGESTS, template, *chosen]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        runs.append(json.loads(subprocess.run(command, env=environment, check=True, capture_output=True).stdout))
    return {name for name in chosen if len({run[name] for run in runs}) > 1}


def content_of(template: str) -> dict[str, Any]:
    """Return what `faults.json` says about a blueprint."""
    every = {**blueprint(template).faults, **derived_faults(template)}
    trials = {name: trial for name, fault in every.items() if (trial := trial_of(template, fault)) is not None}
    for name in unstable(template, list(trials)):
        del trials[name]
    return {"faults": trials, "pairs": pairs_of(template, trials)}


def main(arguments: Sequence[str]) -> None:
    """Write `faults.json`, of some blueprints or of all."""
    if arguments[:1] == [DIGESTS]:
        sys.stdout.write(json.dumps(digests_of(arguments[1], arguments[2:])))
        return
    path = Path(__file__).parent / FILE
    for template in arguments or names():
        content = content_of(template)
        contents = json.loads(path.read_text("utf-8")) if path.exists() else {}
        contents[template] = content
        path.write_text(json.dumps(dict(sorted(contents.items())), indent=1) + "\n", "utf-8")
        sys.stdout.write(f"{template}: {len(content['faults'])} faults, {len(content['pairs'])} pairs\n")


if __name__ == "__main__":
    main(sys.argv[1:])
