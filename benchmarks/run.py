"""Every figure that the project promises, next to its bar, in one run: `make bench`.

    python benchmarks/run.py [--only channel,ors,mcp_play,startup,trainer_update,…] [--quick]

Runs the benchmarks one after the other (never two at once) and writes benchmarks/RESULTS.md: the table of figures with
what was promised and what was measured, and of each benchmark the machine and its own output. With `--only` the parts
of the others stay as they are. With `--quick` the table is printed and no file is written.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
QUICK = {
    "channel": ["--quick"],
    "harness": ["--quick"],
    "endpoint": ["--quick"],
    "gateway": ["--quick"],
    "ors": ["--rounds", "1", "--seconds", "0.5"],
    "mcp_play": ["--rounds", "2", "--calls", "500"],
    "startup": ["--rounds", "3"],
    "bounds": ["--quick"],
    "floods": ["--seconds", "2", "--connections", "30"],
    "rubric": ["--rounds", "30"],
    "sandbox": ["--rounds", "5", "--seconds", "1"],
    "sandboxd": ["--rounds", "5"],
    "boxed": ["--quick"],
    "many": ["--active", "512", "--seconds", "10", "--open", "5000"],
    "durability": ["--rounds", "1", "--steps", "5000", "--episodes", "1000", "--kills", "5", "--live", "200"],
    "hub": ["--environments", "500", "--requests", "70"],
    "hub_site": ["--environments", "50", "--requests", "5"],
    "hub_results": ["--runs", "50", "--requests", "5"],
    "hub_endpoints": ["--quick"],
    "environments": ["--quick"],
    "quotas": ["--rounds", "1", "--steps", "5000", "--takes", "200000"],
    "worker_gateway": ["--quick"],
    "ray_workers": ["--quick"],
    "moves": ["--live", "50", "--rounds", "1"],
    "formats": ["--rounds", "1", "--episodes", "2", "--starts", "5"],
    "trainer_update": ["--rounds", "1", "--steps", "1", "--cases", "2L-d128"],
    "trainer_loop": ["--rounds", "1", "--steps", "5"],
    "trainer_learning": ["--seeds", "0", "--steps=5"],
    "credit": ["--seeds", "0", "--budget", "1000"],
    "trainer_async": ["--rounds", "1", "--steps", "6"],
    "pretrained": ["--quick"],
    "trl_adapter": ["--steps", "2", "--starts", "5"],
}


class Figure(NamedTuple):
    """One line of the table."""

    what: str
    bar: str
    measured: str
    met: bool


class Run(NamedTuple):
    """What one benchmark left."""

    output: str
    found: dict[str, Any] | None
    """Its figures; None when it failed."""


def run(name: str, options: list[str]) -> Run:
    """Run one benchmark to its end, showing what it prints."""
    print(f"━━ {name}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        command = [sys.executable, str(HERE / f"{name}.py"), "--json", str(file), *options]
        lines = []
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                lines.append(line)
        output = "".join(lines)
        if not file.exists():
            return Run(output, None)
        return Run(output, json.loads(file.read_text(encoding="utf-8")))


# ── from each benchmark's figures to lines of the table ────────────────────────────────────────────────────────────


def of_channel(found: dict[str, Any]) -> Iterator[Figure]:
    """Steps, episodes and idle episodes."""
    for key, what, least, times in (
        ("steps_per_second", "channel steps/s, 64 in flight", 25_000, 1.5),
        ("episodes_per_second", "channel episodes/s (start + 1 step + close), 64 in flight", 4_000, 5.0),
    ):
        ours, theirs = found["ludus"][key], found.get("openenv", {}).get(key)
        beside = f" = {ours / theirs:.1f}× OpenEnv's {theirs:,.0f}" if theirs else " (OpenEnv is not installed)"
        met = ours >= least and (theirs is None or ours >= times * theirs)
        yield Figure(what, f"≥ {least:,} and {times:g}× OpenEnv", f"{ours:,.0f}{beside}", met)
    idle = found["idle"]
    size, p99 = idle["bytes_per_episode"], idle["open_p99_ms"]
    measured = f"{size / 1024:.1f} KB each; opening p99 {p99:.1f} ms"
    yield Figure(f"{idle['episodes']:,} open idle episodes", "≤ 4 KB each", measured, size <= 4096)


def of_harness(found: dict[str, float]) -> Iterator[Figure]:
    """Rollouts per second, and the client's CPU for a turn."""
    rate, cpu = found["rollouts_per_second"], found["turn_us"]
    yield Figure("harness, echo, rollouts/s of 1 step + close, 64 in flight", "≥ 6,000", f"{rate:,.0f}", rate >= 6000)
    more = f"{cpu:.0f} µs; a further turn {found['further_turn_us']:.0f} µs"
    yield Figure("harness, client CPU per turn", "≤ 50 µs", more, cpu <= 50)


