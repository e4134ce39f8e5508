"""Play an episode with an agent of the OpenHands SDK: the JSON object of the harness is on the input."""

import json
import os
import sys

from openhands.sdk import LLM, Agent, AgentContext, Conversation
from openhands.sdk.conversation.exceptions import ConversationRunError


def main() -> None:
    """Play the episode."""
    task = json.loads(sys.stdin.readline())
    llm = LLM(
        model=f"openai/{task['model']}", base_url=task["openai_base_url"], api_key=task["api_key"], num_retries=0,
        timeout=3600, usage_id="agent", max_input_tokens=1_000_000, native_tool_calling=True,
    )  # fmt: skip
    tools = []
    if task["own_tools"]:
        from openhands.tools.preset.default import get_default_tools

        tools = get_default_tools(enable_browser=False)
    context = AgentContext(system_message_suffix=task["system"]) if task["system"] else None
    agent = Agent(llm=llm, tools=tools, mcp_config={task["server"]: {"url": task["play_url"]}}, agent_context=context)
    conversation = Conversation(agent=agent, workspace=os.getcwd(), visualizer=None)
    conversation.send_message(task["prompt"])
    try:
        conversation.run()
    finally:
        conversation.close()


if __name__ == "__main__":
    try:
        main()
    except ConversationRunError as error:
        sys.exit(f"{type(error).__name__}: {error}")
