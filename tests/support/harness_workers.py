"""Harness programs that play one episode after the other."""

import textwrap


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
