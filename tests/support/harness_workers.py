"""Harness programs: the functions that they share, and one that plays one episode after the other."""

import textwrap

COMMON = """
import json, os, sys, urllib.request
task = json.loads(sys.stdin.readline())
def post(url, body, headers={}):
    data = json.dumps(body).encode()
    kind = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    request = urllib.request.Request(url, data, {**kind, **headers})
    text = urllib.request.urlopen(request).read().decode()
    return json.loads(text[text.index("{"):text.rindex("}") + 1])
def model(messages, tools=()):
    body = {"model": task["model"], "messages": messages}
    if tools:
        body["tools"] = tools
    return post(task["openai_base_url"] + "/chat/completions", body)["choices"][0]["message"]
def tool(name, arguments):
    params = {"name": name, "arguments": arguments}
    headers = {"MCP-Protocol-Version": "2025-06-18"}
    reply = post(task["play_url"], {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, headers)
    return reply["result"]["content"][0]["text"]
SAY = {"type": "function", "function": {"name": "say", "description": "", "parameters": {
    "type": "object", "properties": {"number": {"type": "integer"}}}}}
"""
"""A client of the model and of the tools, with the standard library."""


AGENT = (
    COMMON
    + """
messages = [{"role": "user", "content": task["prompt"]}]
while True:
    message = model(messages, [SAY])
    messages.append(message)
    if not message.get("tool_calls"):
        break
    for made in message["tool_calls"]:
        text = tool(made["function"]["name"], json.loads(made["function"]["arguments"]))
        messages.append({"role": "tool", "tool_call_id": made["id"], "content": text})
"""
)
"""An agent that calls the tools of its model until the model makes no call."""


def worker(agent: str) -> str:
    """A worker that plays one episode after the other with the agent's code, and prints things of its own."""
    body = textwrap.indent(agent.replace("task = json.loads(sys.stdin.readline())", ""), "    ")
    return f"""import json, sys
def play(task):
{body}
for line in sys.stdin:
    task = json.loads(line)
    if "cancel" in task:
        continue
    print("a line that is no answer", flush=True)
    try:
        play(task)
        error = None
    except Exception as failure:
        error = repr(failure)
    print(json.dumps({{"id": task["id"], "error": error}}), flush=True)
"""
