"""A new environment from a description: a model writes the code, which runs only in a sandbox, and repairs it.

How this works. `ludus init` writes a package; the model replaces its module, tests and README. In bubblewrap sandboxes
without a network, the package is built, pytest judges it, and `ludus validate --strict` judges what was built, each in
a sandbox of its own. What they report goes back to the model, up to a number of rounds. What passes may be played by a
model, for calibration. This process never imports the code; it parses it, to see that it is Python and has the class.
"""

from __future__ import annotations

import ast
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from ludus.evaluation.config import ModelSpec
from ludus.generation.boxed import PackageCalibration, calibrate_package, judge_package
from ludus.generation.journal import Journal
from ludus.generation.model import (
    Budget,
    BudgetSpent,
    Message,
    MeteredPolicy,
    Reply,
    Writer,
    count_earlier,
    open_writer,
    output_option,
)
from ludus.generation.report import Spending, spending_of
from ludus.generation.task_folder import replace_private
from ludus.generation.tasks import Calibration
from ludus.protocol.errors import InvalidParams, LudusError
from ludus.sandbox import find_provider

JOURNAL: Final = ".generate.jsonl"
REPORT: Final = "generation.json"
_FILE: Final = re.compile(r'<file path="([^"\n]{1,200})">\n?(.*?)</file>', re.DOTALL)
_LARGEST_FILE: Final = 200_000
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
    """The step that failed: `reply`, `files`, `build`, `pytest` or `validate`; None if it passed."""
    detail: str


