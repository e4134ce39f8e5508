"""Look at the environments of a built wheel: its entry points, what its code says, and `ludus validate`.

The code runs in processes of its own, which import it from the unpacked wheel and not from the folder it was built of.
So a file that is missing in the wheel is found before it is published.
"""

from __future__ import annotations

import configparser
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any, Final

from ludus.protocol.episodes import EnvironmentInfo
from ludus.registry.project import EnvironmentClaim
from ludus.registry.types.errors import ManifestRefused, PublishFailed
from ludus.registry.types.packages import EnvironmentEntry, ValidationSummary

INSPECT_SECONDS: Final = 300.0
"""How long it may take to describe one environment."""

_GROUP: Final = "ludus.environments"


class UnpackedWheel:
    """A wheel, and the folder in which it is unpacked.

    Args:
        wheel: the wheel, which was built here.
        folder: an empty folder.

    Attributes:
        metadata: its METADATA.
        sources: `module:Class` of each environment, by name.

    Raises:
        PublishFailed: it has no environment.
    """

    def __init__(self, wheel: Path, folder: Path) -> None:
        self.wheel = wheel
        self.folder = folder
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        (info,) = folder.glob("*.dist-info")
        self.metadata: Message = message_from_bytes((info / "METADATA").read_bytes())
        parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
        parser.optionxform = str  # type: ignore[assignment, method-assign]
        parser.read(info / "entry_points.txt", encoding="utf-8")
        section = parser[_GROUP] if parser.has_section(_GROUP) else {}
        self.sources = {name: source.replace(" ", "") for name, source in section.items()}
        if not self.sources:
            raise PublishFailed(
                f'the wheel has no environment: name one in pyproject.toml under [project.entry-points."{_GROUP}"]'
            )

    def run(self, arguments: Sequence[str], seconds: float) -> subprocess.CompletedProcess[bytes]:
        """Run a `ludus` command that imports from the unpacked wheel.

        Raises:
            PublishFailed: it took too long.
        """
        path = os.pathsep.join([str(self.folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        try:
            return subprocess.run(
                [sys.executable, "-m", "ludus.cli", *arguments], cwd=self.folder, stdin=subprocess.DEVNULL,
                capture_output=True, timeout=seconds,
                env={**os.environ, "PYTHONPATH": path},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise PublishFailed(f"`ludus {' '.join(arguments)}` did not end within {seconds:g} s") from None


def describe(unpacked: UnpackedWheel) -> tuple[EnvironmentEntry, ...]:
    """Return the environments of a wheel as their code describes them.

    Raises:
        PublishFailed: the code cannot be served.
    """
    return tuple(_describe(unpacked, name, source) for name, source in sorted(unpacked.sources.items()))


def _describe(unpacked: UnpackedWheel, name: str, source: str) -> EnvironmentEntry:
    done = unpacked.run(["envs", source, "--json"], INSPECT_SECONDS)
    if done.returncode:
        raise PublishFailed(f"the environment {name!r} ({source}) cannot be served: {_tail(done.stderr)}")
    try:
        found = [EnvironmentInfo.model_validate(item) for item in json.loads(done.stdout)]
    except ValueError as error:
        raise PublishFailed(f"the environment {name!r} ({source}) cannot be described: {error}") from None
    info = next((item for item in found if item.name == name), found[0])
    return EnvironmentEntry(
        name=name, source=source, version=info.version, description=info.description, splits=info.splits,
        tools=info.tools, reward_range=info.reward_range, seedable=info.seedable, gradable=info.gradable,
        forkable=info.forkable, group_scoring=info.group_scoring,
    )  # fmt: skip


def check_claims(entries: Sequence[EnvironmentEntry], claims: Sequence[EnvironmentClaim]) -> list[EnvironmentEntry]:
    """Return the environments with what only `ludus.toml` says about them.

    Raises:
        ManifestRefused: `ludus.toml` and the code contradict each other.
    """
    by_name = {claim.name: claim for claim in claims}
    known = {entry.name for entry in entries}
    if unknown := by_name.keys() - known:
        raise ManifestRefused(
            f"ludus.toml names the environment {min(unknown)!r}; the wheel has {', '.join(sorted(known))}"
        )
    for entry in entries:
        claim = by_name.get(entry.name)
        if claim is None:
            continue
        splits = {split.name: -1 if split.count is None else split.count for split in entry.splits}
        facts: dict[str, tuple[Any, Any]] = {
            "splits": (claim.splits, splits),
            "tools": (sorted(claim.tools) if claim.tools is not None else None, sorted(t.name for t in entry.tools)),
            "reward_range": (claim.reward_range, entry.reward_range),
        }
        for what, (said, found) in facts.items():
            if said is not None and said != found:
                raise ManifestRefused(f"ludus.toml says {what} = {said} of {entry.name!r}, and the code says {found}")
    return [
        entry.model_copy(update={"durability": by_name[entry.name].durability}) if entry.name in by_name else entry
        for entry in entries
    ]


def validate(unpacked: UnpackedWheel, options: Sequence[str], seconds: float) -> ValidationSummary:
    """Return the outcome of `ludus validate` for all environments of a wheel.

    Raises:
        PublishFailed: it could not run.
    """
    done = unpacked.run(["validate", *sorted(unpacked.sources.values()), "--json", *options], seconds)
    try:
        reports = json.loads(done.stdout)
    except ValueError:
        raise PublishFailed(f"`ludus validate` could not run: {_tail(done.stderr)}") from None
    return ValidationSummary(passed=done.returncode == 0, reports=tuple(_public(report) for report in reports))


def _public(report: dict[str, Any]) -> dict[str, Any]:
    """Return a report without what was played: recorded episodes and evidence may hold answers of tasks."""
    checks = [
        {
            "kind": check.get("kind"),
            "status": check.get("status"),
            "detail": check.get("detail"),
            "findings": [finding.get("message") for finding in check.get("findings", ())],
        }
        for check in report.get("checks", ())
    ]
    kept = ("environment", "version", "tasks", "measured", "strict", "passed", "seconds", "counts")
    return {name: report.get(name) for name in kept} | {"checks": checks}


def findings(summary: ValidationSummary) -> list[str]:
    """Return one line for each check that failed."""
    return [
        f"{report['environment']}: {check['kind']}: {' '.join(check['findings']) or check['detail'] or check['status']}"
        for report in summary.reports
        for check in report["checks"]
        if check["status"] in ("failed", "broken")
    ]


def _tail(output: bytes) -> str:
    return " ".join(output.decode(errors="replace").strip().splitlines()[-3:]) or "it printed nothing"
