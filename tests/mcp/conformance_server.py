"""A Ludus server with what MCP's conformance suite looks for, in addition to what Ludus has.

    python conformance_server.py [--plain]

The suite calls tools, prompts and resources by names of its own. Those that an environment can have are tools of
`Fixture`, served by the play plane as any environment's are. The others (audio, progress, sampling, resources, …) are
no part of Ludus and are added to our MCP servers through `McpTransport(extend=…)`; so what they test is our app:
guard, authentication, routes, both planes, the extension. `--plain` adds nothing: the server exactly as it ships.

Prints one line of JSON, `{"control": URL, "play": URL}`, and serves until its input ends.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp import MCPError
from mcp.server.context import ServerRequestContext

from ludus.protocol.episodes import StartParams
from ludus.server import Environment, EpisodeLimits, ImageBlock, Task, ToolError, tool
from ludus.server.auth.principal import Principal
from ludus.server.serving.serve import LudusServer, build
from ludus.server.serving.settings import ServerSettings
from ludus.server.transports.mcp.server import McpServer
from ludus.server.transports.mcp.transport import McpTransport

Context = ServerRequestContext[Any, Any]
Answer = dict[str, Any]
Handler = Callable[[Context, types.CallToolRequestParams], Awaitable[Answer]]

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = base64.b64encode(
    b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x80\x3e\0\0\2\0\x10\0data\0\0\0\0"
).decode()
STATE_KEY = secrets.token_bytes(32)


class Fixture(Environment[Task]):
    """The suite's tools that are ordinary tools."""

    blocking = False
    splits = {"train": [Task(id="only")]}
    limits = EpisodeLimits(idle_seconds=600)

    def prompt(self) -> str:
        return "Be conformant."

    @tool
    def test_simple_text(self) -> str:
        """Returns a text."""
        return "This is a simple text response for testing."

    @tool
    def test_image_content(self) -> ImageBlock:
        """Returns an image."""
        return ImageBlock(data=PNG, mime_type="image/png")

    @tool
    def test_error_handling(self) -> str:
        """Refuses."""
        raise ToolError("This tool intentionally returns an error for testing")


# ── content ────────────────────────────────────────────────────────────────────────────────────────────────────────


def text(value: str) -> Answer:
    return {"type": "text", "text": value}


def image() -> Answer:
    return {"type": "image", "data": PNG, "mimeType": "image/png"}


def resource(uri: str, mime_type: str, value: str) -> Answer:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": value}}


def done(*content: Answer, is_error: bool = False) -> Answer:
    return {"content": list(content), "isError": is_error, "resultType": "complete"}


