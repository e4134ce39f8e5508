"""Report a training loop of your own to a hub."""

import math

from ludus.registry import TrainingReporter
from ludus.registry.types.training import TrainingEnvironment

config = {"model": "Qwen3-0.6B", "learning_rate": 1e-6}
environments = [TrainingEnvironment(name="guess_number", package="ludus/guess-number")]

with TrainingReporter(
    "http://127.0.0.1:8400", name="my first run", config=config, environments=environments, steps=100
) as run:
    for step in range(1, 101):
        loss = math.exp(-step / 30)  # your training step
        run.log(step, {"loss": loss, "reward/mean": 1 - loss})

report = run.close()  # has been closed already; this returns the outcome
print(f"{report.sent} points at {report.url}, {report.dropped} dropped")
