"""Harnesses as programs: what they get, and how each way of ending is recorded."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from gateway_play import RecordingEngine, check_exact
from saying import Saying
from scripted import call

from ludus.client import connect
from ludus.gateway import Gateway, GatewayLimits, HarnessEpisode, HarnessFailed, make_harness
from ludus.rendering import Renderer

PYTHON = shlex.quote(sys.executable)
COMMON = '''
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
'''
AGENT = COMMON + '''
messages = [{"role": "user", "content": task["prompt"]}]
while True:
    message = model(messages, [SAY])
    messages.append(message)
    if not message.get("tool_calls"):
        break
    for made in message["tool_calls"]:
        text = tool(made["function"]["name"], json.loads(made["function"]["arguments"]))
        messages.append({"role": "tool", "tool_call_id": made["id"], "content": text})
'''

Play = Callable[..., Awaitable[HarnessEpisode]]
'''a placeholder'''