def of_endpoint(found: dict[str, dict[str, float]]) -> Iterator[Figure]:
    """Rollouts with a model endpoint, next to verifiers' on the same mock."""
    ours, theirs = found["ludus"], found.get("verifiers")
    rate, cpu = ours["rollouts_per_second"], ours["client_us"] / 1e3
    bar, measured, met = "≥ 2,000", f"{rate:,.0f} (verifiers is not installed)", rate >= 2000
    if theirs is not None:
        ratio = rate / theirs["rollouts_per_second"]
        measured = f"{rate:,.0f} = {ratio:.1f}× verifiers' {theirs['rollouts_per_second']:,.0f}"
        bar, met = f"{bar} and 10× verifiers", met and ratio >= 10
    yield Figure("rollouts/s of two requests to a model endpoint, 64 in flight", bar, measured, met)
    beside = f" (verifiers {theirs['client_us'] / 1e3:.1f} ms)" if theirs else ""
    yield Figure("the same, client CPU per rollout", "≤ 0.5 ms", f"{cpu:.2f} ms{beside}", cpu <= 0.5)


def of_gateway(found: dict[str, float]) -> Iterator[Figure]:
    """The gateway's CPU for a model call, as a multiple of a pass-through's."""
    ours, bare, ratio = found["gateway_us"], found["bare_us"], found["ratio"]
    size = found["request_bytes"] / 1000
    what = f"gateway, CPU per model call with {size:.1f} KB, against a bare aiohttp pass-through"
    yield Figure(what, "≤ 3×", f"{ours:,.0f} µs = {ratio:.2f}× of {bare:,.0f} µs", ratio <= 3)


def of_ors(found: dict[str, Any]) -> Iterator[Figure]:
    """The worst ratio to ors-sdk's server over all numbers of clients."""
    for kind, what in (
        ("call", "ORS `/call`, server CPU per call"),
        ("session", "ORS sessions, server CPU per session"),
    ):
        rows = {name: row for name, row in found.items() if name.startswith(kind)}
        pairs = [(row["ludus"]["cpu_us"], row["ors-sdk"]["cpu_us"]) for row in rows.values() if "ors-sdk" in row]
        if not pairs:
            continue
        ours, theirs = max(pairs, key=lambda pair: pair[0] / pair[1])
        ratio = ours / theirs
        measured = f"{ours:,.0f} µs = 1/{1 / ratio:.1f} of {theirs:,.0f} µs"
        yield Figure(what, "≤ 1/5 of ors-sdk's", measured, ratio <= 0.2)


def of_mcp_play(found: dict[str, Any]) -> Iterator[Figure]:
    """The ratio to the SDK's minimal server, for both eras."""
    for era, ratio in found["ratio"].items():
        cpu = found["table"][f"{era} ludus"]["server_us_per_call"]
        what = f"MCP play `tools/call` ({era}), server CPU per call"
        yield Figure(what, "≤ 1.0× the SDK's minimal server", f"{cpu:,.0f} µs = {ratio:.2f}×", ratio <= 1.0)


