# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
"""TRL's `OpenRewardSpec` as a process: `trl_client.py URL`, the same lines as `client.py`."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

URL = sys.argv[1]


def tell(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def main() -> None:
    job = json.loads(sys.stdin.readline())
    os.environ["OPENREWARD_API_URL"] = os.environ["OPENREWARD_SESSION_URL"] = URL
    from trl.experimental.openreward import OpenRewardSpec

    spec = OpenRewardSpec(
        URL, env_name=job["environment"], split=job["split"], indices=[job["index"]], api_key=job.get("api_key")
    )
    row = spec.train_dataset[0]
    rollout = spec.environment_factory()
    prompt = rollout.reset(**row)
    names = [name for name in dir(rollout) if not name.startswith("_") and callable(getattr(rollout, name))]
    tell({"task": {key: value for key, value in row.items() if key != "prompt"}, "prompt": prompt, "tools": names})
    for line in sys.stdin:
        tool, arguments = json.loads(line)["call"]
        try:
            text = getattr(rollout, tool)(**arguments)
            tell({"blocks": [text], "reward": spec.reward_funcs([rollout])[0], "finished": rollout.finished})
        except Exception as error:
            tell({"raised": type(error).__name__, "message": str(error)})
    rollout._close()


try:
    main()
except Exception as error:
    tell({"raised": type(error).__name__, "message": str(error)})
