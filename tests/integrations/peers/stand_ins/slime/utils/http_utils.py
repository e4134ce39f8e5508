"""slime's requests to the router of its engines."""

ENGINE = None
"""What the program has set to answer requests: an async callable."""


async def post(url, payload):
    """Send a request, and return the parsed answer."""
    assert url.endswith("/generate")
    return await ENGINE(payload)
