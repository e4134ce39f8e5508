"""Limits: each ends a command, or makes it fail, under its name."""

from __future__ import annotations

import signal
from typing import Final

from ludus.sandbox import LimitName
from ludus.testing.sandbox_checks.bench import MIB, Ability, Bench, check

_PROGRAMS: Final[dict[LimitName, tuple[str, tuple[Ability, ...]]]] = {
    "seconds": ("sleep 100", ()),
    "cpu_seconds": ("while :; do :; done", ()),
    "memory": ("exec python3 -c 'a = bytearray(b\"x\" * 300_000_000)'", ("python",)),
    "processes": ("i=0; while [ $i -lt 100 ]; do sleep 20 & i=$((i+1)); done; wait; exit 1", ()),
    "file_size": ("exec head -c 16000000 /dev/full > large", ()),
    "disk": ("set -e; for i in 1 2 3 4 5 6 7 8; do head -c 6000000 /dev/full > $i; done; sleep 20", ()),
    "output": ("yes", ()),
}


async def _is_named(bench: Bench, name: LimitName) -> None:
    box = await bench.box(seconds=1.0 if name == "seconds" else 25.0, cpu_seconds=1.0)
    result = await box.run(["sh", "-c", _PROGRAMS[name][0]])
    assert result.limit == name, result
    assert not result.ok
    assert (await box.run(["true"])).ok


def _add(name: LimitName, ability: Ability) -> None:
    async def run(bench: Bench) -> None:
        await _is_named(bench, name)

    run.__name__ = f"the_limit_on_{name}_ends_a_command_under_its_name"
    check(ability, *_PROGRAMS[name][1])(run)


_add("seconds", "limit: seconds")
_add("cpu_seconds", "limit: cpu_seconds")
_add("memory", "limit: memory")
_add("processes", "limit: processes")
_add("file_size", "limit: file_size")
_add("disk", "limit: disk")
_add("output", "limit: output")


@check("limit: seconds", "limit: output")
async def tighter_limits_hold_for_one_command_and_looser_ones_do_not(bench: Bench) -> None:
    box = await bench.box()
    limits = bench.settings.limits
    short = await box.run(["sleep", "60"], limits=limits.but(seconds=0.1))
    assert (short.limit, short.exit_code, short.signal) == ("seconds", None, signal.SIGKILL)
    loud = ["sh", "-c", f"yes | head -c {2 * limits.output}"]
    long = await box.run(loud, limits=limits.but(output=100 * MIB))
    assert (long.limit, len(long.stdout)) == ("output", limits.output)
    assert (await box.run(["true"])).ok
