"""Boxes with an allowlist: what its hosts see of them, and that there is no other way out."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_address

import pytest
from engine import BARE
from origins import echo, endless, origin, silent
from sandboxing import TIGHT, leftovers, opened, settings_of

from ludus.sandbox import Limits, RunResult, Sandbox, Sandboxes, SandboxFailed, SandboxProvider, SandboxUnsupported
from ludus.sandbox.network import proxy as egress
from ludus.sandbox.network.netns_listener import PORT

Backend = tuple[str, SandboxProvider]

HELP = """
import os, socket, sys, time, urllib.request
def get(url): return urllib.request.urlopen(url, timeout=25).read()
def attempt(function, *values):
    try: print("BREACH", values, repr(function(*values))[:200])
    except OSError as error: print("refused", error)
def proxied(request, host="127.0.0.1", port=3128):
    s = socket.create_connection((host, port), 25)
    s.sendall(request.encode("latin-1"))
    said = b""
    while part := s.recv(65536):
        said += part
    if said.startswith(b"HTTP/1.1 2"): print("BREACH", request, said[:200])
    return said
"""


async def box_of(backend: Backend, *network: str, limits: Limits = TIGHT) -> Sandbox:
    kind, provider = backend
    return await provider.create(settings_of(kind, limits).model_copy(update={"network": network}))


async def python(box: Sandbox, program: str, **values: int) -> RunResult:
    return await box.run(["python3", "-c", HELP + program, *map(str, values.values())])


@pytest.mark.suite("sandbox", first=1)
async def test_a_host_of_the_list_is_reached_and_others_are_refused_by_name(networked: Backend) -> None:
    async with origin() as allowed, origin() as other:
        box = await box_of(networked, f"127.0.0.1:{allowed.port}", "*.example.org")
        result = await python(
            box,
            "a, b = sys.argv[1:]\nprint(get(f'http://127.0.0.1:{a}/'))\n"
            "attempt(get, f'http://127.0.0.1:{b}/')\nattempt(get, 'https://pypi.org/')",
            a=allowed.port, b=other.port,
        )  # fmt: skip
        assert "b'origin'" in result.text, result
        assert "BREACH" not in result.text, result
        assert list(map(str, result.refused)) == [
            f"network: refused 127.0.0.1:{other.port}: it is not on the allowlist",
            "network: refused pypi.org:443: it is not on the allowlist",
        ]
        assert str(result.network[0]) == f"network: allowed 127.0.0.1:{allowed.port}"
        assert (allowed.connections, other.connections) == (1, 0)
        assert (await box.run(["true"])).network == ()


async def test_a_name_is_looked_up_by_the_server(proxied_here: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_up(name: str) -> list[object]:
        return [ip_address({"allowed.test": "127.0.0.1", "inside.test": "127.0.0.2"}[name])]

    monkeypatch.setattr(egress, "look_up", look_up)
    async with origin() as allowed:
        names = (f"allowed.test:{allowed.port}", f"inside.test:{allowed.port}", f"127.0.0.1:{allowed.port}")
        box = await box_of(proxied_here, *names)
        program = "p = sys.argv[1]\nprint(get(f'http://allowed.test:{p}/'))\nattempt(get, f'http://inside.test:{p}/')"
        result = await python(box, program, port=allowed.port)
        assert "b'origin'" in result.text, result
        assert "BREACH" not in result.text, result
        assert [use.refused for use in result.refused] == [
            "it resolves to 127.0.0.2, which is neither a public address nor on the allowlist"
        ]


async def test_a_server_in_the_box_is_reached_without_the_proxy(networked: Backend) -> None:
    box = await box_of(networked, "pypi.org")
    program = """
