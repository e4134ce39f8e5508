"""Mix files: what they say, and the message for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from ludus.client.mix import parse_mix, read_mix
from ludus.protocol.errors import InvalidParams, NotFound

GOOD = """\
url = "http://127.0.0.1:8000"

[policy]
kind = "stages"

[policy.stages]
until = 0.7

[[sources]]
environment = "arithmetic-easy"
weight = 2

[[sources]]
environment = "guess_number"
variant = "tiny"
stage = 2
url = "http://10.0.0.5:8000"

[sources.curriculum]
low = 0.1
"""


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mix.toml"
    path.write_text(GOOD)
    mix = read_mix(path)
    first, second = mix.sources
    assert (first.name, first.title, first.split, first.weight, first.stage) == (
        "arithmetic-easy", "arithmetic-easy", "train", 2.0, 1
    )  # fmt: skip
    assert (second.name, second.stage) == ("guess_number-tiny", 2)
    assert second.curriculum is not None
    assert second.curriculum.low == 0.1
    assert [mix.address(source) for source in mix.sources] == ["http://127.0.0.1:8000", "http://10.0.0.5:8000"]
    assert mix.policy.stages.until == 0.7


def test_a_mix_to_be_served_has_no_address_before_that() -> None:
    mix = parse_mix('serve = ["arithmetic"]\n[[sources]]\nenvironment = "arithmetic"\n', "m")
    assert mix.address(mix.sources[0], "http://x") == "http://x"
    with pytest.raises(InvalidParams, match="`ludus serve` and set `url`"):
        mix.address(mix.sources[0])


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("weight = 2", "weight = -2", "m, line 11: sources.0.weight: -2 is too small; it must be more than 0"),
        ("weight = 2", "wieght = 2", "m, line 11: there is no field sources.0.wieght; did you mean 'weight'?"),
        ("weight = 2", 'weight = "2 ways"', "m, line 11: sources.0.weight: '2 ways' is not a number"),
        ("weight = 2", "weight = 2 3", "m is not TOML: Expected newline .*line 11"),
        ("stage = 2", "stage = 0", "m, line 16: sources.1.stage: 0 is too small; the least is 1"),
        ("stage = 2", "stage = 3", "m: stages are numbered 1, 2, … without gaps, and the sources have 1, 3"),
        ("stage = 2\n", "", "m: kind = \"stages\" needs sources of at least two stages"),
        ("low = 0.1", "low = 0.9", "m, line 19: sources.1.curriculum: low .0.9. must be less than high"),
        ("low = 0.1", "lo = 0.1", "m, line 20: there is no field sources.1.curriculum.lo; did you mean 'low'?"),
        ('kind = "stages"', 'kind = "staged"', "m, line 4: policy.kind: 'staged' is not one of 'fixed', 'stages'"),
        ("until = 0.7", "until = 0.99", "m, line 6: policy.stages: until .0.99. is out of reach: .* 64 groups"),
        ("until = 0.7", "back_below = 0.3\nrehearsal = 0", "m, line 6: policy.stages: back_below needs rehearsal"),
        ("until = 0.7", "back_below = 0.9", "m, line 6: policy.stages: back_below .0.9. must be less than until"),
        ("until = 0.7", "min_groups = 65", "m, line 7: policy.stages.min_groups: 65 is too large; the greatest is 64"),
        ("[policy.stages]\nuntil = 0.7", "[policy.band]\nlow = 0.7", "m, line 6: policy.band is not for kind"),
        ('kind = "stages"\n\n[policy.stages]\nuntil = 0.7', 'kind = "band"', "line 13: sources.1.stage is for kind"),
        ('url = "http://127.0.0.1:8000"', "", "m: the source 'arithmetic-easy' has no server"),
        ('url = "http://127.0.0.1:8000"', 'url = "http://a"\nserve = ["b"]', "m: url and serve exclude each other"),
        ('"guess_number"', '"arithmetic"\nlabel = "arithmetic-easy"', "m: two sources are called 'arithmetic-easy'"),
        (GOOD[GOOD.index("[[sources]]"):], "", "m: sources: it is missing"),
        ("[[sources]]", "[sources]", "is not TOML"),
        ('environment = "arithmetic-easy"', "", "m, line 9: sources.0.environment: it is missing"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line_and_field(old: str, new: str, what: str) -> None:
    assert GOOD.count(old) >= 1
    with pytest.raises(InvalidParams, match=what):
        parse_mix(GOOD.replace(old, new, 1), "m")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nosuch.toml cannot be read: No such file"):
        read_mix(tmp_path / "nosuch.toml")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidParams, match="is not UTF-8"):
        read_mix(tmp_path / "binary")
    (tmp_path / "large").write_bytes(b"#" * (1024 * 1024 + 1))
    with pytest.raises(InvalidParams, match="larger than 1024 KiB"):
        read_mix(tmp_path / "large")
