"""Load Parquet files with Hugging Face's datasets, join those of one form, and print what they hold."""

import json
import sys

import datasets

report = {}
for form, files in json.loads(sys.argv[1])["files"].items():
    parts = [datasets.Dataset.from_parquet(file, keep_in_memory=True) for file in files]
    assert all(part.features == parts[0].features for part in parts), [part.features for part in parts]
    joined = datasets.concatenate_datasets(parts)
    seeds = [row["seed"] for row in joined["ludus"]] if "ludus" in joined.features else []
    report[form] = {"rows": len(joined), "seeds": seeds}
print(json.dumps(report))
