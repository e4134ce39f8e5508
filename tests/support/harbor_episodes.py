"""Scripts of agents for the example tasks of Harbor's format: right, wrong and partly right, and reward files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

EXAMPLES: Final = Path(__file__).parents[2] / "examples" / "formats" / "harbor"

SCRIPTS: Final[Mapping[str, Sequence[str]]] = {
    "greeting-file": [
        "echo 'Hello, world!' > greeting.txt",
        "printf 'Hello, world!' > /app/greeting.txt",
        "echo 'Hello, World!' > /app/greeting.txt",
        "echo 'Hello, world!' > /app/greetings.txt",
        "echo 'Hello, world!' > /tmp/x && cp /tmp/x /app/greeting.txt",
        "mkdir greeting.txt",
        "echo 1 > /logs/verifier/reward.txt",
        "printf 'Hello, world!\\n\\n\\n' > greeting.txt",
    ],
    "config-edit": [
        "sed -i 's/8080/9090/' server.conf",
        "sed -i 's/debug = true/debug = false/' server.conf",
        "sed -i -e 's/8080/9090/' -e 's/true/false/' -e 's/workers = 4/workers = 8/' server.conf",
        "printf 'port = 9090\\ndebug = false\\n' > server.conf",
        "rm server.conf",
        "echo 'port = 9090' >> server.conf",
        "sed -i -e 's/8080/9090/' -e 's/debug = true/debug = false/' server.conf",
        "sed -i '/^#/d' server.conf",
    ],
    "sales-by-region": [
        "cp /data/sales.csv totals.csv",
        "printf 'region,revenue\\neast,61.00\\nnorth,127.50\\nsouth,20.25\\nwest,99.90\\n' > totals.csv",
        "printf 'region,revenue\\r\\neast,61.00\\r\\nnorth,127.50\\r\\nsouth,20.25\\r\\nwest,99.90\\r\\n' > totals.csv",
        "printf 'region,revenue\\neast,61\\nnorth,127.5\\nsouth,20.25\\nwest,99.9\\n' > totals.csv",
        "printf 'region,revenue\\n' > totals.csv",
        "rm -rf /data/sales.csv",
        "touch totals.csv",
        "exit 3",
    ],
    "roman-numerals": [
        "echo 'print(\"I\")' > roman.py",
        "echo 'import sys; [print(\"I\" * int(line)) for line in sys.stdin]' > roman.py",
        "echo 'syntax error here' > roman.py",
        'echo \'import sys; print({1: "I", 4: "IV", 9: "IX"}.get(int(sys.stdin.read())))\' > roman.py',
        'echo \'import sys; print({40: "XL", 3999: "MMMCMXCIX"}.get(int(sys.stdin.read())))\' > roman.py',
        "echo 'import os; os._exit(0)' > roman.py",
        "echo 'print(\"MCMXCIV\")' > roman.py && rm roman.py",
        'echo \'import sys; print("XIV" if sys.stdin.read() == "14" else "mmxxiv")\' > roman.py',
    ],
    "word-report": [
        "echo '{\"words\": 23}' > report.json",
        'echo \'{"words": 23, "longest": "lighthouse"}\' > report.json',
        'echo \'{"words": 23, "longest": "lighthouse", "distinct": 14}\' > report.json',
        "echo '[1, 2]' > report.json",
        "echo '{\"words\":' > report.json",
        'echo \'{"words": "23", "distinct": 14.0}\' > report.json',
        "echo '{\"reward\": 1}' > /logs/verifier/reward.json",
        "mkdir report.json",
    ],
    "photo-names": [
        "cd photos && mv IMG_20240131_7.txt 2024-01-31-007.txt",
        "cd photos && mv IMG_20240131_7.txt 2024-01-31-007.txt && mv IMG_20231224_42.txt 2023-12-24-042.txt",
        "cd photos && mv IMG_20240131_7.txt 2024-01-31-7.txt",
        "rm -rf photos",
        "cd photos && touch 2024-01-31-007.txt",
        "cd photos && rm notes.txt && echo seven > 2024-01-31-007.txt",
        "cd photos && mv notes.txt other.txt",
        "cd photos && mv IMG_20240131_7.txt 2024-01-31-007.txt && mv IMG_20231224_42.txt 2023-12-24-042.txt && "
        "mv IMG_20220601_123.txt 2022-06-01-123.txt",
    ],
    "failing-tests": [
        "sed -i 's/in intervals/in sorted(intervals)/' intervals.py",
        "sed -i 's/first < merged/first <= merged/' intervals.py",
        "echo 'def merge(intervals): return sorted(intervals)' > intervals.py",
        "echo 'import os; os._exit(0)' > intervals.py",
        "rm intervals.py",
        "echo 'def merge(intervals): return [(1, 6), (8, 9)]' > intervals.py",
        "sed -i -e 's/in intervals/in sorted(intervals)/' "
        "-e 's/first < merged\\[-1\\]\\[1\\]/first <= merged[-1][1] + 1/' "
        "-e 's/\\[0\\], last)/[0], max(last, merged[-1][1]))/' intervals.py",
        "echo 'import unittest; unittest.TestCase.assertEqual = lambda *a: None' >> intervals.py",
    ],
    "error-log": [
        "printf 'database 3\\ncache 1\\nqueue 1\\n' > errors.txt",
        "printf 'database 3\\nqueue 1\\ncache 1\\n' > errors.txt",
        "printf 'database 3\\ncache 1\\n' > errors.txt",
        "grep ERROR service.log > errors.txt",
        "grep -o 'ERROR [a-z]*' service.log | cut -d' ' -f2 | sort | uniq -c > errors.txt",
        "printf 'cache 1\\ndatabase 3\\nqueue 1\\n' > errors.txt",
        "rm service.log",
        "printf 'database 3\\ncache 1\\nqueue 1' > errors.txt",
    ],
    "backup-script": [
        'echo \'cp -r "$1" "$2"\' > backup.sh',
        "echo 'exit 2' > backup.sh",
        'echo \'[ -d "$1" ] || exit 2; cp -r "$1" "$2"\' > backup.sh',
        "echo 'mkdir -p \"$2\"; cp $1/* $2' > backup.sh",
        "echo '[ -d $1 ] || exit 1; cp -r $1 $2' > backup.sh",
        "echo 'mkdir $2; exit 2' > backup.sh",
        "touch backup.sh",
        "printf '#!/bin/sh\\nkill -9 $PPID\\n' > backup.sh",
    ],
    "inventory-merge": [
        'echo \'{"bolt": 50, "nut": 12, "washer": 7}\' > out/inventory.json',
        'echo \'{"bolt": 50, "nut": 12, "washer": 7}\' > inventory.json',
        'echo \'{"bolt": 50, "nut": 12, "washer": 7, "gear": 0}\' > out/inventory.json',
        "cp east.json out/inventory.json",
        'mkdir -p x && echo \'{"bolt": 50, "nut": 12, "washer": 7}\' > x/inventory.json && mv x/inventory.json out/',
        'echo \'{"bolt": 50, "nut": 12, "washer": 7}\' > x.json && ln -s ../x.json out/inventory.json',
        "echo 1 > /logs/verifier/reward.txt",
        "rm -r out",
    ],
}
"""Scripts of agents by task; each starts in the task's directory."""