def of_startup(found: dict[str, float]) -> Iterator[Figure]:
    """Import and help."""
    peers = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in found.items() if name.startswith("import o"))
    for name, bar in (("import ludus.client", 0.2), ("ludus --help", 0.4)):
        beside = f" ({peers})" if peers and name.startswith("import") else ""
        if name == "import ludus.client":
            # Its names are imported when first used, so the bare import alone would flatter it.
            beside = f", with `connect` {found['from ludus.client import connect']:.2f} s{beside}"
        yield Figure(f"`{name}`", f"≤ {bar:g} s", f"{found[name]:.2f} s{beside}", found[name] <= bar)


def of_trainer_update(found: dict[str, Any]) -> Iterator[Figure]:
    """Speed, memory and gradients of the update, case by case."""
    for case, row in found.items():
        if "ratio" not in row:
            continue
        ratio, worst = row["ratio"], row["gradients"]["worst"]
        what = f"trainer: update on recorded batches, {case}"
        speed, memory = ratio["tokens_per_second"], ratio["memory"]
        if "32k" in case:
            measured = f"{memory:.2f}× TRL's memory, gradients {worst:.1e}"
            yield Figure(what, "≤ 0.5× TRL's memory, gradients 1e-5", measured, memory <= 0.5 and worst <= 1e-5)
        else:
            measured = f"{speed:.2f}× TRL's tokens/s, gradients {worst:.1e}"
            yield Figure(what, "≥ 2× TRL's tokens/s, gradients 1e-5", measured, speed >= 2 and worst <= 1e-5)


def of_trainer_loop(found: dict[str, Any]) -> Iterator[Figure]:
    """Wall time to a reward, next to TRL."""
    if "trl" in found:
        ahead, sync = found["async"], found["sync"]
        measured = (
            f"{ahead['seconds']:.1f} s = {ahead['ratio']:.2f}× TRL's {found['trl']['seconds']:.1f} s; without playing "
            f"ahead {sync['ratio']:.2f}×"
        )
        what = "trainer: whole loop, toy task, wall time to reward 0.9"
        yield Figure(what, "≤ 0.7× TRL's", measured, ahead["ratio"] <= 0.7)


def of_trainer_learning(found: dict[str, Any]) -> Iterator[Figure]:
    """Held-out success of each seed."""
    for engine, rows in found.items():
        baselines = ("random_legal", "warm_up", "persistent")
        shares = ", ".join(
            f"{row['trained']:.0%} against {' / '.join(f'{row[name]:.0%}' for name in baselines)}" for row in rows
        )
        longest = max(row["seconds"] for row in rows)
        met = all(row["gain"] >= 0.15 for row in rows) and longest <= 300
        what = (
            f"trainer: guessing numbers in ranges that no training saw, over the wire, `{engine}` engine, games won, "
            "against random legal guesses / the warm-up policy / the same kept from giving up"
        )
        bar = "≥ 15 points over the best baseline, 3 of 3 seeds, ≤ 300 s"
        yield Figure(what, bar, f"{shares}; ≤ {longest:.0f} s", met)


def of_credit(found: dict[str, Any]) -> Iterator[Figure]:
    """Games won after equal environment steps, by kind of credit. A comparison without a bar: either may win."""
    budget = found.pop("budget")
    won = {side: [row["won"][-1] for row in rows] for side, rows in found.items()}
    measured = ", ".join(f"{side} {sum(own) / len(own):.1%}" for side, own in won.items())
    seeds = max(map(len, won.values()))
    yield Figure(
        f"credit, test games won after {budget:,} environment steps, {seeds} seed(s)", "reported", measured, True
    )


