#!/bin/bash
python3 - <<'END'
import json

EXPECTED = {"bolt": 50, "nut": 12, "washer": 7}
try:
    with open("/app/out/inventory.json") as file:
        right = json.load(file) == EXPECTED
except (OSError, ValueError):
    right = False
with open("/logs/verifier/reward.txt", "w") as file:
    file.write(str(int(right)))
END
