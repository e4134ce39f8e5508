"""Plays episodes with Harbor's own runner, in sandboxes made by `bwrap` alone: requests on stdin, outcomes on stdout.

Harbor's trial, agents, upload of tests and parsing of rewards run unchanged; only the place where commands run is ours,
since Harbor's own need a container engine. A request is an object with `task` (a folder) and `agent` (`oracle`, `nop`,
or a script for bash); an outcome has `rewards`, or the name of the `error`.
"""

import asyncio
import json
import os
import posixpath
import shutil
import sys
import tempfile
from pathlib import Path

os.environ["HARBOR_TELEMETRY"] = "off"

from harbor.agents.base import BaseAgent
from harbor.agents.capabilities import AgentCapabilities
from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities
from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.trial.trial import Trial

SYSTEM = ["--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
          "--symlink", "usr/lib64", "/lib64", "--ro-bind", "/etc/alternatives", "/etc/alternatives",
          "--proc", "/proc", "--dev", "/dev"]  # fmt: skip


class BwrapEnvironment(BaseEnvironment):
    """A folder of this machine as the directories of a container."""

    isolation = ("--unshare-all",)

    @staticmethod
    def type():
        return "bwrap"

    @property
    def capabilities(self):
        return EnvironmentCapabilities(disable_internet=True)

    def _validate_definition(self):
        pass

    async def start(self, force_build):
        self.root = Path(tempfile.mkdtemp(prefix="harbor-golden-"))
        self.workdir, self.image_env = "/", {}
        for line in (self.environment_dir / "Dockerfile").read_text().splitlines():
            name, *words = line.split()
            if name == "WORKDIR":
                self.workdir = words[0]
                self.place(self.workdir).mkdir(parents=True, exist_ok=True)
            elif name == "ENV":
                self.image_env |= dict(word.split("=", 1) for word in words)
            elif name == "RUN":
                assert words[:2] == ["mkdir", "-p"], line
                self.place(words[2]).mkdir(parents=True, exist_ok=True)
            elif name == "COPY":
                for word in words[:-1]:
                    self.copy(self.environment_dir / word, posixpath.join(self.workdir, words[-1]))
        for folder in ("/logs/agent", "/logs/verifier", "/logs/artifacts", "/tests", "/solution", "/tmp", "/app"):
            self.place(folder).mkdir(parents=True, exist_ok=True)

    def place(self, path):
        return self.root / str(path).lstrip("/")

    def copy(self, source, path):
        target = self.place(path)
        if Path(source).is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)

    async def stop(self, delete):
        shutil.rmtree(self.root, ignore_errors=True)

    async def upload_file(self, source_path, target_path):
        self.copy(source_path, target_path)

    async def upload_dir(self, source_dir, target_dir):
        self.copy(source_dir, target_dir)

    async def download_file(self, source_path, target_path):
        shutil.copy(self.place(source_path), target_path)

    async def download_dir(self, source_dir, target_dir):
        shutil.copytree(self.place(source_dir), target_dir, symlinks=True, dirs_exist_ok=True)

    async def exec(self, command, cwd=None, env=None, timeout_sec=None, user=None):
        variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/app", "LANG": "C.UTF-8"}
        variables |= {**self.image_env, **(self._merge_env(env) or {})}
        argv = ["bwrap", *SYSTEM, *self.isolation, "--die-with-parent"]
        for folder in sorted(self.root.iterdir()):
            argv += ["--bind", str(folder), f"/{folder.name}"]
        process = await asyncio.create_subprocess_exec(
            *argv, "--chdir", cwd or self.task_env_config.workdir or self.workdir, "bash", "-c", command,
            env=variables, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            out, errors = await asyncio.wait_for(process.communicate(), timeout_sec)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return ExecResult(stdout=out.decode(), stderr=errors.decode(), return_code=process.returncode)


class ScriptAgent(BaseAgent):
    """An agent that runs one script."""

    capabilities = AgentCapabilities(mcp_servers=True)

    def __init__(self, logs_dir, model_name=None, script="", **options):
        super().__init__(logs_dir=logs_dir, model_name=model_name, **options)
        self.script = script

    @staticmethod
    def name():
        return "script"

    def version(self):
        return "1"

    async def setup(self, environment):
        pass

    async def run(self, instruction, environment, context):
        await environment.exec(self.script)


async def play(request, trials, environment="harbor_golden:BwrapEnvironment"):
    agent = AgentConfig(name=request["agent"])
    if request["agent"] not in ("oracle", "nop"):
        agent = AgentConfig(import_path="harbor_golden:ScriptAgent", kwargs={"script": request["agent"]})
    config = TrialConfig(
        task=TaskConfig(path=Path(request["task"])),
        trials_dir=trials,
        agent=agent,
        environment=EnvironmentConfig(import_path=environment),
    )
    result = await (await Trial.create(config)).run()
    if result.exception_info is not None:
        return {"error": result.exception_info.exception_type, "text": result.exception_info.exception_message[:300]}
    return {"rewards": result.verifier_result.rewards}


async def main():
    with tempfile.TemporaryDirectory() as trials:
        outcomes = [await play(request, Path(trials)) for request in json.load(sys.stdin)]
    sys.stdout.write("\n" + json.dumps(outcomes) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