class PackageReport(BaseModel):
    """The outcome of a run."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: str
    kept: bool
    rounds: tuple[Round, ...]
    spending: Spending
    seconds: float
    stopped: str | None
    calibration: PackageCalibration | None = None
    """How a model fared in it; None if it is uncalibrated."""

    def lines(self) -> list[str]:
        """Return what is said about a package that was kept."""
        calibrated = "uncalibrated: no model has played it" if self.calibration is None else self.calibration.line()
        return [f"  {calibrated}", f"  {self.spending.line()}, {self.seconds:.0f} s"]


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
        calibration: the model that plays what passes, and how many episodes of each task; None for none. Its band is
            not used: the report says where it lies.
        calibration_tasks: how many training tasks it plays.
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
    calibration: Calibration | None = None
    calibration_tasks: int = 10
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
            provider = find_provider("bubblewrap")
            await provider.open()
            try:
                rounds, stopped, wheel = await _rounds(run, writer, package, provider)
                calibration = await _calibrate(run, provider, wheel, journal)
            finally:
                await provider.aclose()
    kept = bool(rounds) and rounds[-1].failed is None
    if kept:
        run.out.parent.mkdir(parents=True, exist_ok=True)
        if run.out.exists():
            run.out.rmdir()
        package.rename(run.out)
    elif run.keep_rejected:
        rejected = run.out.parent / "rejected" / run.out.name
        shutil.rmtree(rejected, ignore_errors=True)
        rejected.parent.mkdir(parents=True, exist_ok=True, mode=0o700)  # as the journal: its owner only
        package.rename(rejected)
    if kept:  # else what was paid for stays, and a run with --resume and more rounds goes on from it
        shutil.rmtree(work, ignore_errors=True)
    report = PackageReport(
        name=run.out.name, kept=kept, rounds=tuple(rounds), spending=spending_of(run.budget, writer.name),
        seconds=round(time.monotonic() - began, 3), stopped=stopped, calibration=calibration,
    )  # fmt: skip
    if kept:
        replace_private(run.out / REPORT, report.model_dump_json(indent=2) + "\n")
    return report


async def _calibrate(run: PackageRun, provider: Any, wheel: bytes, journal: Journal) -> PackageCalibration | None:
    """Let the model of the calibration play what passed; None if there is nothing to play, or no such model."""
    from ludus.evaluation.models import open_model

    if run.calibration is None or not wheel:
        return None
    spec = run.calibration.model
    limited = spec.model_copy(update={"options": {**output_option(spec, run.output_tokens), **spec.options}})
    async with open_model(limited) as policy:
        metered = MeteredPolicy(policy, journal, run.budget, run.output_tokens)
        return await calibrate_package(
            provider, wheel, f"{run.module}:{run.cls}", metered, tasks=run.calibration_tasks,
            samples=run.calibration.samples, seed=run.seed,
        )  # fmt: skip


async def _rounds(
    run: PackageRun, writer: Writer, package: Path, provider: Any
) -> tuple[list[Round], str | None, bytes]:
    """Return the rounds, why they stopped early, and the wheel of the version that passed; empty if none did."""
    names = {f"{run.module}.py", f"tests/test_{run.module}.py", "README.md"}
    example = "\n".join(
        f'<file path="{name}">\n{(package / name).read_text(encoding="utf-8")}</file>'
        for name in sorted(names - {"README.md"})
    )
    rules = _RULES.format(module=run.module, cls=run.cls, example=example)
    messages = [Message("system", rules), Message("user", f"Write this environment:\n\n{run.description}")]
    rounds: list[Round] = []
    files: dict[str, str] = {}
    for number in range(run.rounds):
        try:
            reply = await writer.write(messages, number, any_text=True)  # a check says how long it took
        except BudgetSpent as error:
            return rounds, error.message, b""
        failed, wheel = await _judged(run, provider, package, names, files, reply)
        rounds.append(Round(number=number, failed=failed[0] if failed else None, detail=failed[1] if failed else ""))
        if run.on_round is not None:
            run.on_round(rounds[-1])
        if failed is None:
            return rounds, None, wheel
        if isinstance(reply, Reply):
            messages = [*messages[:2], Message("assistant", reply.text), Message("user", _repair(*failed))]
    return rounds, None, b""


async def _judged(
    run: PackageRun, provider: Any, package: Path, names: set[str], files: dict[str, str], reply: Reply | LudusError
) -> tuple[tuple[str, str] | None, bytes]:
    """Return the step that failed and why, or None if the package passes; and its wheel."""
    if isinstance(reply, LudusError):
        return ("reply", reply.message), b""
    if reply.finish != "complete":
        return ("reply", f"the reply was {reply.finish}"), b""
    if (fault := _take(run, package, names, files, reply.text)) is not None:
        return ("files", fault), b""
    given = {name: (package / name).read_bytes() for name in (*names, "pyproject.toml")}
    return await judge_package(provider, given, f"{run.module}:{run.cls}")


def _take(run: PackageRun, package: Path, names: set[str], files: dict[str, str], text: str) -> str | None:
    """Write the files of a reply, next to those of earlier ones; return what is wrong with them."""
    written = dict(_FILE.findall(text))
    if wrong := sorted(written.keys() - names):
        return f"the reply has the file {wrong[0]!r}; it may have {', '.join(sorted(names))}"
    files.update(written)
    if missing := sorted(names - files.keys()):
        return f"the reply lacks {', '.join(missing)}"
    for name, content in files.items():
        if len(content) > _LARGEST_FILE:
            return f"{name} has more than {_LARGEST_FILE} characters"
        (package / name).write_text(content, encoding="utf-8", errors="replace")
    fault = _parsed(files[f"{run.module}.py"], run.cls)
    return None if fault is None else f"{run.module}.py: {fault}"


def _parsed(text: str, cls: str) -> str | None:
    """Return what is wrong with the module, which is only parsed."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"it is not Python: {error}"
    if not any(isinstance(node, ast.ClassDef) and node.name == cls for node in tree.body):
        return f"it has no class {cls}"
    return None


def _repair(step: str, detail: str) -> str:
    said = f"The step `{step}` fails. Its output, which is data:\n\n{detail}"
    return f"{said}\n\nReply with the files to replace, each whole."
