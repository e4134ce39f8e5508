"""Live curves on a hub for the trainers of transformers, and so of TRL, Axolotl and others that take its callbacks.

`GRPOTrainer(…, callbacks=[hub_callback("https://hub.example.org", name="my run")])` reports what the trainer logs, from
a thread of its own (`ludus.registry.reporting`). A run whose process dies is shown as lost after a few minutes.
After an exception in a process that goes on, such as a notebook, `callback.reporter.close("failed")` ends the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, Final

from ludus.integrations.peers import require
from ludus.registry.reporting import TrainingReporter

TESTED: Final = "5.23.0"
"""The version of transformers that the callback was tested with."""


def hub_callback(hub: str, *, name: str, **options: Any) -> Any:
    """Return a `transformers.TrainerCallback` that reports a training run to a hub.

    Args:
        hub: the hub's address.
        name: what the run is called.
        options: further arguments of `TrainingReporter`, such as `public`; by default the arguments of the trainer are
            the configuration, without what looks like a secret.

    Raises:
        PeerNotUsable: transformers is missing, or of another version than the tested one.
    """
    require("transformers", TESTED)
    from transformers import TrainerCallback

    class HubCallback(TrainerCallback):  # type: ignore[misc]
        """Reports to a hub. The attribute `report` has the outcome when training has ended."""

        reporter: TrainingReporter | None = None
        report: Any = None

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            """Open the run, on the first process only."""
            if state.is_world_process_zero:
                given: dict[str, Any] = {
                    "config": args.to_dict(), "steps": state.max_steps, "resumed_from": state.global_step,
                    "trainer": "transformers " + version("transformers"), **options,
                }  # fmt: skip
                self.reporter = TrainingReporter(hub, name=name, **given)

        def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
            """Report the numbers that the trainer logs."""
            if self.reporter is not None:
                numbers = {key: value for key, value in (logs or {}).items() if isinstance(value, int | float)}
                self.reporter.log(state.global_step, numbers)

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            """End the run."""
            if self.reporter is not None:
                self.report = self.reporter.close()

    return HubCallback()
