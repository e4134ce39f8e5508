import asyncio
import json
import re
from typing import Any

from ludus.client import connect


async def model(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Stand in for a model endpoint: return an assistant message in OpenAI's form, here a binary search."""
    metre, low, high = 0, 1, int(re.findall(r"\d+", messages[0]["content"])[-1])
    for message in messages[1:]:
        if message["role"] == "assistant":
            metre = json.loads(message["tool_calls"][0]["function"]["arguments"])["metre"]
        else:
            low, high = (metre + 1, high) if "further on" in message["content"] else (low, metre - 1)
    call = {"name": tools[0]["function"]["name"], "arguments": json.dumps({"metre": (low + high) // 2})}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": call}]}


async def main() -> None:
    async with connect("http://127.0.0.1:8000") as client:
        hunt = client.environment("treasure_hunt")
        async with hunt.drive(split="validation", index=3, form="openai-chat") as driver:
            done = False
            while not done:
                message = await model(driver.messages, driver.tools)
                observations, done = await driver.act(message)
            outcome = await driver.finish()
        print(len(driver.messages), "messages", outcome.value, outcome.reason)


asyncio.run(main())