def of_trainer_async(found: dict[str, Any]) -> Iterator[Figure]:
    """Steps per minute with and without playing ahead."""
    ahead = max((found[s] for s in ("1", "2")), key=lambda row: row["steps_per_minute"])
    sync = found["0"]
    measured = (
        f"{found['ratio']:.2f}×: {ahead['steps_per_minute']:.1f} against {sync['steps_per_minute']:.1f} steps/min; the "
        f"learner waits {ahead['waiting']:.0%} of the time against {sync['waiting']:.0%}"
    )
    what = "trainer: playing ahead of learning, environment steps of 50 to 500 ms"
    yield Figure(what, "≥ 1.5× sync", measured, found["ratio"] >= 1.5)


def of_pretrained(found: dict[str, Any]) -> Iterator[Figure]:
    """Held-out success of each run of the pretrained models."""
    for name, rows in found.items():
        model, through = name.split()
        limit = 30 if model.startswith("SmolLM2") else 45
        shares = ", ".join(
            f"{row['before'][0]:.0%} → {row['after'][0]:.0%} ({row['after'][1]:.0%} to {row['after'][2]:.0%})"
            for row in rows
        )
        longest = max(row["minutes"] for row in rows)
        met = all(row["gain"] >= 0.15 for row in rows) and longest <= limit
        what = f"{model} on word problems, test problems solved before → after GRPO, through `{through}`"
        yield Figure(what, f"≥ +15 points in ≤ {limit} min", f"{shares}; longest {longest:.0f} min", met)


def of_trl_adapter(found: dict[str, float]) -> Iterator[Figure]:
    """The server's share of a step of TRL, and the start of a group."""
    share = f"{found['share']:.2%} of {found['step']:.1f} s"
    yield Figure("TRL adapter, waiting for the server, share of a step", "≤ 3 %", share, found["share"] <= 0.03)
    milliseconds = 1000 * found["start"]
    yield Figure("TRL adapter, start of a group of 64", "≤ 10 ms", f"{milliseconds:.1f} ms", milliseconds <= 10)


def of_rubric(found: dict[str, Any]) -> Iterator[Figure]:
    """A checklist of 183 deterministic items."""
    yield Figure("rubric of 183 deterministic checks", "≤ 2 ms", f"{found['score']:.2f} ms", found["score"] <= 2)


def of_sandbox(found: dict[str, Any]) -> Iterator[Figure]:
    """Starting `python -c pass` in a warm box, next to starting it bare."""
    ratio, rate = found["bubblewrap"] / found["bare"], found["runs/s"]
    measured = f"{1000 * found['bubblewrap']:.1f} ms = {ratio:.2f}× bare"
    yield Figure("bubblewrap, `python -c pass` in a warm box", "≤ 1.5× the bare start", measured, ratio <= 1.5)
    yield Figure("bubblewrap, runs/s", "≥ 60", f"{rate:.0f}", rate >= 60)
    spawn = max(value for name, value in found.items() if name.startswith("spawn"))
    yield Figure("bubblewrap, a new background process answers", "≤ 20 ms", f"{1000 * spawn:.1f} ms", spawn <= 0.02)
    if (first := found.get("docker first command")) is not None:
        yield Figure("docker, first command in a warm container", "≤ 50 ms", f"{1000 * first:.0f} ms", first <= 0.05)


def of_sandboxd(found: dict[str, float]) -> Iterator[Figure]:
    """A background process and one exchange through sandboxd, next to bubblewrap alone."""
    ours, alone = (found[f"{name}: spawn + one exchange"] for name in ("sandboxd", "bubblewrap"))
    measured = f"{1000 * ours:.1f} ms (bubblewrap alone {1000 * alone:.1f} ms)"
    yield Figure("sandboxd, a new background process answers", "≤ 25 ms", measured, ours <= 0.025)


def of_many(found: dict[str, Any]) -> Iterator[Figure]:
    """Very many episodes at one server."""
    p99 = found["active"]["p99"]
    what = f"{found['episodes']:,} active episodes, one step each {found['every']:g} s: p99"
    yield Figure(what, "≤ 250 ms", f"{1000 * p99:.0f} ms", p99 <= 0.25)
    yield Figure(f"{found['opened']:,} open episodes", "≤ 250 MiB", f"{found['open']:.0f} MiB", found["open"] <= 250)


