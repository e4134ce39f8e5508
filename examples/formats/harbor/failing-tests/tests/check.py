import json
import subprocess
import sys

PROGRAM = """
import json, sys
sys.path.insert(0, "/app")
given = [tuple(pair) for pair in json.load(sys.stdin)]
from intervals import merge
result = merge(given)
print(json.dumps({"result": result, "given": given}))
"""
CASES = [
    ([], []),
    ([[1, 4], [3, 6]], [[1, 6]]),
    ([[1, 9], [2, 3]], [[1, 9]]),
    ([[1, 2], [3, 4]], [[1, 4]]),
    ([[8, 9], [1, 5], [4, 6], [2, 3]], [[1, 6], [8, 9]]),
]

for given, expected in CASES:
    try:
        done = subprocess.run(
            ["python3", "-c", PROGRAM], input=json.dumps(given), capture_output=True, text=True, timeout=10
        )
        found = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        sys.exit(f"merge({given}) gives no result")
    if found != {"result": expected, "given": given}:
        sys.exit(f"merge({given}) gives {found}")