import http.server, socketserver, threading
s = socketserver.TCPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=s.serve_forever, daemon=True).start()
print(get(f'http://{sys.argv[1]}:{s.server_address[1]}/') is not None)
"""
    # The test image has nothing that looks names up, not even this one.
    for host in ("127.0.0.1", *(() if networked[0].startswith("docker") else ("localhost",))):
        result = await box.run(["python3", "-c", HELP + program, host])
        assert result.text == "True\n", result
        assert result.network == ()


ATTACKS = {
    "connects without the proxy": "attempt(socket.create_connection, ('127.0.0.1', ORIGIN), 2)",
    "connects elsewhere": "for a in ('10.0.0.1', '1.1.1.1', '169.254.169.254', '172.17.0.1', '192.168.0.1'):\n"
    "  attempt(socket.create_connection, (a, 80), 2)",
    "sends datagrams": "attempt(lambda: socket.socket(2, 2).sendto(b'x', ('8.8.8.8', 53)))",
    "resolves names": "attempt(socket.getaddrinfo, 'example.org', 80)",
    "reaches another port": "proxied(f'CONNECT 127.0.0.1:{OTHER} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')",
    "reaches another host": "proxied('CONNECT pypi.org:443 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')",
    "reaches the proxy of another box": "proxied(f'CONNECT 127.0.0.1:3128 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')",
    "names one host and means another": "proxied(f'GET http://127.0.0.1:{OTHER}/ HTTP/1.1\\r\\n"
    "Host: 127.0.0.1:{ORIGIN}\\r\\n\\r\\n')",
    "hides the port behind another": "proxied(f'CONNECT 127.0.0.1:{ORIGIN}:{OTHER} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')",
    "writes addresses in other ways": "for a in ('2130706433', '0x7f.1', '0177.1', '127.1', '[::1]', "
    "'[::ffff:127.0.0.1]', 'localhost', '127.0.0.2', '0'):\n"
    "  proxied(f'CONNECT {a}:{OTHER} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')",
    "asks for the cloud's secrets": "for a in ('169.254.169.254', '[fd00:ec2::254]', 'metadata.google.internal'):\n"
    "  proxied(f'GET http://{a}/latest/meta-data/ HTTP/1.1\\r\\nHost: x\\r\\nMetadata-Flavor: Google\\r\\n\\r\\n')",
    "smuggles a second request": "proxied(f'POST http://127.0.0.1:{OTHER}/ HTTP/1.1\\r\\nHost: x\\r\\n"
    "Content-Length: 0\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\nGET / HTTP/1.1\\r\\n\\r\\n')",
    "sends a head without end": "proxied('GET http://127.0.0.1/ HTTP/1.1\\r\\nX: ' + 'a' * 100_000)",
    "takes the proxy's place": "attempt(socket.create_server, ('127.0.0.1', 3128))",
    "finds a socket in the file system": "import stat\nfor folder, _, names in os.walk('/'):\n"
    "  if folder[:5] in ('/proc', '/sys'): continue\n  for name in names:\n"
    "    try: mode = os.lstat(os.path.join(folder, name)).st_mode\n"
    "    except OSError: continue\n    if stat.S_ISSOCK(mode) and not name.startswith('.ludus-handoff'): "
    "print('BREACH', folder, name)",
    "knocks where the door was": "s = socket.socket(socket.AF_UNIX)\nattempt(s.connect, '/.ludus-handoff')",
    "finds the proxy's socket among its own": "for n in range(3, 64):\n  attempt(os.fstat, n)",
    "connects and connects": "held = []\ntry:\n  for n in range(300):\n    s = socket.socket(); s.setblocking(False)\n"
    "    s.connect_ex(('127.0.0.1', 3128)); held.append(s)\nexcept OSError: pass",
}  # fmt: skip


@pytest.mark.suite("sandbox", first=1)
@pytest.mark.parametrize("attack", ATTACKS)
async def test_there_is_no_other_way_out(networked: Backend, attack: str) -> None:
    async with origin() as allowed, origin() as other:
        box = await box_of(networked, f"127.0.0.1:{allowed.port}")
        neighbor = await box_of(networked, f"127.0.0.1:{other.port}")
        program = f"ORIGIN, OTHER = map(int, sys.argv[1:])\n{ATTACKS[attack]}"
        result = await python(box, program, a=allowed.port, b=other.port)
        assert "BREACH" not in result.text, result
        assert b"Traceback" not in result.stderr, result
        assert (allowed.connections, other.connections) == (0, 0)
        seen = await python(box, "print(get(f'http://127.0.0.1:{sys.argv[1]}/'))", a=allowed.port)
        assert seen.text == "b'origin'\n", "the box and its way out still work"
        await neighbor.aclose()


async def test_a_box_without_a_list_has_no_proxy_and_no_trace_of_one(networked: Backend) -> None:
    async with origin() as allowed:
        beside = await box_of(networked, f"127.0.0.1:{allowed.port}")
        box = await box_of(networked)
        result = await python(box, f"attempt(socket.create_connection, ('127.0.0.1', {PORT}), 2)\nprint(os.environ)")
        assert "BREACH" not in result.text, result
        assert "proxy" not in result.text.lower()
        await beside.aclose()


async def test_warm_boxes_are_those_of_their_own_list(networked: Backend) -> None:
    kind, provider = networked
    async with origin() as one, origin() as two:
        for target in (one, two):
            settings = settings_of(kind, warm=1).model_copy(update={"network": (f"127.0.0.1:{target.port}",)})
            await provider.prepare(settings)
        for target, other in ((one, two), (two, one)):
            settings = settings_of(kind, warm=1).model_copy(update={"network": (f"127.0.0.1:{target.port}",)})
            box = await provider.create(settings)
            program = "print(get(f'http://127.0.0.1:{sys.argv[1]}/'))\nattempt(get, f'http://127.0.0.1:{sys.argv[2]}/')"
            result = await python(box, program, a=target.port, b=other.port)
            assert "b'origin'" in result.text, result
            assert "BREACH" not in result.text, result
            fork = await box.fork()
            assert (await python(fork, program, a=target.port, b=other.port)).text == result.text


async def test_traffic_without_end_is_stopped_by_its_limit(networked: Backend) -> None:
    async with origin(endless) as target:
        box = await box_of(networked, f"127.0.0.1:{target.port}", limits=TIGHT.but(traffic=1 << 20))
        result = await python(box, "r = urllib.request.urlopen(f'http://127.0.0.1:{sys.argv[1]}/')\n"
                              "while r.read(65536): pass\nsys.exit('it ended')", a=target.port)  # fmt: skip
        assert result.limit == "traffic", result
        assert "the traffic limit was reached" in {use.refused for use in result.network}
        assert (await box.run(["true"])).ok
        assert (await box.run(["false"])).limit is None


@pytest.mark.suite("sandbox", first=2)
@pytest.mark.parametrize("ending", ["the command ends", "the command is canceled", "the box is closed"])
async def test_connections_end_with_what_made_them(networked: Backend, ending: str) -> None:
    connected = asyncio.Event()

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await silent(reader, writer)

    async with origin(greet) as target:
        box = await box_of(networked, f"127.0.0.1:{target.port}")
        program = "import subprocess\ns = socket.create_connection(('127.0.0.1', 3128))\n" \
            "s.sendall(f'CONNECT 127.0.0.1:{sys.argv[1]} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n'.encode())\n" \
            "s.recv(9)\ns.set_inheritable(True)\nsubprocess.Popen(['sleep', '60'], close_fds=False)\n"  # fmt: skip
        waits = "" if ending == "the command ends" else "time.sleep(60)"
        running = asyncio.create_task(python(box, program + waits, a=target.port))
        async with asyncio.timeout(50):
            await connected.wait()
            if ending == "the command is canceled":
                running.cancel()
            elif ending == "the box is closed":
                await box.aclose()
            await target.ended.wait()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.suite("sandbox")
async def test_a_flood_of_requests_leaves_the_server_answering(networked: Backend) -> None:
    async with origin(echo) as target:
        box = await box_of(networked, f"127.0.0.1:{target.port}", limits=TIGHT.but(cpu_seconds=2, seconds=5))
        other = await box_of(networked, f"127.0.0.1:{target.port}")
        program = (
            "while True:\n  try: proxied('CONNECT no.test:1 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n  except OSError: pass"
        )
        running = asyncio.create_task(python(box, program))
        for _ in range(5):
            assert (await other.run(["true"])).ok
        result = await running
        assert result.limit in ("seconds", "cpu_seconds")
        assert sum(use.connections for use in result.refused) > 50


CONNECTIONS = """
held, total = [], 0
l = socket.create_server(("127.0.0.1", 0))
for n in range(100):
    c = socket.create_connection(l.getsockname()); s, _ = l.accept(); held += [c, s]
    for end in (c, s):
        end.setblocking(False)
        try:
            while total < 1 << 30: total += end.send(b"x" * 65536)
        except BlockingIOError: pass
