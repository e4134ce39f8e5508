"""Names of servers from the address of a hub, and back."""

from __future__ import annotations

import pytest

from ludus.hub.discovery.names import names_of
from ludus.protocol.errors import InvalidRequest


@pytest.mark.parametrize(
    ("address", "name", "urn"),
    [
        ("https://hub.example.org", "org.example.hub/alice.my-env", "urn:air:hub.example.org:mcp:alice.my-env"),
        (
            "https://Hub.Example.org.:8443/rl",
            "org.example.hub/alice.my-env",
            "urn:air:hub.example.org:mcp:alice.my-env",
        ),
        ("http://127.0.0.1:8400", "localhost/alice.my-env", "urn:air:localhost:mcp:alice.my-env"),
        ("http://[::1]:8400", "localhost/alice.my-env", "urn:air:localhost:mcp:alice.my-env"),
        ("http://10.1.2.3", "arpa.in-addr.10.1.2.3/alice.my-env", "urn:air:3.2.1.10.in-addr.arpa:mcp:alice.my-env"),
    ],
)
def test_names_come_from_the_domain_of_the_hub(address: str, name: str, urn: str) -> None:
    names = names_of(address)
    assert (names.server("alice/my-env"), names.urn("alice/my-env")) == (name, urn)


@pytest.mark.parametrize("package", ["alice/my-env", "alice/my.env", "al/a_b.c-d"])
def test_a_server_leads_back_to_its_package(package: str) -> None:
    names = names_of("https://hub.example.org")
    namespace, _, name = names.server(package).partition("/")
    assert names.package(namespace, name) == tuple(package.split("/"))


@pytest.mark.parametrize(("namespace", "name"), [("org.other.hub", "a.b"), ("org.example.hub", "ab"), ("", "a.b")])
def test_another_server_leads_nowhere(namespace: str, name: str) -> None:
    assert names_of("https://hub.example.org").package(namespace, name) is None


@pytest.mark.parametrize("host", ["a_b", "x" * 100, "<script>", "-a", "a..b", ""])
def test_a_host_that_is_no_domain_gives_no_names(host: str) -> None:
    with pytest.raises(InvalidRequest, match="--public-url"):
        names_of(f"http://{host}")
