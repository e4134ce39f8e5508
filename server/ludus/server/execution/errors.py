"""The exception with which the author's code refuses a call of the agent, instead of failing."""


class ToolError(Exception):
    """Raised by a tool to refuse a call; the episode goes on.

    The message becomes the observation.
    """
