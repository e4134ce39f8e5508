import sys

import inspect_ai  # pyright: ignore[reportMissingImports]

from ludus.integrations.inspect import environment

url, name, model = sys.argv[1:]  # such as http://127.0.0.1:8000 wordle openai/gpt-5-mini
(log,) = inspect_ai.eval(environment(url, name, n=8), model=model, max_retries=3, log_dir="logs")
for score in log.results.scores if log.results else ():
    print(score.metrics["mean"].value, f"of {score.scored_samples} samples; {score.unscored_samples} unscored")
