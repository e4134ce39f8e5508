"""The configuration: what is read, what is refused and how it says so, and that what is printed reads back."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.trainer.core.config import TrainConfig
from ludus.trainer.core.config_base import Section
from ludus.trainer.core.errors import ConfigError, TrainerError
from ludus.trainer.core.settings import EXAMPLE, config_toml, read_config, write_config

ROOT = Path(__file__).parents[3]
CONFIGS = sorted([*(ROOT / "trainer" / "configs").glob("*.toml"), *(ROOT / "examples").glob("train_*.toml")])
MINIMAL = 'output = "o"\n[model]\npath = "m"\n[[environments]]\nurl = "http://h"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(MINIMAL)
    return path


def refusal(file: Path | None, *overrides: str) -> str:
    with pytest.raises(ConfigError) as refused:
        read_config(file, overrides)
    return str(refused.value)


def test_a_file_with_nothing_but_what_is_needed_has_all_defaults(file: Path) -> None:
    config = read_config(file)
    assert config == TrainConfig.model_validate(
        {"output": "o", "model": {"path": "m"}, "environments": [{"url": "http://h"}]}
    )


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_each_example_can_be_used(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tables = tomllib.loads(path.read_text())
    template = tables["model"].get("chat_template")
    for name in [*tables.get("sft", {}).get("demonstrations", ()), *([template] if template else [])]:
        assert name != template or (ROOT / name).exists()
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    assert read_config(path, ["--steps=3"]).steps == 3


def test_there_are_examples_for_a_laptop_a_gpu_a_node_and_two() -> None:
    assert {path.stem for path in CONFIGS} >= {"laptop_cpu", "one_gpu", "node_8gpu", "two_nodes"}


@pytest.mark.parametrize(
    ("override", "place", "value"),
    [
        ("--steps=7", "steps", 7),
        ("--rollouts.group_size=4", "rollouts.group_size", 4),
        ("--environments.0.url=http://x:1/y=z", "environments.0.url", "http://x:1/y=z"),
        ("--environments.1.url=http://second", "environments.1.url", "http://second"),
        ("--model.lora.rank=8", "model.lora.rank", 8),
        ("--model.path=7", "model.path", "7"),
        ('--model.path="7"', "model.path", "7"),
        ("--model.path=a b # c", "model.path", "a b # c"),
        ("--output=/x/y", "output", Path("/x/y")),
        ("--loss.kl=none", "loss.kl", "none"),
        ("--loss.dual_clip=3", "loss.dual_clip", 3.0),
        ("--optimizer.learning_rate=1e-5", "optimizer.learning_rate", 1e-5),
        ("--optimizer.betas=[0.8, 0.9]", "optimizer.betas", (0.8, 0.9)),
        ("--engine.vllm.urls.0=http://s", "engine.vllm.urls.0", "http://s"),
        ("--environments.0.secrets.API-KEY=1", "environments.0.secrets", {"API-KEY": "1"}),
        ("--environments.0.stages=[{split = 'a'}]", "environments.0.stages.0.split", "a"),
        ("--environments.0.stages.0.split=a", "environments.0.stages.0.split", "a"),
        ("--sft={}", "sft.steps", 100),
        ("--rollouts.drop_zero_variance=false", "rollouts.drop_zero_variance", False),
    ],
)
def test_a_value_on_the_command_line_wins(file: Path, override: str, place: str, value: object) -> None:
    found: Any = read_config(file, [override])
    for key in place.split("."):
        found = found[int(key)] if key.isdecimal() else getattr(found, key)
    assert found == value
    assert type(found) is type(value) or isinstance(found, Path)


def test_none_unsets_what_the_file_set(file: Path) -> None:
    file.write_text(
        MINIMAL.replace("[[", "[model.lora]\nrank = 4\n[[") + "[logging]\nwandb = 'w'\n[loss]\ndual_clip = 3"
    )
    assert read_config(file).model.lora is not None
    config = read_config(file, ["--model.lora=none", "--logging.wandb=none", "--loss.dual_clip=none"])
    assert (config.model.lora, config.logging.wandb, config.loss.dual_clip) == (None, None, None)


def test_of_two_values_for_a_key_the_later_one_wins(file: Path) -> None:
    assert read_config(file, ["--steps=1", "--steps=2"]).steps == 2


def test_without_a_file_the_example_is_used() -> None:
    assert read_config(None).model.path == "Qwen/Qwen3-0.6B"
    read_config(None, ["--environments.0.url=http://changed"])
    assert EXAMPLE["environments"] == [{"url": "http://127.0.0.1:8000"}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[rollout]\ngroups = 1", "unknown key rollout; did you mean rollouts?"),
        ("[rollouts]\ngroup_sise = 1", "unknown key rollouts.group_sise; did you mean rollouts.group_size?"),
        ("[loss]\nlearning_rate = 1", "unknown key loss.learning_rate; did you mean optimizer.learning_rate?"),
        ("[parallel]\nzzz = 1", "unknown key parallel.zzz; there are: replicate, shard"),
        ("[rollouts]\ngroups = 'many'", 'rollouts.groups = "many": must be a valid integer'),
        ("[rollouts]\ngroups = '8'", 'rollouts.groups = "8": must be a valid integer'),
        ("[rollouts]\ngroups = 8.0", "rollouts.groups = 8.0: must be a valid integer"),
        ("[rollouts]\ngroups = true", "rollouts.groups = true: must be a valid integer"),
        ("[rollouts]\ndrop_zero_variance = 1", "rollouts.drop_zero_variance = 1: must be a valid boolean"),
        ("[optimizer]\nlearning_rate = '1e-6'", 'optimizer.learning_rate = "1e-6": must be a valid number'),
        ("[optimizer]\nlearning_rate = nan", "must be a finite number"),
        ("[optimizer]\nbetas = [0.9]", "optimizer.betas.1 is missing"),
        ("[rollouts]\ngroup_size = 1", "rollouts.group_size = 1: must be greater than or equal to 2"),
        ("[loss]\nkind = 'poo'", "loss.kind = \"poo\": must be 'ppo', 'gspo'"),
        ("[logging]\nwandb = 3", "logging.wandb = 3: must be text in quotes"),
        ("[dpo]\nsteps = 3", "dpo.trajectories is missing: Files of trajectories"),
        ("[environments.curriculum]\nlow = 0.9", "environments.0.curriculum: low (0.9) must be less than high (0.8)"),
        ("[[rollouts]]\ngroups = 3", "rollouts = [{\"groups\": 3}]: must be a table"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_file_is_named(file: Path, text: str, said: str) -> None:
    file.write_text(f"{MINIMAL}{text}\n")
    message = refusal(file)
    assert said in message
    assert message.startswith(f"{file}: ")
    assert "\n" not in message


def test_every_mistake_is_reported_at_once(file: Path) -> None:
    file.write_text('steps = "many"\nstep = 1\n[environments]\nurl = "http://h"\n')
    message = refusal(file)
    for said in (
        'steps = "many": must be a valid integer',
        "unknown key step; did you mean steps?",
        "output is missing: The run's folder",
        "model is missing: The policy.",
        "environments is a list of tables: write [[environments]], not [environments]",
    ):
        assert f"{file}: {said}" in message


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("--steps", "'--steps' is no value: write --section.key=value"),
        ("steps=3", "'steps=3' is no value"),
        ("--=3", "'--=3' is no value"),
        ("--rollouts..groups=3", "is no value"),
        ("--rollout.groups=3", "unknown key rollout; did you mean rollouts?"),
        ("--group_size=3", "did you mean rollouts.group_size?"),
        ("--steps.x=3", "unknown key steps.x; steps is no table"),
        ("--steps=1.5", "steps = 1.5: must be a valid integer"),
        ("--rollouts=5", "rollouts = 5: must be a table"),
        ("--environments.x.url=a", "entries of environments go by number, such as environments.0"),
        ("--environments.2.url=a", "environments = [{'url': 'http://h'}] has no place for 2"),
        ("--environments=[]", "environments = []: List should have at least 1 item"),
        ("--environments.0=5", "environments.0 = 5: must be a table"),
        ("--model.lora=all", 'model.lora = "all": must be a table'),
        ('--model.tiny={"hidden": 64}', "must be a table, written as in TOML: {key = 1}"),
        ("--output=\udcff", "is not UTF-8 text"),
    ],
)
def test_a_mistake_on_the_command_line_is_named(file: Path, override: str, said: str) -> None:
    message = refusal(file, "--seed=3", override)
    assert said in message
    assert repr(override)[1:-1] in message


def test_a_value_cannot_be_put_below_one_that_is_no_table(file: Path) -> None:
    file.write_text(MINIMAL + "rollouts = 3\n")  # in [[environments]]: an unknown key there, and none here
    assert "unknown key environments.0.rollouts" in refusal(file, "--rollouts.groups=3")
    file.write_text("rollouts = 3\n" + MINIMAL)
    assert "--rollouts.groups=3: rollouts = 3 has no place for groups" in refusal(file, "--rollouts.groups=3")


def test_a_file_that_is_not_there_gets_a_suggestion(file: Path) -> None:
    assert refusal(file.with_name("rum.toml")).endswith(f"did you mean {file}?")
    assert "did you mean" not in refusal(Path("/nowhere/at/all.toml"))


def test_what_is_no_toml_is_shown_with_its_line(file: Path) -> None:
    file.write_text("steps = 3\nseed = = 4\n")
    assert "is not valid TOML" in (message := refusal(file))
    assert "at line 2" in message
    file.write_text('output = "x')
    assert "is not valid TOML" in refusal(file)
    file.write_bytes(b'output = "\xff"')
    assert "is not UTF-8 text" in refusal(file)
    assert "cannot read" in refusal(file.parent)


def test_a_named_file_that_is_absent_is_reported_before_anything_is_loaded(file: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    files = f"['{tmp_path}/a.jsonl', '{tmp_path}/b.jsonl']"
    assert f"]: sft.demonstrations.1: there is no file {tmp_path}/b.jsonl" in refusal(
        file, f"--sft.demonstrations={files}"
    )
    assert f"]: dpo.trajectories.1: there is no file {tmp_path}/b.jsonl" in refusal(file, f"--dpo.trajectories={files}")
    assert "model.chat_template: there is no file gone.jinja" in refusal(file, "--model.chat_template=gone.jinja")


def sections(kind: type[Section]) -> Iterator[type[Section]]:
    yield kind
    for field in kind.model_fields.values():
        stack = [field.annotation]
        while stack:
            one = stack.pop()
            if isinstance(one, type) and issubclass(one, Section):
                yield from sections(one)
            elif get_origin(one) is not None:
                stack += get_args(one)


def test_what_can_be_unset_is_unset_by_default() -> None:
    """TOML has no null: a key that is left out must mean the same as None."""
    for section in sections(TrainConfig):
        for name, field in section.model_fields.items():
            if NoneType in get_args(field.annotation):
                assert field.default is None, f"{section.__name__}.{name}"


def test_every_key_is_explained_in_what_is_printed() -> None:
    printed = config_toml().splitlines()
    for section in sections(TrainConfig):
        for name, field in section.model_fields.items():
            assert field.description, f"{section.__name__}.{name}"
            assert any(line.removeprefix("#").startswith((f"{name} =", "[")) and name in line for line in printed), name


def test_what_is_printed_reads_back_to_the_same_configuration(file: Path, tmp_path: Path) -> None:
    overrides = [
        "--model.lora.rank=3", "--loss.dual_clip=3", "--environments.1.url=http://two", "--environments.1.secrets.A=B",
        "--environments.0.stages=[{split = 'a'}, {split = 'b', until = 0.5}]", "--environments.1.curriculum={low=0.1}",
        "--sft.steps=5", "--engine.vllm.arguments=['--a=\"b\"', 'c\\d']", "--threads=2",
        "--optimizer.learning_rate=1e-7",
    ]  # fmt: skip
    config = read_config(file, overrides)
    printed = tmp_path / "printed.toml"
    printed.write_text(config_toml(config))
    assert read_config(printed) == config
    assert "learning_rate = 1e-07  # default: 1e-06" in printed.read_text()


texts = st.text(st.characters(codec="utf-8"), max_size=20)


@given(path=texts, secrets=st.dictionaries(texts, texts, max_size=3), rate=st.floats(min_value=1e-300, max_value=1e300))
def test_any_text_and_number_survives_printing(path: str, secrets: dict[str, str], rate: float) -> None:
    config = TrainConfig.model_validate(
        {
            "output": "o",
            "model": {"path": path},
            "environments": [{"url": path, "secrets": secrets}],
            "optimizer": {"learning_rate": rate},
        }
    )
    assert TrainConfig.model_validate(tomllib.loads(config_toml(config))) == config


def test_a_commented_table_can_be_uncommented_as_it_stands() -> None:
    text = config_toml().replace("#[model.lora]", "[model.lora]").replace("#rank", "rank")
    assert TrainConfig.model_validate(tomllib.loads(text)).model.lora is not None


def test_the_effective_configuration_is_kept_with_the_run(file: Path, tmp_path: Path) -> None:
    config = read_config(file, [f"--output={tmp_path}/a/b", "--steps=3"])
    assert write_config(config) == tmp_path / "a" / "b" / "config.toml"
    assert read_config(tmp_path / "a" / "b" / "config.toml") == config


def test_a_folder_that_cannot_be_made_is_named(file: Path) -> None:
    with pytest.raises(TrainerError, match=r"cannot write .*config\.toml: Not a directory; choose another folder"):
        write_config(read_config(file, [f"--output={file}/below"]))
