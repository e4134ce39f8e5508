"""Reports a run to a hub, if the configuration names one. Training never waits for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from ludus.common.distribution import installed_version
from ludus.protocol.errors import LudusError
from ludus.registry.reporting import FLUSH_SECONDS, TrainingReporter
from ludus.registry.types.training import TrainingEnvironment
from ludus.trainer.core.config import EnvironmentConfig, HubConfig, TrainConfig
from ludus.trainer.core.errors import ConfigError
from ludus.trainer.core.samples import RolloutGroup


class HubReport:
    """The report of a run at a hub.

    Args:
        config: the run's configuration.
        hub: its part about the hub.
        run_name: the name of the run, which a resumed run keeps.
        resumed: the step of the checkpoint from which the run resumes; None for a new run.

    Raises:
        ConfigError: the hub's address or the file of kept tokens cannot be used.
    """

    def __init__(self, config: TrainConfig, hub: HubConfig, run_name: str, resumed: int | None) -> None:
        self._hub = hub
        self._announced = False
        try:
            self._reporter = TrainingReporter(
                hub.url, name=hub.name or config.output.resolve().name, config=_config(config),
                environments=[_environment(entry, hub.url) for entry in config.environments],
                steps=config.steps, trainer=f"ludus {installed_version()}", public=hub.public, sender_key=run_name,
                resumed_from=resumed or 0,
            )  # fmt: skip
        except LudusError as error:
            raise ConfigError(f"logging.hub: {error}") from None

    def opening(self) -> str:
        """Return what becomes visible, and where."""
        who = "everyone" if self._hub.public else "your account only"
        parts = "metrics, environments and the configuration without secrets"
        if self._hub.rollouts:
            parts += f", and {self._hub.rollouts} rollouts of each step with all their text"
        return f"reporting to {self._hub.url}, for {who}: {parts}"

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Report metrics of a step."""
        self._reporter.log(step, values)

    def rollouts(self, step: int, groups: Sequence[RolloutGroup]) -> None:
        """Attach the first rollouts of a step."""
        chosen = [rollout for group in groups for rollout in group.rollouts][: self._hub.rollouts]
        for rollout in chosen:
            self._reporter.rollout(step, rollout.trajectory.model_dump(mode="json"))

    def notes(self) -> Iterator[str]:
        """Yield what is new to say: the address of the run once, and problems."""
        if not self._announced and self._reporter.url:
            self._announced = True
            yield f"the run is shown at {self._reporter.url}"
        for problem in self._reporter.problems():
            yield f"hub: {problem}"

    def close(self, error: BaseException | None) -> Iterator[str]:
        """End the report, and yield its outcome."""
        if error is None:
            report = self._reporter.close(seconds=FLUSH_SECONDS)
        else:
            report = self._reporter.close("failed", f"{type(error).__name__}: {error}", seconds=FLUSH_SECONDS)
        yield from self.notes()
        lost = f"; {report.dropped} points were dropped, and metrics.jsonl has them" if report.dropped else ""
        yield f"{report.sent} points are at {report.url or self._hub.url}{lost}"


def _environment(entry: EnvironmentConfig, hub: str) -> TrainingEnvironment:
    """Return an environment as it is reported: with its package, if it is played at an endpoint of the same hub."""
    same = re.fullmatch(re.escape(hub.rstrip("/")) + r"/e/([^/]+/[^/@?#]+)(?:@([^/?#]+))?/?", entry.url)
    package, version = (same[1], same[2]) if same else (None, None)
    name = entry.label or entry.name or (package or "").rpartition("/")[2] or "environment"
    try:
        return TrainingEnvironment(name=name[:120], package=package, version=version)
    except ValidationError:
        return TrainingEnvironment(name="".join(c for c in name if c.isprintable())[:120] or "environment")


def _config(config: TrainConfig) -> dict[str, Any]:
    """Return the configuration as it is reported: without what an address may hold besides host and path."""
    found = config.model_dump(mode="json")
    for entry in found["environments"]:
        parts = urlsplit(entry["url"])
        if parts.netloc:
            entry["url"] = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
    return found
