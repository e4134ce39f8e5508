"""What an allowlist has, how destinations are read, and which addresses are the world outside."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ludus.sandbox import SandboxSettings
from ludus.sandbox.core.allowlist import Allowlist, is_public, parse_destination, proxy_variables

LIST = Allowlist((
    "pypi.org", "*.Example.org", "plain.test:8080", "192.0.2.7", "10.1.0.0/16:9000", "[2001:db8::7]:443",
    "[2001:db8:1::/48]:444", "2001:db8:2::/48", "xn--bcher-kva.example.",
))  # fmt: skip


@pytest.mark.parametrize(
    "destination",
    [
        "pypi.org:443", "pypi.org:80", "PyPI.org:443", "pypi.org.:443", "a.example.org:443", "a.b.example.org:80",
        "plain.test:8080", "192.0.2.7:80", "10.1.255.3:9000", "[2001:db8::7]:443", "[2001:DB8:0::7]:443",
        "[2001:db8:1::1]:444", "[2001:db8:2::1]:443", "[::ffff:192.0.2.7]:443", "xn--bcher-kva.example:443",
    ],
)  # fmt: skip
def test_what_is_on_the_list_is_found(destination: str) -> None:
    assert LIST.names(parse_destination(destination))


@pytest.mark.parametrize(
    "destination",
    [
        "pypi.org:8443", "example.org:443", "evilexample.org:443", "a.example.org.evil.test:443", "ypi.org:443",
        "www.pypi.org:443", "plain.test:443", "192.0.2.8:80", "192.0.2.7:22", "10.2.0.1:9000", "10.1.0.1:80",
        "[2001:db8::8]:443", "[::ffff:192.0.2.8]:443", "localhost:443", "127.0.0.1:443", "[::1]:443",
    ],
)  # fmt: skip
def test_what_is_not_on_the_list_is_not(destination: str) -> None:
    assert not LIST.names(parse_destination(destination))


@pytest.mark.parametrize(
    "text",
    [
        "2130706433:80", "0x7f000001:80", "0177.0.0.1:80", "127.1:80", "127.0.0.0x1:80", "0x7f.1:80", "1.2.3.4.5:80",
        "[fe80::1%eth0]:80", "[::1:80", "[pypi.org]:80", "a..b:80", "-a.test:80", "a b:80", "user@pypi.org:80",
        "pypi.org\\@evil.test:80", "pypi.org:80:80", "pypi.org:0", "pypi.org:65536", "pypi.org:+80", "pypi.org:８０",
        "pypi.org:", "pypi.org", ":80", "", "bücher.example:80", "pypi.org/:80", "pypi.org%2eevil:80",
        f"{'a' * 254}:80",
        "pypi.org\0:80", "pypi.org\r\nX:80", "*.example.org:80",
    ],
)  # fmt: skip
def test_what_is_no_destination_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_destination(text)


@given(st.text(max_size=40))
def test_whatever_is_asked_for_is_a_destination_or_a_value_error(text: str) -> None:
    try:
        found = parse_destination(text, 443)
    except ValueError:
        return
    assert parse_destination(str(found)) == found
    assert 0 < found.port < 65536


@pytest.mark.parametrize(
    "entry",
    ["*", "*.", "**.test", "a.*.test", "https://pypi.org", "pypi.org/simple", "10.1.0.1/16", "pypi.org:https", "", " "],
)
def test_an_entry_that_is_none_is_refused_where_the_settings_are_made(entry: str) -> None:
    with pytest.raises(ValidationError, match="not an entry of an allowlist.*entries are like"):
        SandboxSettings(network=("pypi.org", entry))


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "151.101.0.223", "2a04:4e42::223", "::ffff:1.1.1.1", "64:ff9b::101:101", "3ffe::1", "192.88.98.1"],
)
def test_the_internet_is_public(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "100.100.100.200", "192.0.0.192", "224.0.0.1", "255.255.255.255", "240.0.0.1", "198.18.0.1", "::", "::1",
        "fe80::1", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254",
        "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2002:a9fe:a9fe::1",
        "2001:0:7f00:1::", "100::1", "192.0.2.1", "198.51.100.1", "203.0.113.1", "192.88.99.1", "192.31.196.1",
        "192.52.193.1", "192.175.48.1", "3fff::1", "3fff:fff:ffff::1", "2001:db8::1", "2001:2::1", "2001:20::1",
        "2001:30::1", "2620:4f:8000::1", "5f00::1", "::ffff:192.88.99.1", "64:ff9b::c058:6301", "2002:c058:6301::",
    ],
)  # fmt: skip
def test_what_is_not_the_internet_is_not_public_however_it_is_dressed(address: str) -> None:
    assert not is_public(ip_address(address))


def test_programs_know_the_proxy_except_for_the_boxs_own_loopback() -> None:
    plain = proxy_variables("127.0.0.1:3128", Allowlist(("pypi.org",)))
    assert plain["https_proxy"] == plain["HTTP_PROXY"] == plain["all_proxy"] == "http://127.0.0.1:3128"
    assert plain["NO_PROXY"] == plain["no_proxy"] == "localhost,127.0.0.1,::1"
    outside = proxy_variables("127.0.0.1:3128", Allowlist(("127.0.0.0/8:8080",)))
    assert outside["no_proxy"] == "localhost,::1"
