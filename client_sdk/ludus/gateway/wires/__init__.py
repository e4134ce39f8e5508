"""The wires of the gateway: OpenAI's chat completions and responses, and Anthropic's messages.

Each module has the same four functions:

    parse(body, temperature, override)   the request of a harness as a `ModelRequest`; raises `Refusal`
    whole(reply, request)                the reply as JSON
    events(reply, request)               the reply as server-sent events
    error(refusal)                       a refusal as JSON

Fields that a wire does not know are ignored, as their servers do.
"""