print(total)
"""


@pytest.mark.parametrize("kind", ["bubblewrap", "docker"])
async def test_connections_within_a_box_hold_no_more_than_its_memory(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "docker":
        monkeypatch.setenv("DOCKER_HOST", request.getfixturevalue("engine_address"))
    provider = await opened(kind)
    box = await box_of((kind, provider), "pypi.org")
    result = await python(box, CONNECTIONS)
    assert result.limit == "memory" or int(result.stdout) < TIGHT.memory, result
    await provider.aclose()


EVERY_KIND = """
for family in range(46):
    for kind in range(16):
        try: socket.socket(family, kind)
        except OSError: continue
        print(family, kind)
"""


async def test_a_box_with_an_allowlist_makes_no_sockets_but_those_it_needs(networked: Backend) -> None:
    box = await box_of(networked, "pypi.org")
    result = await python(box, EVERY_KIND)
    made = {tuple(map(int, line.split())) for line in result.text.splitlines()}
    assert {(socket.AF_INET, socket.SOCK_STREAM), (socket.AF_UNIX, socket.SOCK_STREAM)} <= made
    assert {kind for family, kind in made if family in (socket.AF_INET, socket.AF_INET6)} == {socket.SOCK_STREAM}
    assert {family for family, _ in made} <= {socket.AF_UNIX, socket.AF_INET, socket.AF_INET6}


async def test_a_closed_box_has_let_go_of_its_socket(proxied_here: Backend) -> None:
    box = await box_of(proxied_here, "pypi.org")
    egress = box._egress  # type: ignore[attr-defined]
    assert egress._listener.getsockname() == ("127.0.0.1", PORT)
    await box.aclose()
    assert egress._listener.fileno() == -1
    with pytest.raises(SandboxFailed):
        await box.run(["true"])
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", PORT), 1)


async def test_an_image_without_what_it_takes_is_reported_at_startup(
    engine_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ordinary user's server may not enter the network of a container; this one is root."""

    def refuse(process: int) -> socket.socket:
        raise PermissionError(f"/proc/{process}/ns/net")

    monkeypatch.setenv("DOCKER_HOST", engine_address)
    monkeypatch.setattr("ludus.sandbox.container.listen_in_netns", refuse)
    provider = await opened("docker")
    try:
        for warm in (0, 1):
            settings = settings_of("docker").model_copy(update={"network": ("pypi.org",), "image": BARE, "warm": warm})
            with pytest.raises(SandboxUnsupported, match="as `python3` in the image, run the server as root"):
                await provider.prepare(settings)
    finally:
        await provider.aclose()
    assert leftovers() == []


async def test_a_server_that_is_root_needs_nothing_in_the_image(
    engine_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", engine_address)
    provider = await opened("docker")
    async with origin() as allowed:
        settings = settings_of("docker").model_copy(update={"network": (f"127.0.0.1:{allowed.port}",), "image": BARE})
        async with await provider.create(settings) as box:
            result = await box.run(["sh", "-c", f"no_proxy= wget -q -O - http://127.0.0.1:{allowed.port}/"])
            assert result.text == "origin", result
    await provider.aclose()
    assert leftovers() == []


async def test_what_isolates_nothing_keeps_to_no_list() -> None:
    settings = settings_of("unsafe-local").model_copy(update={"network": ("pypi.org",)})
    with pytest.raises(SandboxUnsupported, match="network"):
        await Sandboxes().open([settings])
