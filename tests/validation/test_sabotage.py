"""Spoiled programs, by which `gameability:test-runner` finds graders that trust the process under test."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ludus.validation.reward_hacking.texts import sabotaged

RIGHT = "import math\n\ndef add(a, b):\n    return a + b\n\ndef twice(a):\n    return add(a, a)\n"


@pytest.mark.parametrize("number", range(4))
def test_each_variant_fools_a_test_in_the_same_process_and_solves_nothing(number: int) -> None:
    spoiled = sabotaged(RIGHT)[number]
    naive = f"{spoiled}\nassert add(2, 3) == 5\nassert twice(2) == 4\n"
    assert subprocess.run([sys.executable, "-c", naive], check=False).returncode == 0
    printed = subprocess.run(
        [sys.executable, "-c", f"{spoiled}\nprint(repr(add(2, 3)))"], check=False, capture_output=True, text=True
    )
    assert printed.stdout.strip() != "5"


def test_a_program_inside_a_shell_command_is_spoiled_and_what_is_around_it_stays() -> None:
    command = f"cat > answer.py <<'E'\n{RIGHT}E\npython3 -m unittest\n"
    for spoiled in sabotaged(command):
        assert spoiled.startswith("cat > answer.py <<'E'\nimport math\n")
        assert spoiled.endswith("E\npython3 -m unittest\n")
        assert spoiled != command


@pytest.mark.parametrize("text", ["", "echo def", "I will define a function.", "    def inner(self): pass"])
def test_where_there_is_no_program_there_is_nothing_to_spoil(text: str) -> None:
    assert sabotaged(text) == ()