def of_durability(found: dict[str, Any]) -> Iterator[Figure]:
    """What a journal costs, and what it saves."""
    for sync, most in (("normal", 6), ("full", 10)):
        added = found[f"added_{sync}"]
        yield Figure(
            f"CPU that a journal adds to a channel step, {sync}", f"≤ {most} µs", f"{added:.1f} µs", added <= most
        )
    seconds = found["recovery"]
    yield Figure(f"{found['episodes']:,} episodes of 5 steps are back", "≤ 10 s", f"{seconds:.1f} s", seconds <= 10)
    for environment, most in (("Counting", 15), ("Boxed", 300)):
        if (spent := found["forks"].get(environment)) is not None:
            what = "a fork that repeats 100 steps" if environment == "Counting" else "a fork that restores 8 MB"
            yield Figure(what, f"≤ {most} ms", f"{1000 * spent:.1f} ms", 1000 * spent <= most)
    counts = found["kills"]
    what = f"kill -9 at {counts['kills']} random points, {counts['live']:,} live episodes"
    yield Figure(what, "0 lost or run twice", f"{counts['wrong']} of {counts['steps']:,}", counts["wrong"] == 0)


def of_moves(found: dict[str, Any]) -> Iterator[Figure]:
    """How long episodes wait while they move."""
    for live, waits in found.items():
        p95, p50 = waits["moved"]["p95"], waits["moved"]["p50"]
        what = f"moving {live} live episodes to other processes: the longest step of an episode, p95"
        yield Figure(what, "≤ 250 ms", f"{p95:.0f} ms (p50 {p50:.0f} ms)", p95 <= 250)


def of_ray_workers(found: dict[str, Any]) -> Iterator[Figure]:
    """What a step costs on workers that Ray has placed."""
    for key, what in (("at_64", "64 in flight"), ("at_1", "one at a time")):
        if (cell := found.get(key)) is not None:
            measured = f"{cell['ratio']:.2f}× ({sum(cell['ray_us']):.1f} against {sum(cell['local_us']):.1f} µs)"
            yield Figure(f"CPU of a step on workers placed by Ray, {what}", "≈ local", measured, cell["ratio"] <= 1.1)


def of_hub(found: dict[str, Any]) -> Iterator[Figure]:
    """The catalog of a hub."""
    for kind in ("sqlite", "postgresql"):
        if kind not in found:
            continue
        what = f"hub over {kind}, catalog and search at {found['environments']:,} packages, p95"
        slowest = max(found[kind]["kinds"].items(), key=lambda pair: float(pair[1]))
        measured = f"{found[kind]['p95']:.1f} ms ({slowest[0]} {slowest[1]:.1f} ms)"
        yield Figure(what, "≤ 15 ms", measured, found[kind]["p95"] <= 15)


def of_hub_site(found: dict[str, Any]) -> Iterator[Figure]:
    """The pages of a hub."""
    for kind in ("sqlite", "postgresql"):
        if kind in found:
            slowest, time = max(found[kind].items(), key=lambda pair: float(pair[1]))
            what = f"hub over {kind}, the slowest page at {found['environments']:,} packages, p95"
            yield Figure(what, "≤ 30 ms", f"{time:.1f} ms ({slowest})", time <= 30)


def of_hub_results(found: dict[str, Any]) -> Iterator[Figure]:
    """The boards of a hub."""
    for kind in ("sqlite", "postgresql"):
        if kind in found:
            slowest, time = max(found[kind]["p95"].items(), key=lambda pair: float(pair[1]))
            what = f"hub over {kind}, the slowest page of results at {found['runs']:,} runs, p95"
            yield Figure(what, "≤ 30 ms", f"{time:.1f} ms ({slowest})", time <= 30)
            largest = max(size for page, size in found[kind]["bytes"].items() if "(API)" not in page)
            what = f"hub over {kind}, the largest page of results with its files"
            yield Figure(what, "≤ 60 KB", f"{largest / 1000:.1f} KB", largest <= 60_000)


def of_hub_endpoints(found: dict[str, Any]) -> Iterator[Figure]:
    """The endpoints of a hub."""
    bars = found["bars"]
    step = f"{found['ratio']:.2f}× ({found['direct_us']:.1f} → {found['hub_us'] + found['endpoint_us']:.1f} µs)"
    yield Figure(
        "hub endpoint, CPU of a channel step, 64 in flight", f"≤ {bars['ratio']}× direct", step,
        found["ratio"] <= bars["ratio"],
    )  # fmt: skip
    cold, cpu, warm = found["cold_seconds"], found["cold_cpu_seconds"], found["warm_seconds"]
    met = cold <= bars["cold_seconds"] and cpu <= bars["cold_cpu_seconds"]
    yield Figure(
        "hub endpoint, cold start to first observation", "≤ 2 s, ≤ 1.2 s CPU", f"{cold:.2f} s, {cpu:.2f} s", met
    )
    yield Figure(
        "hub endpoint, first observation while it runs", "≤ 20 ms", f"{1e3 * warm:.1f} ms", warm <= bars["warm_seconds"]
    )


def of_environments(found: dict[str, Any]) -> Iterator[Figure]:
    """The built-in environments: those that need no sandbox, and the listing of tasks."""
    bars, each = found["bars"], found["environments"]
    plain = {name: one["cpu_ms"] for name, one in each.items() if not one["sandboxed"]}
    slowest = max(plain, key=lambda name: plain[name])
    yield Figure(
        "built-in environments, CPU of a start and a step, the slowest without a sandbox", f"≤ {bars['cpu_ms']:g} ms",
        f"{plain[slowest]:.1f} ms ({slowest})", plain[slowest] <= bars["cpu_ms"],
    )  # fmt: skip
    longest = max(each, key=lambda name: each[name]["listing_seconds"])
    seconds = each[longest]["listing_seconds"]
    yield Figure(
        "built-in environments, CPU of listing 10,000 tasks, the slowest", f"≤ {bars['listing_seconds']:g} s",
        f"{seconds:.2f} s ({longest})", seconds <= bars["listing_seconds"],
    )  # fmt: skip
    boxed = {name: one["start_ms"] for name, one in each.items() if one["sandboxed"]}
    latest = max(boxed, key=lambda name: boxed[name])
    yield Figure(
        "built-in environments in a sandbox, start, the slowest", f"≤ {bars['start_ms']:g} ms",
        f"{boxed[latest]:.1f} ms ({latest})", boxed[latest] <= bars["start_ms"],
    )  # fmt: skip


def of_quotas(found: dict[str, Any]) -> Iterator[Figure]:
    """What limits of tokens cost."""
    alone, added = found["counting"], found["added"]
    measured = f"{alone:.2f} µs (a channel step with both limits: {added:+.2f} µs)"
    yield Figure("CPU that counting a step takes", "≤ 0.3 µs", measured, alone <= 0.3)


def of_workers(found: dict[str, Any]) -> Iterator[Figure]:
    """What a gateway costs, and what a second worker brings."""
    for key, what, most in (("at_64", "64 in flight", 1.2), ("at_1", "one at a time", 2.5)):
        cell = found[key]
        parts = f"{cell['gateway_us']:.1f} + {cell['worker_us']:.1f} against {cell['direct_us']:.1f} µs"
        measured = f"{cell['ratio']:.2f}× ({parts})"
        yield Figure(
            f"CPU of gateway and worker for a step, {what}", f"≤ {most}× one server", measured, cell["ratio"] <= most
        )
    gain = found["gain"]
    rates = f"{gain['times']:.2f}× ({gain['one']:,.0f} → {gain['two']:,.0f} steps/s, {found['cores']} cores)"
    yield Figure("two workers, 1 ms of work a step", "≥ 1.7× one worker", rates, gain["times"] >= 1.7)


def of_formats(found: dict[str, Any]) -> Iterator[Figure]:
    """What hosting an environment of Gymnasium costs, next to its own loop."""
    for way, over in found["overheads_us"].items():
        most = found["most_us"][way]
        yield Figure(f"a hosted step, {way}: CPU over the own loop", f"≤ {most:.0f} µs", f"{over:.0f} µs", over <= most)
    start = found["start_over_ms"]
    yield Figure("a hosted start in process, over the own one", "≤ 1 ms", f"{start:.2f} ms", start <= 1)
    listing = found["listing_seconds"]
    yield Figure("`ludus envs --local`", "≤ 0.5 s", f"{listing:.2f} s", listing <= 0.5)
    if (pool := found["pool_start_seconds"]) is not None:
        yield Figure(
            "a start with a stock MCP server from the warm pool", "≤ 20 ms", f"{1000 * pool:.1f} ms", pool <= 0.02
        )


def of_boxed(found: dict[str, Any]) -> Iterator[Figure]:
    """Many episodes with a sandbox each."""
    what = f"{found['episodes']:.0f} boxed episodes at a time, tools of 0.1 s, {found['pause']:.0f} s between calls"
    measured = (
        f"step p50 {found['step_p50']:.2f} s, p99 {found['step_p99']:.2f} s, {found['steps_per_second']:.0f} steps/s; "
        f"start p99 {found['start_p99']:.1f} s; {found['lost']:.0f} lost"
    )
    yield Figure(what, "step p99 ≤ 1 s, 0 lost", measured, found["step_p99"] <= 1 and found["lost"] == 0)


def of_bounds(found: dict[str, Any]) -> Iterator[Figure]:
    """What one agent, and strangers, can make a server use."""
    for case, what in (
        ("refused_calls", "one agent: {calls:.0f} refused calls of 4 MiB, server memory"),
        ("queued_calls", "one agent: {calls:.0f} calls of 1 MiB behind a slow step, server memory"),
    ):
        row = found[case]
        yield Figure(what.format(**row), "< 400 MiB", f"{row['most_mib']:.0f} MiB", row["most_mib"] < 400)
    row = found["strangers"]
    what = f"{row['connections']:.0f} connections without a credential, endless bodies, growth"
    yield Figure(what, "≤ 100 MiB", f"{row['growth_mib']:.0f} MiB", row["growth_mib"] <= 100)
    row = found["threads"]
    what = f"another environment's start next to {row['calls']:.0f} blocking calls"
    yield Figure(what, "≤ 1.5 s", f"{row['start_s']:.2f} s", row["start_s"] <= 1.5)
    row = found["unknown_arguments"]
    what = f"a call with {row['arguments']:,.0f} unknown arguments: the longest wait of others"
    yield Figure(what, "≤ 0.3 s", f"{row['longest_wait_s']:.2f} s", row["longest_wait_s"] <= 0.3)


def of_floods(found: dict[str, Any]) -> Iterator[Figure]:
    """What another client's steps wait while one floods the server."""
    worst = max(found, key=lambda name: found[name]["p99"])
    p99 = found[worst]["p99"]
    title = f"another client's step during {len(found) - 1} floods over 100 connections, one process: p99"
    yield Figure(title, "≤ 200 ms", f"{1e3 * p99:.0f} ms (`{worst}`)", p99 <= 0.2)
    most = max(after for _, after in (row["memory"] for row in found.values()))
    yield Figure("the server's memory after any of them", "< 400 MiB", f"{most:.0f} MiB", most < 400)


READERS: dict[str, Callable[[Any], Iterator[Figure]]] = {
    "channel": of_channel,
    "harness": of_harness,
    "endpoint": of_endpoint,
    "gateway": of_gateway,
    "ors": of_ors,
    "mcp_play": of_mcp_play,
    "startup": of_startup,
    "bounds": of_bounds,
    "floods": of_floods,
    "rubric": of_rubric,
    "sandbox": of_sandbox,
    "sandboxd": of_sandboxd,
    "boxed": of_boxed,
    "many": of_many,
    "durability": of_durability,
    "hub": of_hub,
    "hub_site": of_hub_site,
    "hub_results": of_hub_results,
    "hub_endpoints": of_hub_endpoints,
    "environments": of_environments,
    "quotas": of_quotas,
    "worker_gateway": of_workers,
    "moves": of_moves,
    "ray_workers": of_ray_workers,
    "formats": of_formats,
    "trainer_update": of_trainer_update,
    "trainer_loop": of_trainer_loop,
    "trainer_learning": of_trainer_learning,
    "credit": of_credit,
    "trainer_async": of_trainer_async,
    "pretrained": of_pretrained,
    "trl_adapter": of_trl_adapter,
}


# ── the page ───────────────────────────────────────────────────────────────────────────────────────────────────────


ABOUT = """# Results

Written by `make bench`. Each server is one process, each client another, on loopback; peers run in their own
environments, in turn with ours, in the same run. What each benchmark does is described at its top.

## Figures

"""
HEAD = ("| what | at least | measured | |", "|---|---|---|---|")


def table(figures: list[Figure]) -> str:
    """The figures in Markdown."""
    lines = [*HEAD] + [f"| {f.what} | {f.bar} | {f.measured} | {'met' if f.met else '**missed**'} |" for f in figures]
    return "\n".join(lines) + "\n"


def machine() -> str:
    """What it ran on."""
    model = "unknown processor"
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = ", ".join(f"{name} {version(name)}" for name in ("uvicorn", "uvloop", "pydantic", "aiohttp", "mcp"))
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    busy = os.getloadavg()[0] > len(os.sched_getaffinity(0)) / 2
    remark = " **The machine was busy with other work**, so the figures are worse than on an idle one." if busy else ""
    return (
        f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {len(os.sched_getaffinity(0))} cores of {model}, "
        f"{memory:.0f} GiB, {platform.system()} {platform.release().partition('-')[0]}, "
        f"Python {platform.python_version()}, {packages}. Load average before: {load}.{remark}"
    )


def part(figures: list[Figure], one: Run, about: str) -> str:
    """What RESULTS.md says of one benchmark, below its heading."""
    return f"{about}\n\n{table(figures)}\n```text\n{one.output.rstrip()}\n```\n"


def page(new: dict[str, str], old: str) -> str:
    """benchmarks/RESULTS.md: new parts, and the others as they stand in the old page."""
    found = re.split(r"^## (\w+)\.py\n\n", old, flags=re.MULTILINE)
    parts = {**dict(zip(found[1::2], found[2::2], strict=True)), **new}
    line = re.compile(r"^\| .*(?:met|missed).* \|$", re.MULTILINE)
    rows = [row for name in READERS if name in parts for row in line.findall(parts[name])]
    texts = [f"\n## {name}.py\n\n{parts[name].rstrip()}\n" for name in READERS if name in parts]
    return ABOUT + "\n".join([*HEAD, *rows, ""]) + "".join(texts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(READERS), help=f"of {', '.join(READERS)}")
    parser.add_argument("--quick", action="store_true", help="short rounds, to see that they run")
    options = parser.parse_args()
    new, broken, gathered = {}, [], []
    for name in options.only.split(","):
        about = machine()
        one = run(name, QUICK[name] if options.quick else [])
        figures = list(READERS[name](one.found)) if one.found else []
        gathered += figures
        if one.found:
            new[name] = part(figures, one, about)
        else:
            broken.append(name)
    print(f"\n{table(gathered)}")
    if broken:
        print(f"these gave no figures: {', '.join(broken)}", file=sys.stderr)
    if new and not options.quick:
        file = HERE / "RESULTS.md"
        file.write_text(page(new, file.read_text(encoding="utf-8") if file.exists() else ""), encoding="utf-8")
        print(f"written: the parts of {', '.join(new)} in benchmarks/RESULTS.md")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
