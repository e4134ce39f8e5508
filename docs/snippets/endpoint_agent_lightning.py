import json
import os

from agentlightning.client import AgentLightningAsyncClient  # pyright: ignore[reportMissingImports]

from ludus.client import TaskAddress
from ludus.integrations.endpoint import play_task
from ludus.integrations.peers import require

require("agentlightning", "1.0.2")


class LudusAgent:
    """Plays the task in the variable LUDUS_TASK, which `env_map` sets, and reports its value."""

    async def run(self) -> None:
        events, key = os.environ["AGL_EVENT_URL"], os.environ["AGL_KEY"]
        run = await play_task(
            TaskAddress.from_json(json.loads(os.environ["LUDUS_TASK"])),
            "default",
            base_url=os.environ["AGL_OPENAI_BASE_URL"],
            api_key=key,
            adapter="agent-lightning",
            turns=8,
        )
        async with AgentLightningAsyncClient(key=key) as server:
            if run.outcome.value is None:
                # Agent Lightning trains even on the calls of a rollout that failed, with a reward of 0.0. It reads
                # those of the last attempt, so a last attempt without calls leaves the rollout out.
                status = {"status": {"last_attempt_id": "unscored"}}
                (await server.patch(events.partition("/attempt/")[0], json=status)).raise_for_status()
                run.scored()  # raises, so that the rollout fails
            reward = {"event_type": "reward", "data": {"value": run.outcome.value}}
            (await server.post(events, json=reward)).raise_for_status()
