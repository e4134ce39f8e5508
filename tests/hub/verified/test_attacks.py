"""What a harness, a model endpoint and an account try in vain in a verified run. The sandboxes are real."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web
from verified_hub import LOCKS, PUPPET, ROOT, SECRET, VerifiedHub

pytestmark = [pytest.mark.timeout(180), pytest.mark.suite("hub")]

LOWEST = (0.0, 0.0, "closed")


def end(receipt: dict[str, Any]) -> tuple[float | None, float, str]:
    (row,) = receipt["episodes"]
    return row["reward"], row["value"], row["end"]


# ── the harness ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_harness_reaches_no_network_no_file_of_the_hub_and_no_credential(hub: VerifiedHub) -> None:
    code = f"""
import socket, pathlib
for address in (("127.0.0.1", {hub.process.port}), ("127.0.0.1", {hub.model.port}), ("1.1.1.1", 443)):
    try:
        socket.create_connection(address, timeout=3)
        print("LEAK connected to", address)
    except OSError:
        pass
try:
    print("LEAK", socket.getaddrinfo("pypi.org", 443))
except OSError:
    pass
for place in ({str(hub.process.data)!r}, {str(ROOT)!r}, "/var"):
    if pathlib.Path(place).exists() and any(pathlib.Path(place).iterdir()):
        print("LEAK", place)
for one in pathlib.Path("/proc").glob("[0-9]*/environ"):
    try:
        text = one.read_bytes()
    except OSError:
        continue
    if {SECRET[:5].encode()!r} + {SECRET[5:].encode()!r} in text or b"LUDUS_HUB" in text or b"TOKEN" in text:
        print("LEAK", text)
for one in pathlib.Path("/").rglob("*.sqlite"):
    print("LEAK", one)
print("door", sorted(one.name for one in pathlib.Path("/door").iterdir()))
try:
    pathlib.Path("/door/socket").unlink()
    print("LEAK the door was removed")
except OSError:
    pass
print("reward", (await episode.call("look")).reward)
"""
    receipt, output = hub.play(code)
    assert "LEAK" not in output
    assert "door ['socket']" in output
    assert "reward None" in output
    assert end(receipt) == LOWEST, "an episode that the harness leaves counts with the lowest reward"


def test_the_door_leads_to_one_episode_and_one_model_only(hub: VerifiedHub) -> None:
    code = """
base = play_url.removesuffix("/play")
tried = ["/api/v1/runs", "/e/root/locks/mcp", "/play/play_AAAA/mcp", "/play/../mcp", "/play/", "/mcp", "/metrics",
         "/v1/embeddings", "/v1/files", "/v1/../admin", "//play", "/v1/chat/completions/x", "/channel"]
for path in tried:
    status, said = post(base + path, {})
    print("LEAK" if status != 404 else "refused", path)
status, said = post(play_url, {"jsonrpc": "2.0", "id": 1, "method": "dev.ludus/episodes/rewards", "params": {}},
                    accept="application/json, text/event-stream")
print("LEAK" if "reward" in said and "result" in said else "refused", "rewards")
await turn(0)
"""
    receipt, output = hub.play(code)
    assert "LEAK" not in output
    assert output.count("refused /") >= 13
    assert "[the hub refused: POST /api/v1/runs]" in output, "the account can see it"
    assert receipt["episodes"][0]["end"] == "completed"


def test_another_model_and_fields_that_could_reach_further_are_refused(hub: VerifiedHub) -> None:
    code = """
