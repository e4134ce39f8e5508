"""`open_mix`: tasks of a mix for a program that plays them itself, on a real server."""

from __future__ import annotations

import ast
import asyncio
import json
import runpy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from saying import Saying

from ludus.client import Call
from ludus.client.mix import mixer, open_mix, parse_mix, record
from ludus.protocol.errors import ConnectionFailed, EnvironmentNotFound, InvalidParams, SplitNotFound

SOURCES = """
[[sources]]
environment = "saying"
label = "easy"
[[sources]]
environment = "saying"
label = "hard"
split = "hard"
"""
PROGRESS = '[policy]\nkind = "progress"\n'


@pytest.fixture(autouse=True, scope="module")
def short_spans() -> Iterator[None]:
    """Let shares follow the results of fewer groups than in real runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record, "FAST", 2.0)
        patch.setattr(record, "SLOW", 8.0)
        patch.setattr(mixer, "KNOWN_GROUPS", 2)
        yield


async def test_tasks_are_drawn_played_and_reported(serve: Any, tmp_path: Path) -> None:
    server = await serve(Saying)
    path = tmp_path / "mix.toml"
    path.write_text(f'url = "{server.url}"\n{PROGRESS}{SOURCES}')
    async with open_mix(path, seed=3) as mix:
        for _ in range(12):
            draw = await mix.draw()
            assert draw.address.split == ("hard" if draw.source == "hard" else "train")
            async with draw.group(2) as group:
                for episode in group.episodes:
                    await episode.call(Call("say", {"number": draw.task.fields["target"]}))
                values = [(await episode.rewards()).total for episode in group.episodes]
            mix.report(draw.number, [value.value if value else None for value in values])
        assert {record.pass_rate for record in mix.mixer.records.values()} == {1.0}
        assert sum(record.episodes for record in mix.mixer.records.values()) == 24


async def test_a_program_resumes_where_it_was(serve: Any) -> None:
    server = await serve(Saying)
    text = f'url = "{server.url}"\n{PROGRESS}{SOURCES}'

    def values(number: int) -> list[float | None]:
        return [1.0, None, float(number % 3 == 0)]

    async with open_mix(parse_mix(text, "mix")) as mix:
        whole = []
        for _ in range(30):
            draw = await mix.draw()
            whole.append((draw.source, draw.task.id))
            mix.report(draw.number, values(draw.number))
    async with open_mix(parse_mix(text, "mix")) as mix:
        for _ in range(11):
            draw = await mix.draw()
            mix.report(draw.number, values(draw.number))
        await mix.draw()  # drawn and not reported: it is drawn again
        state = json.loads(json.dumps(mix.state()))
    async with open_mix(parse_mix(text, "mix")) as mix:
        mix.load_state(state)
        rest = []
        for _ in range(11, 30):
            draw = await mix.draw()
            rest.append((draw.source, draw.task.id))
            mix.report(draw.number, values(draw.number))
    assert rest == whole[11:]


async def test_a_curriculum_within_a_source_reports_to_the_server(serve: Any) -> None:
    server = await serve(Saying)
    text = (
        f'url = "{server.url}"\n[[sources]]\nenvironment = "saying"\n'
        "[sources.curriculum]\nlow = 0.2\nhigh = 0.8\nexplore = 0.3\n"
    )
    async with open_mix(parse_mix(text, "mix")) as mix:
        drawn = []
        for _ in range(60):
            draw = await mix.draw()
            target = draw.task.fields["target"]
            drawn.append(target)
            mix.report(draw.number, {0: [1.0, 1.0], 1: [1.0, 0.0]}.get(target, [0.0, 0.0]))
    late = Counter(drawn[30:])
    assert late[1] >= 0.5 * late.total()


async def test_a_lag_bounds_the_open_groups(serve: Any) -> None:
    server = await serve(Saying)
    async with open_mix(parse_mix(f'url = "{server.url}"\n{PROGRESS}{SOURCES}', "mix"), lag=2) as mix:
        await mix.draw()
        await mix.draw()
        await mix.draw()
        with pytest.raises(InvalidParams, match="report an earlier group before you draw group 3"):
            await mix.draw()
        mix.report(0, [1.0])
        assert (await mix.draw()).number == 3
        with pytest.raises(InvalidParams, match="group 9 was not drawn"):
            mix.report(9, [1.0])


async def test_what_a_server_does_not_have_is_named(serve: Any, unused_tcp_port: int) -> None:
    server = await serve(Saying)
    for source, error, what in [
        ('environment = "sayin"', EnvironmentNotFound, "the source 'sayin': .*did you mean 'saying'"),
        ('environment = "saying"\nvariant = "easy"', EnvironmentNotFound, "no environment 'saying-easy'"),
        ('environment = "saying"\nsplit = "tran"', SplitNotFound, "no split 'tran'.*did you mean 'train'"),
        (f'environment = "saying"\nurl = "http://127.0.0.1:{unused_tcp_port}"', ConnectionFailed, "running"),
        ('environment = "saying"\ntoken_variable = "NO_SUCH"', InvalidParams, "variable NO_SUCH, which is not set"),
        ('environment = "saying"\nsecrets = { key = "NO_SUCH" }', InvalidParams, "variable NO_SUCH, which is not"),
        ('environment = "saying"\nurl = "ftp://a"', InvalidParams, "the source 'saying': .*ftp://a"),
    ]:
        with pytest.raises(error, match=what):
            async with open_mix(parse_mix(f'url = "{server.url}"\n[[sources]]\n{source}\n', "mix")):
                pass


async def test_the_loop_of_the_page_plays_a_mix(
    serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = await serve(Saying)
    (tmp_path / "mix.toml").write_text(f'url = "{server.url}"\n{PROGRESS}{SOURCES}')
    monkeypatch.chdir(tmp_path)
    program = Path(__file__).parents[2] / "docs" / "snippets" / "mix_loop.py"
    await asyncio.to_thread(runpy.run_path, str(program))
    assert set(ast.literal_eval(capsys.readouterr().out)) == {"easy", "hard"}
