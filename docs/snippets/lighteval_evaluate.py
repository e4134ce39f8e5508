import sys
from typing import Any

import inspect_ai  # pyright: ignore[reportMissingImports]
from inspect_ai.dataset import Sample  # pyright: ignore[reportMissingImports]
from lighteval.main_inspect import get_inspect_ai_task  # pyright: ignore[reportMissingImports]
from lighteval.tasks.lighteval_task import LightevalTaskConfig  # pyright: ignore[reportMissingImports]

from ludus.integrations.inspect import episode, reward

name, folder, model = sys.argv[1:]  # such as wordle rows/wordle openai/gpt-5-mini


def sample(row: dict[str, Any]) -> Sample:
    return Sample(id=row["ludus"]["task"], input=row["prompt"][-1]["content"], metadata={"ludus": row["ludus"]})


config = LightevalTaskConfig(
    name=name,
    hf_repo=folder,  # a folder with a file of rows for each split
    hf_subset="default",
    evaluation_splits=["test"],
    sample_fields=sample,
    solver=[episode()],
    scorer=reward(),
    metrics=[],  # these two are for its other commands
    prompt_function=lambda row, task: None,
)
finished, logs = inspect_ai.eval_set(
    [get_inspect_ai_task(config, epochs=2)], model=model, log_dir=f"logs/{name}", fail_on_error=False, max_retries=3
)
for score in logs[0].results.scores if logs[0].results else ():
    print(score.metrics["mean"].value, f"of {score.scored_samples} samples; {score.unscored_samples} unscored")