image = lambda url: [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
for name, fields in {
    "model": {"model": "m-2"}, "models": {"models": ["m-2"]}, "plugins": {"plugins": [{"id": "web"}]},
    "tools": {"tools": [{"type": "web_search"}]}, "image": {"messages": image("https://example.org/answer.png")},
}.items():
    asked = {"model": model, "messages": [{"role": "user", "content": "x"}], **fields}
    status, said = post(base_url + "/chat/completions", asked)
    print("refused" if status in (400, 403) else "LEAK", name, status)
"""
    _, output = hub.play(code)
    assert "LEAK" not in output
    assert output.count("refused") == 5
    assert len(hub.model.asked) == 2, "the endpoint got the first call of the hub and that of the harness"


def test_calls_are_bounded_and_a_repeated_call_counts_again(hub: VerifiedHub) -> None:
    code = """
for number in range(6):
    print("status", ask(base_url, model, "again")[0])
await turn(0)
"""
    receipt, output = hub.play(code)
    assert output.count("status 200") == 3, "the first one was the harness's own"
    assert output.count("status 403") == 3
    assert receipt["statement"]["calls"] == 4
    assert receipt["episodes"][0]["inputTokens"] == 4 * 11


def test_the_tokens_of_a_run_are_bounded(hub: VerifiedHub) -> None:
    receipt, output = hub.play("print('status', ask(base_url, model, 'again')[0])", mostTokens=10)
    assert "status 403" in output
    assert receipt["statement"]["calls"] == 1


def test_a_harness_that_leaves_or_crashes_has_dropped_no_episode(hub: VerifiedHub) -> None:
    hub.model.answer = lambda asked: {"content": "raise SystemExit(3)"}
    receipt = hub.run(harness="root/puppet@1.0.0", tasks=3)
    assert [(row["value"], row["end"], row["attempts"]) for row in receipt["episodes"]] == [(0.0, "closed", 1)] * 3
    assert "exit code 3" in hub.output(receipt)


@pytest.mark.parametrize(
    "code",
    [
        "import os\nwhile True:\n    os.fork()",
        "open('/tmp/full', 'wb').write(b'x' * 2**26)",
        "x = []\nwhile True:\n    x.append(bytearray(2**24))",
        "import sys\nfor _ in range(2**10):\n    sys.stdout.write('x' * 2**16)",
    ],
    ids=["forks", "disk", "memory", "output"],
)
def test_a_harness_that_takes_all_it_can_ends_its_own_episode_only(hub: VerifiedHub, code: str) -> None:
    receipt, _ = hub.play(code)
    assert end(receipt) == LOWEST
    assert receipt["episodes"][0]["attempts"] == 1, "it does not get another try"
    assert hub.get("/health") == {"status": "ok"}


def test_a_harness_that_never_ends_is_ended(start_hub: Any) -> None:
    hub = start_hub(episode_seconds=5.0)
    asleep = asyncio.Event()

    def answer(asked: dict[str, Any]) -> Any:
        return {"content": "Hi."} if asked["messages"][0]["content"] == "Hi" else asleep.wait()

    hub.model.answer = answer
    receipt = hub.run(tasks=1)
    assert "limit on seconds" in hub.output(receipt)
    assert receipt["episodes"][0]["value"] == 0.0


def test_connections_and_paths_that_a_hub_could_choke_on_are_bounded(hub: VerifiedHub) -> None:
    code = """
import socket
base = play_url.removesuffix("/play")
print("path", post(base + "/%00%ff", {})[0])
opened = []
for number in range(200):
    one = socket.socket(socket.AF_UNIX)
    one.connect("/door/socket")
    one.settimeout(0.2)
    opened.append(one)
closed = 0
for one in opened:
    try:
        closed += one.recv(1) == b""
    except OSError:
        pass
print("closed", closed >= 200 - 64)
for one in opened:
    one.close()
"""
    receipt, output = hub.play(code)
    assert "path 404" in output
    assert "closed True" in output
    assert receipt["episodes"][0]["attempts"] == 1


def test_a_request_that_is_too_large_is_refused(hub: VerifiedHub) -> None:
    code = """
print("model", ask(base_url, model, "x" * 2**17)[0])
print("play", post(play_url, {"x": "x" * 2**17})[0])
"""
    _, output = hub.play(code)
    assert "model 400" in output
    assert "play 413" in output


# ── the model endpoint ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_redirect_of_the_endpoint_is_not_followed(hub: VerifiedHub) -> None:
    target = f"{hub.process.url}/health"

    def away() -> web.Response:
        return web.Response(status=307, headers={"location": target})

    _, output = hub.play("print(ask(base_url, model))", away)
    assert "307" in output
    assert "ok" not in output.replace("token", "")
    assert hub.register().status_code == 400, "nor at the registration"


@pytest.mark.parametrize("status", [200, 400, 401])
def test_an_endpoint_that_sends_the_key_back_does_not_bring_it_into_the_sandbox(hub: VerifiedHub, status: int) -> None:
    text = json.dumps({"choices": [], "error": f"your key is {SECRET}"})
    _, output = hub.play("print('answer', ask(base_url, model))", lambda: web.Response(status=status, text=text))
    assert "answer (" in output
    assert SECRET not in output


def test_an_outage_before_the_first_answer_starts_the_episode_again_a_bounded_number_of_times(hub: VerifiedHub) -> None:
    hub.model.answer = lambda asked: {"content": "Hi."} if asked["messages"][0]["content"] == "Hi" else down
    receipt = hub.run(harness="root/looper@1.0.0", tasks=1)
    (row,) = receipt["episodes"]
    assert (row["attempts"], row["value"], row["end"]) == (3, 0.0, "infrastructure_error")
    assert {(call["attempt"], call["status"]) for call in receipt["calls"]} == {(1, 500), (2, 500), (3, 500)}


def test_an_outage_after_an_answer_does_not_start_the_episode_again(hub: VerifiedHub) -> None:
    receipt, output = hub.play("print('status', ask(base_url, model)[0])", down)
    assert "status 503" in output
    assert end(receipt) == LOWEST
    assert receipt["episodes"][0]["attempts"] == 1


def down() -> web.Response:
    """The answer of an endpoint that is down."""
    return web.Response(status=500)


# ── the account ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_addresses_that_only_the_hub_reaches_are_refused(hub: VerifiedHub) -> None:
    for url in (
        hub.process.url, f"http://localhost:{hub.model.port}/v1", "https://127.0.0.1/v1", "https://[::1]/v1",
        "https://[::ffff:127.0.0.1]/v1", "https://169.254.169.254/latest", "https://10.0.0.1/v1", "https://2130706433/",
        "https://localhost/v1", "http://example.org/v1", "https://example.org:8443/v1", "https://a:b@example.org/v1",
        "file:///etc/passwd", "https://example.org/v1?x=1", "https://exa mple.org", "https:///v1",
    ):  # fmt: skip
        answer = hub.register(baseUrl=url)
        assert answer.status_code == 400, url
        assert "a:b" not in answer.text
    assert hub.model.asked == []


def test_a_run_is_not_registered_with_a_key_or_a_harness_that_cannot_work(hub: VerifiedHub) -> None:
    hub.publish("root/unsigned", signed=False, source=PUPPET, play="play")
    for harness, status in (
        ("root/unsigned@1.0.0", 409), ("root/locks@1.0.0", 400), ("root/puppet@1.0.0#other", 400), ("nonsense", 400),
        ("root/absent@1.0.0", 404), ("root/puppet@9.9.9", 404),
        ("docker.io/root/puppet:1.0.0", 400), (f"root/puppet@sha256:{'0' * 64}", 404),
    ):  # fmt: skip
        assert hub.register(harness=harness).status_code == status, harness
    with hub.client("root") as client:
        for name, method, path, body in (
            ("yanked", "POST", "/versions/1.0.0/yank", {"reason": "no"}),
            ("hidden", "PUT", "/access", {"private": True}),
        ):
            hub.publish(f"root/{name}", source=PUPPET, play="play")
            done = client.request(method, f"/api/v1/environments/root/{name}{path}", json=body)
            assert done.status_code == 200, done.text
            assert hub.register(who="root", harness=f"root/{name}@1.0.0").status_code == 409, name
    assert hub.register(harness="root/hidden@1.0.0").status_code == 404, "others do not learn that it exists"
    assert hub.register(options={"models": ["m-2"]}).status_code == 400
    hub.model.answer = lambda asked: lambda: web.Response(status=401, text=f"wrong key {SECRET}")
    refused = hub.register()
    assert refused.status_code == 400
    assert "401" in refused.text
    assert SECRET not in refused.text
    assert hub.register(tasks=1000, samples=64).status_code == 400


def test_the_answers_of_an_environment_are_not_in_the_sandbox_of_a_harness(hub: VerifiedHub) -> None:
    code = """
import importlib.util, pathlib
print("LEAK" if importlib.util.find_spec("root_locks") else "absent")
print([str(one) for one in pathlib.Path("/").rglob("root_locks*")])
"""
    assert "class Locks" in LOCKS
    _, output = hub.play(code)
    assert "absent" in output
    assert "[]" in output


def test_a_hub_that_has_not_turned_them_on_has_no_verified_runs(start_hub: Any) -> None:
    hub = start_hub(enabled=False)
    answer = hub.register()
    assert answer.status_code == 422, answer.text
    assert "--verified" in answer.text