REWARD_FILES: Final[Sequence[str]] = [
    "echo 0.25 > /logs/verifier/reward.txt",
    "printf '  1e-1  \\n\\n' > /logs/verifier/reward.txt",
    "echo -3 > /logs/verifier/reward.txt",
    "echo 1_0 > /logs/verifier/reward.txt",
    "echo nan > /logs/verifier/reward.txt",
    "echo inf > /logs/verifier/reward.txt",
    "echo one > /logs/verifier/reward.txt",
    "touch /logs/verifier/reward.txt",
    "echo > /logs/verifier/reward.txt",
    "printf '\\377' > /logs/verifier/reward.txt",
    "true",
    "exit 1",
    "echo 1 > /logs/verifier/reward.txt; exit 1",
    "echo 1 > /logs/verifier/reward.txt; echo '{\"reward\": 0.5}' > /logs/verifier/reward.json",
    'echo \'{"reward": 0.5, "speed": 2}\' > /logs/verifier/reward.json',
    "echo '{\"accuracy\": 0.75}' > /logs/verifier/reward.json",
    "echo '{\"reward\": true}' > /logs/verifier/reward.json",
    'echo \'{"reward": "1"}\' > /logs/verifier/reward.json',
    "echo '{\"reward\": null}' > /logs/verifier/reward.json",
    "echo '{\"reward\": NaN}' > /logs/verifier/reward.json",
    "echo '{\"reward\": 1e999}' > /logs/verifier/reward.json",
    'echo \'{"reward": {"value": 1}}\' > /logs/verifier/reward.json',
    "echo '{\"reward\":' > /logs/verifier/reward.json",
    "echo 1 > /logs/verifier/reward.json",
    "echo '[1]' > /logs/verifier/reward.json",
    "touch /logs/verifier/reward.json",
    "touch /logs/verifier/reward.json; echo 1 > /logs/verifier/reward.txt",
    "echo '{}' > /logs/verifier/reward.json",
    'echo \'{"a": 1, "a": 2}\' > /logs/verifier/reward.json',
]
"""What the tests of a task do, for tasks without anything else."""


def write_task(
    folder: Path,
    *,
    test: str = "echo 1 > /logs/verifier/reward.txt",
    config: str = "",
    dockerfile: str = "WORKDIR /app",
) -> Path:
    """Write a small task, and return its folder."""
    files = {
        "task.toml": f'schema_version = "1.4"\n{config}\n',
        "instruction.md": "Do it.\n",
        "environment/Dockerfile": f"FROM debian:12\n{dockerfile}\n",
        "solution/solve.sh": "#!/bin/bash\ntouch /app/done\n",
        "tests/test.sh": f"#!/bin/bash\n{test}\n",
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder
