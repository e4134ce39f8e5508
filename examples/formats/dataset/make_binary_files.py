"""Write the examples that are no text: `planets.parquet`, `skyrl.parquet` and the saved dataset `algebra`.

Run with a Python that has Hugging Face's `datasets`, such as `.peers/learners/bin/python`.
"""

from __future__ import annotations

from pathlib import Path

import datasets  # pyright: ignore[reportMissingImports]
import pyarrow as pa
from pyarrow import parquet

HERE = Path(__file__).parent
PLANETS = [
    ("Which planet is closest to the Sun?", ["Venus", "Mercury", "Mars", "Earth"], 1),
    ("Which planet is the largest?", ["Saturn", "Neptune", "Jupiter", "Uranus"], 2),
    ("Which planet is known for its bright, wide rings?", ["Saturn", "Mars", "Venus", "Mercury"], 0),
    ("How many planets does the solar system have?", ["seven", "nine", "ten", "eight"], 3),
    ("Which planet appears red because of iron oxide?", ["Jupiter", "Mars", "Neptune", "Venus"], 1),
    ("Which planet rotates on its side?", ["Uranus", "Earth", "Saturn", "Jupiter"], 0),
    ("Which planet has the hottest surface?", ["Mercury", "Mars", "Venus", "Jupiter"], 2),
    ("Which planet was found by calculation before it was seen?", ["Saturn", "Uranus", "Mars", "Neptune"], 3),
    ("Which of these is a dwarf planet?", ["Pluto", "Io", "Titan", "Europa"], 0),
    ("What does the Moon orbit?", ["the Sun only", "Mars", "the Earth", "Venus"], 2),
]
ALGEBRA = [
    ("Solve $2x + 3 = 11$ for $x$.", "4"),
    (r"Compute $\frac{1}{2} + \frac{1}{3}$.", r"\frac{5}{6}"),
    ("Expand $(x + 1)^2$.", "$x^2 + 2x + 1$"),
    ("What is the positive root of $x^2 = 49$?", "7"),
    (r"Simplify $\sqrt{18}$.", r"3\sqrt{2}"),
    ("Factor $x^2 - 9$.", "$(x - 3)(x + 3)$"),
    ("What is $2^{10}$?", "1024"),
    ("A line goes through $(0, 1)$ and $(2, 5)$. What is its slope?", "2"),
    (r"Compute $\frac{3}{4} \cdot \frac{8}{9}$.", r"\frac{2}{3}"),
    ("What is the sum of the integers from 1 to 20?", "210"),
]
SUMS = [(17, 25), (140, 62), (999, 1), (38, 38), (512, 256), (75, 19), (1200, 34), (66, 77), (81, 9), (450, 550)]


def main() -> None:
    """Write the files."""
    planets = [{"question": question, "choices": choices, "answer": answer} for question, choices, answer in PLANETS]
    parquet.write_table(pa.Table.from_pylist(planets), HERE / "planets.parquet", row_group_size=4)
    rows = [
        {
            "data_source": "sums",
            "prompt": [{"role": "user", "content": f'What is {a} + {b}? Give the number after "#### ".'}],
            "env_class": "gsm8k",
            "reward_spec": {"method": "rule", "ground_truth": str(a + b)},
        }
        for a, b in SUMS
    ]
    parquet.write_table(pa.Table.from_pylist(rows), HERE / "skyrl.parquet")
    whole = datasets.Dataset.from_list([{"problem": problem, "answer": answer} for problem, answer in ALGEBRA])
    datasets.DatasetDict({"train": whole.select(range(8)), "test": whole.select(range(8, 10))}).save_to_disk(
        HERE / "algebra"
    )


if __name__ == "__main__":
    main()
