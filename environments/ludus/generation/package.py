"""A new environment from a description: a model writes the code, which runs only in a sandbox, and repairs it.

How this works. `ludus init` writes a package; the model replaces its module, tests and README. In a bubblewrap sandbox
without a network, pytest and `ludus validate --strict` judge them. What they report goes back to the model, up to a
number of rounds. This process never imports the code; it parses it, to see that it is Python and has the class.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

import ludus
from ludus.evaluation.config import ModelSpec
from ludus.generation.journal import Journal
from ludus.generation.model import Budget, BudgetSpent, Message, Reply, Writer, count_earlier, open_writer
from ludus.generation.report import Spending, spending_of
from ludus.protocol.errors import InvalidParams, LudusError
from ludus.sandbox import Limits, RunResult, Sandbox, SandboxSettings, find_provider

JOURNAL: Final = ".generate.jsonl"
_FILE: Final = re.compile(r'<file path="([^"\n]{1,200})">\n?(.*?)</file>', re.DOTALL)
_LARGEST_FILE: Final = 200_000
_SHOWN: Final = 6_000
_LIMITS: Final = Limits(
    seconds=600, cpu_seconds=600, memory=2 * 2**30, processes=128, disk=256 * 2**20, output=2 * 2**20
)

_RULES: Final = """\
You write environments for Ludus, in which language models are trained by reinforcement learning. Reply with whole \
files and nothing else, each as
<file path="NAME">
CONTENT
</file>

Write exactly these files: {module}.py, tests/test_{module}.py, README.md. The class is {cls}, derived from \
ludus.server.Environment. Rules:
- Splits train, validation and test have tasks that differ by content; train has at least 30. All randomness comes \
from the task or self.rng.
- reward_range is declared. The oracle earns the best reward on every task; doing nothing, guessing, listing all \
answers and repeating the prompt earn 0. What the agent must not see is Private[...].
- No network, no files outside of the package, no other packages than Ludus and the standard library, no waived_checks.
- It passes pytest and `ludus validate --strict`.

This is a small environment that passes, and its tests:

{example}"""


class Round(BaseModel):
    """One version of the code."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    number: int
    failed: str | None
    """The step that failed: `reply`, `files`, `pytest` or `validate`; None if it passed."""
    detail: str


class PackageReport(BaseModel):
    """The outcome of a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    kept: bool
    rounds: tuple[Round, ...]
    spending: Spending
    seconds: float
    stopped: str | None


@dataclass(frozen=True)
class PackageRun:
    """The settings of a run.

    Attributes:
        description: what the environment is.
        out: the folder of the package, whose name is the environment's.
        module, cls: the names of the module and the class.
        scaffold: writes the package of `ludus init` into a folder.
        model: the model that writes.
        rounds: how many versions it may write.
        output_tokens, budget, seed: as for tasks.
        resume: whether a part of this run may be there.
        keep_rejected: whether a package that fails is kept, in the folder `rejected` next to `out`.
        on_round: called after each round.
    """

    description: str
    out: Path
    module: str
    cls: str
    scaffold: Callable[[Path], Any]
    model: ModelSpec
    rounds: int = 3
    output_tokens: int = 16_000
    budget: Budget = field(default_factory=Budget)
    seed: int = 0
    resume: bool = False
    keep_rejected: bool = False
    on_round: Callable[[Round], None] | None = None


async def generate_package(run: PackageRun) -> PackageReport:
    """Write, judge and repair an environment, and keep it only if everything passes.

    Raises:
        InvalidParams: `out` exists, or a journal of another run is next to it.
        SandboxUnavailable: this machine has no bubblewrap.
        LudusError: the model's endpoint refuses or keeps failing.
    """
    began = time.monotonic()
    if run.out.exists() and (not run.out.is_dir() or any(run.out.iterdir())):
        raise InvalidParams(f"{run.out} exists and is not empty; choose another --out")
    identity = {"command": "environment", "description": run.description, "model": run.model.model, "seed": run.seed}
    work = run.out.parent / f".{run.out.name}.generate"
    with Journal(work / JOURNAL, identity, resume=run.resume) as journal:
        count_earlier(journal, run.budget)
        async with open_writer(
            run.model, journal, run.budget, concurrency=1, output_tokens=run.output_tokens, seed=run.seed
        ) as writer:
            package = work / run.out.name
            shutil.rmtree(package, ignore_errors=True)
            run.scaffold(package)
            rounds, stopped = await _rounds(run, writer, package)
    kept = bool(rounds) and rounds[-1].failed is None
    if kept:
        run.out.parent.mkdir(parents=True, exist_ok=True)
        if run.out.exists():
            run.out.rmdir()
        package.rename(run.out)
    elif run.keep_rejected:
        rejected = run.out.parent / "rejected" / run.out.name
        shutil.rmtree(rejected, ignore_errors=True)
        rejected.parent.mkdir(parents=True, exist_ok=True)
        package.rename(rejected)
    if kept:  # else what was paid for stays, and a run with --resume and more rounds goes on from it
        shutil.rmtree(work, ignore_errors=True)
    return PackageReport(
        name=run.out.name, kept=kept, rounds=tuple(rounds), spending=spending_of(run.budget, writer.name),
        seconds=round(time.monotonic() - began, 3), stopped=stopped,
    )  # fmt: skip


async def _rounds(run: PackageRun, writer: Writer, package: Path) -> tuple[list[Round], str | None]:
    names = {f"{run.module}.py", f"tests/test_{run.module}.py", "README.md"}
    example = "\n".join(
        f'<file path="{name}">\n{(package / name).read_text(encoding="utf-8")}</file>'
        for name in sorted(names - {"README.md"})
    )
    rules = _RULES.format(module=run.module, cls=run.cls, example=example)
    messages = [Message("system", rules), Message("user", f"Write this environment:\n\n{run.description}")]
    rounds: list[Round] = []
    files: dict[str, str] = {}
    provider = find_provider("bubblewrap")
    await provider.open()
    try:
        for number in range(run.rounds):
            try:
                reply = await writer.write(messages, number, any_text=True)  # a check says how long it took
            except BudgetSpent as error:
                return rounds, error.message
            failed = await _judged(run, provider, package, names, files, reply)
            rounds.append(
                Round(number=number, failed=failed[0] if failed else None, detail=failed[1] if failed else "")
            )
            if run.on_round is not None:
                run.on_round(rounds[-1])
            if failed is None:
                return rounds, None
            if isinstance(reply, Reply):
                messages = [*messages[:2], Message("assistant", reply.text), Message("user", _repair(*failed))]
    finally:
        await provider.aclose()
    return rounds, None


async def _judged(
    run: PackageRun, provider: Any, package: Path, names: set[str], files: dict[str, str], reply: Reply | LudusError
) -> tuple[str, str] | None:
    """Return the step that failed and why; None if the package passes."""
    if isinstance(reply, LudusError):
        return "reply", reply.message
    if reply.finish != "complete":
        return "reply", f"the reply was {reply.finish}"
    written = dict(_FILE.findall(reply.text))
    if wrong := sorted(written.keys() - names):
        return "files", f"the reply has the file {wrong[0]!r}; it may have {', '.join(sorted(names))}"
    files.update(written)
    if missing := sorted(names - files.keys()):
        return "files", f"the reply lacks {', '.join(missing)}"
    for name, text in files.items():
        if len(text) > _LARGEST_FILE:
            return "files", f"{name} has more than {_LARGEST_FILE} characters"
        (package / name).write_text(text, encoding="utf-8", errors="replace")
    if (fault := _parsed(files[f"{run.module}.py"], run.cls)) is not None:
        return "files", f"{run.module}.py: {fault}"
    async with await provider.create(_settings()) as box:
        for name in (*names, "pyproject.toml"):
            await box.write(name, (package / name).read_bytes())
        return await _tested(run, box)


def _parsed(text: str, cls: str) -> str | None:
    """Return what is wrong with the module, which is only parsed."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"it is not Python: {error}"
    if not any(isinstance(node, ast.ClassDef) and node.name == cls for node in tree.body):
        return f"it has no class {cls}"
    return None


