"""Commands enter through entry points, and cost nothing until they are called."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import typer

from ludus.cli import evaluate
from ludus.cli._lazy import advice, declared_commands, importer
from ludus.client.loading import load_object
from ludus.protocol.errors import Unsupported
from ludus.protocol.text import printable

Ludus = Callable[..., CompletedProcess[str]]
Plugin = Callable[[str], dict[str, str]]


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    """Install a module as a distribution with an entry point; gives the variables under which `ludus` finds it."""

    def install(source: str) -> dict[str, str]:
        site = tmp_path / "site"
        info = site / "extra-1.0.dist-info"
        info.mkdir(parents=True)
        (site / "extra_commands.py").write_text(textwrap.dedent(source))
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: extra\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[ludus.commands]\nextra = extra_commands:register\n")
        return {"PYTHONPATH": str(site)}

    return install


def test_a_declared_command_is_listed_without_importing_its_module(ludus_process: Ludus, plugin: Plugin) -> None:
    variables = plugin("""
        COMMANDS = {"greet": "Say hello."}
        print("imported")
        def register(app):
            @app.command("greet")
            def greet(name: str):
                print(f"hello {name}")
    """)
    listed = ludus_process("--help", variables=variables)
    assert "Say hello." in listed.stdout
    assert "imported" not in listed.stdout
    assert ludus_process("greet", "you", variables=variables).stdout == "imported\nhello you\n"


@pytest.mark.parametrize(
    "declaration",
    [
        'COMMANDS: Final = {"greet": "Say hello."}',
        'COMMANDS = {\n    "greet": "Say hello."\n    # a set is {1}\n}',
        'COMMANDS = {"greet": "Say hello."}  # in the help',
        'OTHER = {}\nCOMMANDS_OF_OTHERS = {}\nCOMMANDS = {"greet": "Say " "hello."}',
        '"""\nCOMMANDS are {these}\n"""\nCOMMANDS = {"greet": "Say hello."}',
    ],
)
def test_commands_are_read_from_every_form_of_the_declaration(
    declaration: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "declares.py").write_text(f"{declaration}\n\ndef register(app): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert declared_commands("declares") == {"greet": "Say hello."}


def test_an_undeclared_command_works_too(ludus_process: Ludus, plugin: Plugin) -> None:
    variables = plugin("""
        def register(app):
            @app.command("greet")
            def greet(name: str):
                "Say hello."
                print(f"hello {name}")
    """)
    assert "Say hello." in ludus_process("--help", variables=variables).stdout
    assert ludus_process("greet", "you", variables=variables).stdout == "hello you\n"


def test_a_broken_plugin_breaks_only_itself(ludus_process: Ludus, plugin: Plugin) -> None:
    variables = plugin("raise RuntimeError('broken on import')")
    listed = ludus_process("--help", variables=variables)
    assert listed.returncode == 0
    assert "unavailable: broken on import" in listed.stdout


def test_a_missing_package_is_answered_with_the_pip_command(ludus_process: Ludus, plugin: Plugin) -> None:
    variables = plugin("""
        COMMANDS = {"greet": "Say hello."}
        import surely_not_installed.anywhere
    """)
    done = ludus_process("greet", variables=variables)
    assert done.returncode == 6
    assert done.stderr == (
        "ludus: the package 'surely_not_installed' is missing; install it with: pip install surely_not_installed\n"
    )


def test_serving_without_the_servers_packages_names_the_extra(ludus_process: Ludus, tmp_path: Path) -> None:
    for name in ("fastapi", "uvicorn", "starlette"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('No module named {name}', name='{name}')")
    done = ludus_process("serve", "guess_number", variables={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 6
    assert 'install it with: pip install "ludus-rl[server]"' in done.stderr


def test_our_own_commands_name_their_extra() -> None:
    error = ModuleNotFoundError("no", name="fastapi.routing")
    assert 'pip install "ludus-rl[server]"' in advice("ludus.server.commands.serve", error)
    assert 'pip install "ludus-rl[server]"' in advice("ludus.sandbox.network.proxy", error)
    assert 'pip install "ludus-rl[trainer]"' in advice("ludus.rendering.renderer", error)
    assert "pip install fastapi" in advice("somebody.elses", error)


def test_an_import_that_fails_while_a_command_runs_is_blamed_on_our_module(tmp_path: Path) -> None:
    (tmp_path / "needs.py").write_text("import surely_not_installed")
    with pytest.raises(ModuleNotFoundError) as caught:
        load_object(f"{tmp_path}/needs.py:x")
    assert importer(caught.value) == "ludus.client.loading"


def test_control_characters_are_shown_and_scripts_left_alone() -> None:
    assert printable("a\tb\n\x1b[0m\r\u202e\x9b") == "a\tb\n\ufffd[0m\ufffd\ufffd\ufffd"
    assert (
        printable("é \u3000 \u0928\u094d\u200d \U0001f469\u200d\U0001f4bb")
        == "é \u3000 \u0928\u094d\u200d \U0001f469\u200d\U0001f4bb"
    )


def test_an_unforeseen_error_is_one_line_and_a_traceback_on_demand(ludus_process: Ludus, plugin: Plugin) -> None:
    variables = plugin("""
        COMMANDS = {"fail": "Fail."}
        def register(app):
            @app.command("fail")
            def fail():
                raise KeyError("what")
    """)
    done = ludus_process("fail", variables=variables)
    assert done.returncode == 70
    assert "LUDUS_DEBUG=1" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Traceback" in ludus_process("fail", variables=variables | {"LUDUS_DEBUG": "1"}).stderr


def test_help_imports_none_of_the_heavy_packages() -> None:
    code = textwrap.dedent("""
        import sys
        sys.argv = ["ludus", "--help"]
        from ludus.cli import main
        try:
            main()
        except SystemExit:
            pass
        heavy = {"pydantic", "aiohttp", "httpx", "fastapi", "mcp", "asyncio", "ludus.client.client", "ludus.server"}
        print("HEAVY", sorted(heavy & set(sys.modules)))
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"


@pytest.mark.parametrize(
    ("target", "publishers", "message"),
    [
        ("ada/dice@1.0.0", False, "no installed package publishes results"),
        ("ada/dice", True, "name the version that was evaluated: ada/dice@VERSION"),
        ("ada/dice@", True, "name the version that was evaluated: ada/dice@VERSION"),
    ],
)
def test_an_evaluation_that_cannot_be_submitted_is_refused_before_its_first_episode(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, target: str, publishers: bool, message: str
) -> None:
    if not publishers:
        monkeypatch.setattr(evaluate, "entry_points", lambda group: ())
    config = tmp_path / "evaluation.toml"
    config.write_text('[[models]]\nmodel = "random"\n[[environments]]\ntarget = "guess_number"\n')
    with pytest.raises((Unsupported, typer.BadParameter), match=message):
        evaluate.eval_command(config, out=tmp_path / "out", submit=target)
    assert not (tmp_path / "out").exists()
