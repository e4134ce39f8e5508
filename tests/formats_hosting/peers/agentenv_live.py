"""An env type for AgentEnv that points at a running MCP server, and such a server of AgentEnv's protocol."""

from agent_env.env.env import Env
from agentenv_protocol import AgentEnvEnvironment, environment_card, tool

SHELVES = {"A1": 14, "A2": 9, "B1": 31, "B2": 0, "C1": 5}


class LiveEnv(Env):
    """An env that is deployed elsewhere, as a type of one's own may be."""

    type = "live"
    description = "An MCP server that runs already"

    def __init__(self, id, version, mcp_url, metadata=None):
        super().__init__(id, version, metadata)
        self.mcp_url = mcp_url

    def to_dict(self):
        return {**super().to_dict(), "mcp_url": self.mcp_url}

    @classmethod
    def from_dict(cls, data):
        return cls(data["id"], data.get("version"), data["mcp_url"], data.get("metadata"))


@environment_card(name="stock")
class Stock(AgentEnvEnvironment):
    """Shelves of a store."""

    @tool(name="count")
    def count(self, shelf: str) -> str:
        """Count the boxes on a shelf."""
        if shelf not in SHELVES:
            raise ValueError(f"there is no shelf {shelf}")
        return f"{shelf}: {SHELVES[shelf]} boxes"