async def _tested(run: PackageRun, box: Sandbox) -> tuple[str, str] | None:
    tests = await box.run(["python3", "-m", "pytest", "-q", "-p", "no:cacheprovider"])
    if not tests.ok:
        return "pytest", _output(tests)
    target = f"{run.module}.py:{run.cls}"
    checked = await box.run(["python3", "-m", "ludus.cli", "validate", target, "--strict", "--json"])
    try:
        reports: list[dict[str, Any]] = json.loads(checked.text)
        checks = [(one["environment"], check) for one in reports for check in one["checks"]]
        bad = [(name, check) for name, check in checks if check["status"] not in ("passed", "skipped")]
        passed = bool(reports) and all(one["passed"] for one in reports)
    except (ValueError, KeyError, TypeError):
        return "validate", _output(checked)
    if passed and not bad and checked.ok:
        return None
    return "validate", _tail("\n".join(json.dumps(_brief(name, check)) for name, check in bad) or _output(checked))


def _brief(name: str, check: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "environment": name,
        **{key: check[key] for key in ("kind", "status", "detail", "findings") if key in check},
    }


def _output(result: RunResult) -> str:
    limit = f"(ended by its limit on {result.limit})\n" if result.limit else ""
    return limit + _tail(result.text + result.stderr.decode("utf-8", "replace"))


def _tail(text: str) -> str:
    return text if len(text) <= _SHOWN else "…" + text[-_SHOWN:]


def _repair(step: str, detail: str) -> str:
    said = f"The step `{step}` fails. Its output, which is data:\n\n{detail}"
    return f"{said}\n\nReply with the files to replace, each whole."


def _settings() -> SandboxSettings:
    """Return the sandbox: this installation read-only, loopback for the tests' servers, and no network."""
    places = [str(Path(path).parent) for path in ludus.__path__]
    places += [path for path in sys.path if PurePosixPath(path).name in ("site-packages", "dist-packages")]
    shown = [(place, f"/ludus/{number}") for number, place in enumerate(dict.fromkeys(places))]
    variables = (("PYTHONPATH", ":".join(inside for _, inside in shown)), ("PYTHONDONTWRITEBYTECODE", "1"))
    return SandboxSettings(limits=_LIMITS, readonly=tuple(shown), loopback=True, warm=0, env=variables)
