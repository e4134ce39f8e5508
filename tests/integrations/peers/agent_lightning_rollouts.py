"""Let Agent Lightning's own server and controller run the agent of the docs, and report what its trainer would read."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from hanging import signal_when_half_hang


class Impatient:
    """The agent of the docs, which does not try for long to reach a server that stays away."""

    def run(self):
        import functools

        from endpoint_agent_lightning import LudusAgent

        import ludus.client.addresses as addresses

        addresses.connect = functools.partial(addresses.connect, reconnect_seconds=1.0)
        return LudusAgent().run()


@contextlib.contextmanager
def agent_lightning(given: dict) -> Iterator[str]:
    """Run the server and the controller, and yield the server's URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url, key = f"http://127.0.0.1:{port}", "test-key"
    folder = Path(sys.executable).parent
    paths = [str(Path(__file__).parent), given["snippets"], os.environ["PYTHONPATH"]]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    hydra = ["hydra.run.dir=.", "hydra.output_subdir=null", "hydra/job_logging=disabled"]
    server = [folder / "agl-server", "host=127.0.0.1", f"port={port}", f"key={key}", "default_proxy.model_name=mixed"]
    controller = [folder / "agl-controller", "runner_type=local", f"agl_server.url={url}", f"agl_server.key={key}"]
    controller += ["local_runner.poll_interval=0.2", "local_runner.maximum_size=3"]
    with contextlib.ExitStack() as stack:
        for command in (server, controller):
            process = subprocess.Popen([*command, *hydra], env=variables, stdout=sys.stderr, cwd=given["folder"])
            stack.callback(process.wait)
            stack.callback(process.terminate)
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/healthz", timeout=5):
                    break
                time.sleep(0.05)
        yield url


def main() -> None:
    given = json.loads(sys.argv[1])
    from agentlightning.verl.agl_rollout_manager import AglRolloutManager

    reports = {}
    with agent_lightning(given) as url, contextlib.redirect_stdout(sys.stderr):
        for name, one in given["runs"].items():
            manager = AglRolloutManager(
                agl_base_url=url,
                agl_key="test-key",
                model="mixed",
                step=1,
                train_rollout_n=one["samples"],
                poll_interval_seconds=0.2,
                local_agent_class="agent_lightning_rollouts.Impatient",
                local_env_map={"LUDUS_TASK": "input.ludus"},
            )
            manager.register_model([given["base_url"]])
            rows = [json.loads(line) for line in Path(one["data"]).read_text().splitlines()][: one["tasks"]]
            if "kill" in one:
                address = rows[0]["ludus"]["url"]
                signal_when_half_hang(given["base_url"], address, "mixed", len(rows), one["kill"], players_here=False)
            done = manager.enqueue_and_wait_until_completed({"ludus": [row["ludus"] for row in rows]}, is_train=True)
            reports[name] = {
                "rollouts": [
                    {
                        "reward": rollout.final_reward,
                        "calls": len(rollout.triplets),
                        "state": rollout.rollout_state,
                        "error": rollout.error_message,
                    }
                    for rollout in done
                ],
            }
    print(json.dumps(reports))


if __name__ == "__main__":
    main()