async def simple_text(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    return done(text("This is a simple text response for testing."))


async def image_content(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    return done(image())


async def error_handling(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    return done(text("This tool intentionally returns an error for testing"), is_error=True)


async def audio_content(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    return done({"type": "audio", "data": WAV, "mimeType": "audio/wav"})


async def embedded_resource(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    return done(resource("test://embedded-resource", "text/plain", "This is an embedded resource content."))


async def multiple_content_types(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    data = json.dumps({"test": "data", "value": 123})
    mixed = resource("test://mixed-content-resource", "application/json", data)
    return done(text("Multiple content types test:"), image(), mixed)


# ── talking to the client while a tool runs ────────────────────────────────────────────────────────────────────────


async def with_logging(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        note = types.LoggingMessageNotificationParams(level="info", data=line)
        meta = (ctx.params or {}).get("_meta") or {}
        if ctx.protocol_version < "2026" or "io.modelcontextprotocol/logLevel" in meta:
            await ctx.session.send_notification(
                types.LoggingMessageNotification(params=note), related_request_id=ctx.request_id
            )
    return done(text("Logged three lines."))


async def with_progress(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    for progress in (0, 50, 100):
        await ctx.session.report_progress(progress, 100)
    return done(text("Reported progress."))


async def sampling(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    message = {"role": "user", "content": text((params.arguments or {})["prompt"])}
    request = types.CreateMessageRequest.model_validate({"params": {"messages": [message], "maxTokens": 100}})
    reply = await ctx.session.send_request(request, types.CreateMessageResult, metadata=_related(ctx))
    content = reply.content
    return done(text(f"LLM response: {content.text if isinstance(content, types.TextContent) else content}"))


def _related(ctx: Context) -> Any:
    from mcp.shared.message import ServerMessageMetadata

    return ServerMessageMetadata(related_request_id=ctx.request_id)


async def elicit(ctx: Context, message: str, schema: Answer) -> types.ElicitResult:
    request = types.ElicitRequest.model_validate(
        {"params": {"mode": "form", "message": message, "requestedSchema": schema}}
    )
    return await ctx.session.send_request(request, types.ElicitResult, metadata=_related(ctx))


def form(**properties: Answer) -> Answer:
    return {"type": "object", "properties": properties, "required": list(properties)}


async def elicitation(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    schema = form(
        username={"type": "string", "description": "User's response"},
        email={"type": "string", "description": "User's email address"},
    )
    reply = await elicit(ctx, (params.arguments or {})["message"], schema)
    return done(text(f"User response: action={reply.action}, content={json.dumps(reply.content)}"))


async def elicitation_defaults(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    schema = form(
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        verified={"type": "boolean", "default": True},
    )
    reply = await elicit(ctx, "Please review", {**schema, "required": []})
    return done(text(f"Elicitation completed: action={reply.action}, content={json.dumps(reply.content)}"))


async def elicitation_enums(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    options = ["option1", "option2", "option3"]
    titled = [
        {"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(("First", "Second", "Third"), 1)
    ]
    legacy = {"enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"]}
    schema = form(
        untitledSingle={"type": "string", "enum": options},
        titledSingle={"type": "string", "oneOf": titled},
        legacyEnum={"type": "string", **legacy},
        untitledMulti={"type": "array", "items": {"type": "string", "enum": options}},
        titledMulti={"type": "array", "items": {"anyOf": titled}},
    )
    reply = await elicit(ctx, "Please choose", {**schema, "required": []})
    return done(text(f"Elicitation completed: action={reply.action}, content={json.dumps(reply.content)}"))


# ── asking the client between two rounds of one call ───────────────────────────────────────────────────────────────


def ask(key: str, method: str, **params: Any) -> Answer:
    return {key: {"method": method, "params": params}}


def ask_text(key: str, message: str, field: str, kind: str = "string") -> Answer:
    return ask(key, "elicitation/create", mode="form", message=message, requestedSchema=form(**{field: {"type": kind}}))


def ask_model(key: str, prompt: str, tokens: int = 100) -> Answer:
    return ask(key, "sampling/createMessage", messages=[{"role": "user", "content": text(prompt)}], maxTokens=tokens)


def more(requests: Answer, state: str | None = None) -> Answer:
    found: Answer = {"resultType": "input_required", "inputRequests": requests}
    return found if state is None else {**found, "requestState": state}


def seal(state: str) -> str:
    return f"{state}.{hmac.digest(STATE_KEY, state.encode(), hashlib.sha256).hex()}"


def unseal(sealed: str | None) -> str | None:
    if sealed is None:
        return None
    state, _, mac = sealed.rpartition(".")
    if not hmac.compare_digest(seal(state).rpartition(".")[2], mac):
        raise MCPError(types.INVALID_PARAMS, "requestState failed its integrity check")
    return state


def replies(ctx: Context) -> Answer:
    found = (ctx.params or {}).get("inputResponses")
    return found if isinstance(found, dict) else {}


def said(reply: Any, field: str) -> Any:
    content = reply.get("content") if isinstance(reply, dict) else None
    return content.get(field) if isinstance(content, dict) else None


async def asks_name(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    name = said(replies(ctx).get("user_name"), "name")
    if not isinstance(name, str):
        return more(ask_text("user_name", "What is your name?", "name"))
    return done(text(f"Hello, {name}!"))


async def asks_model(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    reply = replies(ctx).get("capital_question")
    if reply is None:
        return more(ask_model("capital_question", "What is the capital of France?"))
    return done(text(str(said(reply, "text"))))


async def asks_roots(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    reply = replies(ctx).get("client_roots")
    if reply is None:
        return more(ask("client_roots", "roots/list"))
    return done(text(f"Roots: {json.dumps(reply['roots'])}"))


async def asks_with_state(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    state = unseal(params.request_state)
    if state is None or "confirm" not in replies(ctx):
        return more(ask_text("confirm", "Please confirm", "ok", "boolean"), seal("asked"))
    return done(text("state-ok"))


async def asks_thrice(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    requests = {
        **ask_text("user_name", "What is your name?", "name"),
        **ask_model("greeting", "Generate a greeting", 50),
        **ask("client_roots", "roots/list"),
    }
    if unseal(params.request_state) is None or any(key not in replies(ctx) for key in requests):
        return more(requests, seal("asked"))
    return done(text("All answered."))


async def asks_in_rounds(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    state = unseal(params.request_state)
    if state == "one" and "step1" in replies(ctx):
        return more(ask_text("step2", "Step 2: What is your favorite color?", "color"), seal("two"))
    if state == "two" and "step2" in replies(ctx):
        return done(text("Both steps done."))
    return more(ask_text("step1", "Step 1: What is your name?", "name"), seal("one"))


async def asks_what_it_may(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    declared = ctx.session.client_capabilities
    requests: Answer = {}
    if declared is not None and declared.elicitation is not None:
        requests |= ask_text("user_name", "What is your name?", "name")
    if declared is not None and declared.sampling is not None:
        requests |= ask_model("greeting", "Generate a greeting", 50)
    if requests and not replies(ctx):
        return more(requests)
    return done(text("Nothing to ask."))


async def needs_sampling(ctx: Context, params: types.CallToolRequestParams) -> Answer:
    declared = ctx.session.client_capabilities
    if declared is None or declared.sampling is None:
        needed: Answer = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "this tool needs sampling", needed)
    return done(text("You can sample."))


TEXT_ARGUMENT = {"sampling": "prompt", "elicitation": "message"}
TOOLS: dict[str, Handler] = {
    "test_simple_text": simple_text,
    "test_image_content": image_content,
    "test_error_handling": error_handling,
    "test_audio_content": audio_content,
    "test_embedded_resource": embedded_resource,
    "test_multiple_content_types": multiple_content_types,
    "test_tool_with_logging": with_logging,
    "test_logging_tool": with_logging,
    "test_tool_with_progress": with_progress,
    "test_sampling": sampling,
    "test_elicitation": elicitation,
    "test_elicitation_sep1034_defaults": elicitation_defaults,
    "test_elicitation_sep1330_enums": elicitation_enums,
    "test_streaming_elicitation": asks_name,
    "test_input_required_result_elicitation": asks_name,
    "test_input_required_result_sampling": asks_model,
    "test_input_required_result_list_roots": asks_roots,
    "test_input_required_result_request_state": asks_with_state,
    "test_input_required_result_tampered_state": asks_with_state,
    "test_input_required_result_multiple_inputs": asks_thrice,
    "test_input_required_result_multi_round": asks_in_rounds,
    "test_input_required_result_capabilities": asks_what_it_may,
    "test_missing_capability": needs_sampling,
}


def described(name: str) -> types.Tool:
    argument = TEXT_ARGUMENT.get(name.removeprefix("test_"))
    schema = form(**{argument: {"type": "string"}}) if argument else {"type": "object", "properties": {}}
    return types.Tool(name=name, description=f"A tool of the conformance suite: {name}.", input_schema=schema)


# ── prompts and resources ──────────────────────────────────────────────────────────────────────────────────────────

PROMPTS = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}


def prompt_list() -> list[types.Prompt]:
    return [
        types.Prompt(
            name=name,
            description=f"A prompt of the conformance suite: {name}.",
            arguments=[types.PromptArgument(name=one, description=f"The {one}.", required=True) for one in arguments],
        )
        for name, arguments in PROMPTS.items()
    ]


async def get_prompt(ctx: Context, params: types.GetPromptRequestParams) -> Answer:
    given = params.arguments or {}
    content = {
        "test_simple_prompt": lambda: [text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments": lambda: [
            text(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")
        ],
        "test_prompt_with_embedded_resource": lambda: [
            resource(given["resourceUri"], "text/plain", "Embedded resource content for testing."),
            text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image": lambda: [image(), text("Please analyze the image above.")],
        "test_input_required_result_prompt": lambda: [text(f"Context: {replies(ctx)['user_context']}")],
    }
    if params.name == "test_input_required_result_prompt" and "user_context" not in replies(ctx):
        return more(ask_text("user_context", "What context should the prompt use?", "context"))
    messages = [{"role": "user", "content": block} for block in content[params.name]()]
    return {"messages": messages, "resultType": "complete"}


async def list_resources(ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
    return types.ListResourcesResult(
        resources=[
            types.Resource(uri="test://static-text", name="text", description="A text.", mime_type="text/plain"),
            types.Resource(uri="test://static-binary", name="binary", description="An image.", mime_type="image/png"),
            types.Resource(uri="test://watched-resource", name="watched", description="One to watch."),
        ]
    )


async def list_templates(ctx: Context, params: Any) -> types.ListResourceTemplatesResult:
    template = types.ResourceTemplate(
        uri_template="test://template/{id}/data", name="template", description="By id.", mime_type="application/json"
    )
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> Answer:
    uri = params.uri
    if uri == "test://static-text":
        found = {"mimeType": "text/plain", "text": "This is the content of the static text resource."}
    elif uri == "test://static-binary":
        found = {"mimeType": "image/png", "blob": PNG}
    elif uri.startswith("test://template/") and uri.endswith("/data"):
        which = uri.split("/")[3]
        data = {"id": which, "templateTest": True, "data": f"Data for ID: {which}"}
        found = {"mimeType": "application/json", "text": json.dumps(data)}
    else:
        raise MCPError(types.INVALID_PARAMS, "Resource not found", {"uri": uri})
    cache = {"ttlMs": 0, "cacheScope": "private"}
    return {"contents": [{"uri": uri, **found}], "resultType": "complete", **cache}


async def complete(ctx: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
    return types.CompleteResult(completion=types.Completion(values=["paris", "park", "party"], total=3, has_more=False))


async def nothing(ctx: Context, params: Any) -> types.EmptyResult:
    return types.EmptyResult()


def add_fixture(server: McpServer) -> None:
    """Let one of our MCP servers answer the suite, in addition to everything it has."""
    own_list, own_call = server.get_request_handler("tools/list"), server.get_request_handler("tools/call")
    own_prompts, own_prompt = server.get_request_handler("prompts/list"), server.get_request_handler("prompts/get")
    assert own_list is not None
    assert own_call is not None

    async def list_tools(ctx: Context, params: types.PaginatedRequestParams) -> types.ListToolsResult:
        own = await own_list.handler(ctx, params)
        assert isinstance(own, types.ListToolsResult)
        names = {tool.name for tool in own.tools}
        return types.ListToolsResult(tools=[*own.tools, *(described(name) for name in TOOLS if name not in names)])

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> Any:
        theirs = TOOLS.get(params.name)
        if theirs is None or (own_prompt is not None and hasattr(Fixture, params.name)):
            return await own_call.handler(ctx, params)
        return await theirs(ctx, params)

    async def list_prompts(ctx: Context, params: types.PaginatedRequestParams) -> types.ListPromptsResult:
        own = await own_prompts.handler(ctx, params) if own_prompts is not None else None
        first = own.prompts if isinstance(own, types.ListPromptsResult) else []
        return types.ListPromptsResult(prompts=[*first, *prompt_list()])

    async def find_prompt(ctx: Context, params: types.GetPromptRequestParams) -> Any:
        if params.name not in PROMPTS and own_prompt is not None:
            return await own_prompt.handler(ctx, params)
        return await get_prompt(ctx, params)

    server.add_request_handler("tools/list", types.PaginatedRequestParams, list_tools)
    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
    server.add_request_handler("prompts/list", types.PaginatedRequestParams, list_prompts)
    server.add_request_handler("prompts/get", types.GetPromptRequestParams, find_prompt)
    server.add_request_handler("resources/list", types.PaginatedRequestParams, list_resources)
    server.add_request_handler("resources/templates/list", types.PaginatedRequestParams, list_templates)
    server.add_request_handler("resources/read", types.ReadResourceRequestParams, read_resource)
    server.add_request_handler("resources/subscribe", types.SubscribeRequestParams, nothing)
    server.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, nothing)
    server.add_request_handler("completion/complete", types.CompleteRequestParams, complete)
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, nothing)


# ── the server ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def main(*, plain: bool) -> None:
    settings = ServerSettings(port=0, log_level="WARNING")
    app = build([Fixture], settings, {})
    if not plain:
        transport = McpTransport(app.context, extend=add_fixture, back_channel=True)
        app.api.router.routes[:0] = transport.routes()
    server = LudusServer(app, settings)
    task = asyncio.create_task(server.serve())
    await server.running.wait()
    params = StartParams(environment="fixture", split="train", key="conformance")
    (episode,) = (await app.context.host.start(params, Principal.open())).episodes
    assert episode.play is not None
    print(json.dumps({"control": server.url + "/mcp", "play": server.url + episode.play.path}), flush=True)  # noqa: T201
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.stop()
    await task


if __name__ == "__main__":
    asyncio.run(main(plain="--plain" in sys.argv))
