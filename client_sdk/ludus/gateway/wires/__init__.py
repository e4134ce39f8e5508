"""The wires of the gateway: OpenAI's chat completions and responses, Anthropic's messages, Google's generateContent.

Each module has the same functions:

    parse(body, context)     the request of a harness as a `ModelRequest`; raises `Refusal`
    whole(reply, request)    the reply as JSON
    events(reply, request)   the reply as server-sent events
    error(refusal)           a refusal as JSON; `error_events` writes one into a stream that has begun

What a request asks for is obeyed, refused, or named in the header `x-ludus-overridden` of the reply. An entry of a list
that a wire allows and the gateway cannot follow is left out, and named there.
"""
