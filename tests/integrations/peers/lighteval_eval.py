"""Run the documented program for lighteval on rows that `ludus export` wrote, and report what its logs say."""

import json
import os
import runpy
import sys
import tempfile
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "docs" / "snippets" / "lighteval_evaluate.py"


def evaluate(folder: str, model: str) -> dict:
    """Run the program in the current folder; it has the names of a task, its rows and the model as arguments."""
    from inspect_ai.log import read_eval_log

    from ludus.integrations.unscored import UNSCORED

    before = UNSCORED["inspect"]
    name = Path(folder).name
    sys.argv = [str(SCRIPT), name, folder, f"openai-api/fixture/{model}"]
    left = runpy.run_path(str(SCRIPT), run_name="__main__")
    (log,) = left["logs"]
    (score,) = log.results.scores
    samples = read_eval_log(log.location).samples
    return {
        "finished": left["finished"],
        "status": log.status,
        "task": log.eval.task,
        "mean": score.metrics["mean"].value,
        "episodes": [[sample.id, sample.epoch] for sample in samples],
        "values": [None if (value := sample.scores["reward"].value) != value else value for sample in samples],
        "reasons": sorted({found for sample in samples if (found := sample.scores["reward"].reason)}),
        "tools": [[event.function for event in sample.events if event.event == "tool"] for sample in samples],
        "counted": UNSCORED["inspect"] - before,
    }


def rows_seen_after_one_more(folder: str) -> int:
    """Add a row to a file that was evaluated, and return how many rows lighteval sees then."""
    from inspect_ai.dataset import Sample, hf_dataset

    file = Path(folder, "test.jsonl")
    text = file.read_text(encoding="utf-8")
    file.write_text(text + text.splitlines()[0].replace("sum-0", "sum-9") + "\n", encoding="utf-8")
    return len(hf_dataset(folder, name="default", split="test", sample_fields=lambda row: Sample(input="")))


def main() -> None:
    """Evaluate what the test asks for, with caches in a folder of its own."""
    given = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ |= {"XDG_CACHE_HOME": folder, "HF_HOME": folder, "INSPECT_DISPLAY": "none"}
        os.environ |= {"FIXTURE_BASE_URL": given["base_url"], "FIXTURE_API_KEY": "none"}
        import inspect

        from lighteval import main_inspect

        report = {name: evaluate(rows, model) for name, (rows, model) in given["runs"].items()}
        report["cached"] = rows_seen_after_one_more(given["runs"]["sums"][0])
        report["ignores_custom_tasks"] = "custom_tasks=None," in inspect.getsource(main_inspect.eval).split('"""')[-1]
        os.chdir("/")
    print(json.dumps(report))


if __name__ == "__main__":
    main()
