import json

EXPECTED = {"words": 23, "distinct": 14, "longest": "lighthouse"}

try:
    with open("/app/report.json") as file:
        report = json.load(file)
    if not isinstance(report, dict):
        report = {}
except (OSError, ValueError):
    report = {}
parts = {name: int(report.get(name) == value) for name, value in EXPECTED.items()}
with open("/logs/verifier/reward.json", "w") as file:
    json.dump({"reward": round(sum(parts.values()) / len(parts), 4), **parts}, file)
