"""What a hub refuses: each with a typed error that says why, and nothing is left of it."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest
from hubs import (
    HubProcess,
    Release,
    WheelParts,
    kind_of,
    new_name,
    pack,
    publish,
    published,
    release,
    upload,
)

from ludus.hub.registry.wheels import read_wheel
from ludus.hub.settings.hub import HubLimits
from ludus.registry.types.errors import WheelRefused

NAME = "alice-coin"
Change = Callable[[dict[str, bytes]], None]


def replaced(old: str, new: str) -> Change:
    """Rename a file after RECORD was written."""

    def change(files: dict[str, bytes]) -> None:
        files[new] = files.pop(next(path for path in files if path.endswith(old)))

    return change


def added(path: str, data: bytes = b"x = 1\n") -> Change:
    def change(files: dict[str, bytes]) -> None:
        files[path] = data

    return change


def removed(end: str) -> Change:
    def change(files: dict[str, bytes]) -> None:
        del files[next(path for path in files if path.endswith(end))]

    return change


def with_link() -> bytes:
    buffer = io.BytesIO(WheelParts(NAME).pack())
    with zipfile.ZipFile(buffer, "a") as archive:
        link = zipfile.ZipInfo("link")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    return buffer.getvalue()


def with_repetition() -> bytes:
    buffer = io.BytesIO(WheelParts(NAME).pack())
    with zipfile.ZipFile(buffer, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("alice_coin.py", "other = 1")
    return buffer.getvalue()


def with_overlap() -> bytes:
    """An archive whose directory names the first file twice, as bombs do."""
    data = WheelParts(NAME).pack()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        start, count = archive.start_dir, len(archive.infolist())
    directory = data[start:-22]
    length = 46 + len("alice_coin.py")
    twin = directory[:length].replace(b"alice_coin.py", b"alice_twin.py")
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count + 1, count + 1, len(directory) + length, start, 0)
    return data[:start] + directory + twin + end


def with_wrong_size() -> bytes:
    """An archive whose directory declares a smaller file than there is."""
    data = bytearray(WheelParts(NAME).pack())
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        start = archive.start_dir
    struct.pack_into("<L", data, start + 24, 10)
    return bytes(data)


def encrypted() -> bytes:
    data = bytearray(WheelParts(NAME).pack())
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        start = archive.start_dir
    data[start + 8] |= 1
    return bytes(data)


METADATA = "Metadata-Version: 2.1\nName: alice-coin\nVersion: {}\n"
BROKEN: dict[str, Any] = {
    "text": b"hello",
    "empty file": b"",
    "empty archive": pack({}),
    "half an archive": WheelParts(NAME).pack()[:400],
    "data in front": b"#!/bin/sh\n" + WheelParts(NAME).pack(),
    "data behind": WheelParts(NAME).pack() + b"more",
    "a changed byte": WheelParts(NAME).pack().replace(b"alice_coin.py", b"alice_coim.py", 1),
    "a path upwards": WheelParts(NAME, change=added("../evil.py")),
    "an absolute path": WheelParts(NAME, change=added("/etc/evil.py")),
    "a backslash": WheelParts(NAME, change=added("a\\..\\evil.py")),
    "a drive": WheelParts(NAME, change=added("C:evil.py")),
    "a dot in the path": WheelParts(NAME, change=added("a/./evil.py")),
    "a line break in the path": WheelParts(NAME, change=added("a\nb.py")),
    "a long path": WheelParts(NAME, change=added("a/" * 300 + "b.py")),
    "a link": with_link(),
    "a file twice": with_repetition(),
    "a file in two cases": WheelParts(NAME, change=added("ALICE_coin.py")),
    "a file in two Unicode forms": WheelParts(NAME, more={"\u00e9.py": b"", "e\u0301.py": b""}),
    "a file as a folder": WheelParts(NAME, more={"alice_coin.py/inner.py": b""}),
    "files that overlap": with_overlap(),
    "a size that is not true": with_wrong_size(),
    "encryption": encrypted(),
    "another compression": pack(WheelParts(NAME).files(), zipfile.ZIP_LZMA),
    "a bomb": pack({**WheelParts(NAME).files(), "zeros.bin": bytes(30_000_000)}),
    "too many files": WheelParts(NAME, more={f"f{number}.py": b"" for number in range(10_001)}),
    "a file that is not in RECORD": WheelParts(NAME, change=added("extra.py")),
    "a file that only RECORD has": WheelParts(NAME, more={"gone.py": b""}, change=removed("gone.py")),
    "a file with another digest": WheelParts(NAME, change=added("alice_coin.py", b"other = 1\n")),
    "RECORD that is not CSV": WheelParts(NAME, change=added("alice_coin-1.0.0.dist-info/RECORD", b"a,b\n")),
    "RECORD that is not text": WheelParts(NAME, change=added("alice_coin-1.0.0.dist-info/RECORD", b"\xff\xfe")),
    "no RECORD": WheelParts(NAME, change=removed("RECORD")),
    "no METADATA": WheelParts(NAME, change=removed("METADATA")),
    "no WHEEL": WheelParts(NAME, change=removed("WHEEL")),
    "METADATA of another version": WheelParts(NAME, metadata=METADATA.format("2.0.0")),
    "METADATA of another name": WheelParts(NAME, metadata="Metadata-Version: 2.1\nName: bob-coin\nVersion: 1.0.0\n"),
    "METADATA without a version": WheelParts(NAME, metadata="Metadata-Version: 2.1\nName: alice-coin\n"),
    "METADATA that is not valid": WheelParts(NAME, metadata=METADATA.format("1.0.0") + "Requires-Python: nonsense!\n"),
    "METADATA that is too large": WheelParts(NAME, metadata=METADATA.format("1.0.0") + "\n" + "x" * 1_100_000),
    "two dist-info folders": WheelParts(NAME, more={"other-1.0.0.dist-info/METADATA": b"x"}),
    "no environment": WheelParts(NAME, entry_points="[console_scripts]\na = b:c\n"),
    "an environment that is not in the wheel": WheelParts(NAME, entry_points="[ludus.environments]\ntoss = os:path\n"),
    "an environment that is not a class": WheelParts(NAME, entry_points="[ludus.environments]\ntoss = alice_coin\n"),
    "entry points that cannot be read": WheelParts(NAME, entry_points="toss = 1\n[broken\n"),
    "an entry point twice": WheelParts(
        NAME, entry_points="[ludus.environments]\ntoss = alice_coin:Toss\ntoss = alice_coin:Other\n"
    ),
    "a file in Ludus": WheelParts(NAME, more={"ludus/server/evil.py": b""}),
    "a module in place of Ludus": WheelParts(NAME, more={"Ludus.py": b""}),
    "a module that Python imports at startup": WheelParts(NAME, more={"sitecustomize.py": b""}),
    "a file for another folder": WheelParts(NAME, more={"alice_coin-1.0.0.data/purelib/evil.pth": b""}),
    "a file that Python runs at startup": WheelParts(NAME, more={"evil.pth": b"import os\n"}),
}  # fmt: skip


@pytest.mark.suite("hub", first=10)
@pytest.mark.parametrize("what", BROKEN)
def test_a_wheel_is_refused_for(what: str, plain_client: httpx.Client) -> None:
    wheel = BROKEN[what]
    one = release(f"alice/{'coin'}", wheel=wheel.pack() if isinstance(wheel, WheelParts) else wheel)
    for answer in (publish(plain_client, one), upload(plain_client, one)):
        assert kind_of(answer) == "WheelRefused", answer.text
    assert plain_client.get("/api/v1/environments/alice/coin").status_code == 404


@pytest.mark.parametrize(
    "fields",
    [
        "Metadata-Version: 2.1\nLicense: MIT\nLicense-File: LICENSE\nLicense-File: ../NOTICE\nHome-page: https://x.example\n",
        "Metadata-Version: 2.2\nLicense: MIT\nLicense-File: LICENSE\nDynamic: license-file\n",
        "Metadata-Version: 2.3\nLicense-Expression: MIT\nLicense-File: LICENSE\n",
        "Metadata-Version: 2.4\nLicense-Expression: MIT\nLicense-File: LICENSE\nDynamic: license-file\n",
    ],
    ids=["setuptools 60", "setuptools 76", "hatchling 1.26", "setuptools 77"],
)
def test_a_wheel_of_an_older_build_backend_with_a_license_file_is_accepted(
    fields: str, plain_client: httpx.Client
) -> None:
    name = new_name()
    parts = WheelParts(f"alice-{name}", metadata=f"{fields}Name: alice-{name}\nVersion: 1.0.0\n")
    assert upload(plain_client, release(f"alice/{name}", parts=parts, key=None)).status_code == 200
    info = plain_client.get(f"/api/v1/environments/alice/{name}/versions/latest").json()
    assert info["manifest"]["license"] == "MIT"


@pytest.mark.parametrize(
    ("fields", "advice"),
    [
        ("Metadata-Version: 2.4\nImport-Name: coin\n", "another build backend"),
        ("Metadata-Version: 2.1\nLicense-Expression: my own\n", "correct pyproject.toml"),
        ("Metadata-Version: 2.4\nLicense-File: ../LICENSE\n", "correct pyproject.toml"),
        ("Metadata-Version: 2.1\nSummary: a\nSummary: b\n", "another build backend"),
        ("Metadata-Version: 7.0\n", "another build backend"),
    ],
    ids=["a newer field", "no license", "a license elsewhere", "a field twice", "an unknown version"],
)
def test_a_refusal_of_metadata_says_what_to_change(fields: str, advice: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(WheelParts(NAME, metadata=f"{fields}Name: alice-coin\nVersion: 1.0.0\n").pack())
    with pytest.raises(WheelRefused, match=advice):
        read_wheel(path, WheelParts(NAME).filename, HubLimits())


@pytest.mark.parametrize(
    "filename",
    [
        "coin.zip", "coin.whl", "../alice_coin-1.0.0-py3-none-any.whl", "alice_coin-1.0.0-1-py3-none-any.whl",
        "alice_coin-1.0.0+local-py3-none-any.whl",
        "alice_coin-1.0.0-py2-none-any.whl", "alice_coin-one-py3-none-any.whl",
        "a" * 300 + "-1.0.0-py3-none-any.whl", "", "alice_coin-1.0.0.tar.gz", "älice_coin-1.0.0-py3-none-any.whl",
    ],
)  # fmt: skip
def test_a_file_name_that_is_not_of_a_wheel_is_refused(filename: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(WheelParts(NAME).pack())
    with pytest.raises(WheelRefused):
        read_wheel(path, filename, HubLimits())


def test_the_limits_on_wheels_are_those_of_the_settings(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(WheelParts(NAME, more={"data.bin": bytes(range(256)) * 40}).pack())
    filename = WheelParts(NAME).filename
    assert read_wheel(path, filename, HubLimits()).files == 6
    for limits in (HubLimits(wheel_files=5), HubLimits(unpacked_bytes=8 * 1024)):
        with pytest.raises(WheelRefused, match="accepts"):
            read_wheel(path, filename, limits)


@pytest.mark.parametrize(
    ("package", "shown"),
    [
        ("Alice/coin", "lower-case"), ("alice/Coin", "lower-case"), ("alice/co--in", "lower-case"),
        ("alice/-coin", "lower-case"), ("a/coin", "lower-case"), ("al-ice/coin", "lower-case"),
        ("1lice/coin", "begins"),
        ("\u0430lice/coin", "CYRILLIC SMALL LETTER A"), ("alice/c\u043ein", "CYRILLIC SMALL LETTER O"),
        ("alice/co\u200bin", "ZERO WIDTH SPACE"), ("api/coin", "reserved"),
        ("alice/" + "x" * 61, "60"), ("alice", "owner/name"),
    ],
)  # fmt: skip
def test_a_name_is_refused_and_the_message_says_why(package: str, shown: str) -> None:
    from ludus.hub.access.names import split_id
    from ludus.registry.types.errors import NameRefused

    with pytest.raises(NameRefused, match=shown):
        split_id(package)


def test_reserved_names_are_refused_over_both_ways_of_upload(plain_client: httpx.Client) -> None:
    assert kind_of(publish(plain_client, release("api/coin"))) == "NameRefused"
    assert kind_of(upload(plain_client, release("api/coin"))) == "NameRefused"


def changed(one: Release, **manifest: Any) -> Release:
    one.manifest = one.manifest.model_copy(update=manifest)
    return one


@pytest.mark.parametrize(
    ("manifest", "shown"),
    [
        ({"version": "1.0.1"}, "version"),
        ({"environments": ()}, "environments"),
        ({"environments": ({"name": "toss", "source": "alice_coin:Other"},)}, "alice_coin:Other"),
        ({"environments": ({"name": "other", "source": "alice_coin:Toss"},)}, "other"),
        ({"environments": ({"name": "toss", "source": "alice_coin:Toss"},) * 2}, "twice"),
        ({"description": "x" * 101}, "description"),
        ({"tags": ("Not A Tag",)}, "tags"),
        ({"surprise": 1}, "surprise"),
        ({"version": "1.0.0+local"}, "version"),
        ({"network": ("http://a b",)}, "network"),
        ({"id": "bob/coin"}, "bob/coin"),
        ({"license": 5}, "license"),
    ],
)
def test_a_manifest_that_is_wrong_or_contradicts_the_wheel_is_refused(
    plain_client: httpx.Client, manifest: dict[str, Any], shown: str
) -> None:
    one = release("alice/coin")
    fields = one.fields()
    fields["manifest"] = json.dumps({**json.loads(fields["manifest"]), **manifest})
    files = {"wheel": (one.filename, one.wheel)}
    answer = plain_client.post("/api/v1/environments/alice/coin/versions", data=fields, files=files)
    assert kind_of(answer) == "ManifestRefused"
    assert shown in answer.json()["error"]["message"]


def test_a_license_that_the_wheel_contradicts_is_refused(plain_client: httpx.Client) -> None:
    parts = WheelParts(
        "alice-coin", metadata="Metadata-Version: 2.4\nName: alice-coin\nVersion: 1.0.0\nLicense-Expression: MIT\n"
    )
    assert kind_of(publish(plain_client, release("alice/coin", parts=parts, license="Apache-2.0"))) == "ManifestRefused"


def test_a_distribution_without_the_owner_in_front_is_refused(plain_client: httpx.Client) -> None:
    one = release("alice/coin", parts=WheelParts("coin"))
    assert kind_of(publish(plain_client, one)) == "ManifestRefused"
    assert kind_of(upload(plain_client, one)) == "NameRefused"


def tampered_wheel(one: Release) -> None:
    one.wheel = WheelParts("alice-coin", module="# evil\n" + WheelParts("x").module).pack()


def tampered_card(one: Release) -> None:
    one.card += "more"


def tampered_manifest(one: Release) -> None:
    one.manifest = one.manifest.model_copy(update={"description": "Better."})


def without_signature(one: Release) -> None:
    one.signed = None


def of_another_version(one: Release) -> None:
    one.signed = release("alice/coin", "2.0.0").signed


def of_another_package(one: Release) -> None:
    one.signed = release("alice/other").signed


def with_a_broken_signature(one: Release) -> None:
    assert one.signed is not None
    first = "B" if one.signed.signature[0] == "A" else "A"
    one.signed = one.signed.model_copy(update={"signature": first + one.signed.signature[1:]})


def with_another_key(one: Release) -> None:
    assert one.signed is not None
    one.signed = one.signed.model_copy(update={"key": "ed25519:" + "A" * 43 + "="})


def with_a_text_as_key(one: Release) -> None:
    assert one.signed is not None
    one.signed = one.signed.model_copy(update={"key": "rsa:none"})


@pytest.mark.parametrize(
    "tamper",
    [
        tampered_wheel, tampered_card, tampered_manifest, without_signature, of_another_version, of_another_package,
        with_a_broken_signature, with_another_key, with_a_text_as_key,
    ],
)  # fmt: skip
def test_a_signature_that_does_not_cover_the_upload_is_refused(
    plain_client: httpx.Client, tamper: Callable[[Release], None]
) -> None:
    one = release("alice/coin")
    tamper(one)
    assert kind_of(publish(plain_client, one)) == "SignatureRefused"
    assert plain_client.get("/api/v1/environments/alice/coin").status_code == 404


def post(client: httpx.Client, body: bytes, kind: str) -> httpx.Response:
    return client.post("/api/v1/environments/alice/coin/versions", content=body, headers={"content-type": kind})


FORM = "multipart/form-data; boundary=x"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"{}", "application/json"), (b"", FORM), (b"--x", FORM), (b"nonsense", FORM), (b"", "multipart/form-data"),
        (b"--x\r\n\r\nvalue\r\n--x--\r\n", FORM),
        (b'--x\r\nContent-Disposition: form-data; name="surprise"\r\n\r\nv\r\n--x--\r\n', FORM),
        (b'--x\r\nContent-Disposition: form-data; name="wheel"\r\n\r\nv\r\n--x--\r\n', FORM),
        (b'--x\r\nContent-Disposition: form-data; name="card"\r\n\r\n\xff\xfe\r\n--x--\r\n', FORM),
        (b'--x\r\nContent-Disposition: form-data; name="card"\r\n\r\na\r\n' * 2 + b"--x--\r\n", FORM),
        (b"--x\r\nA: " + b"b" * 10_000 + b"\r\n\r\nv\r\n--x--\r\n", FORM),
        (b'--x\r\nContent-Disposition: form-data; name="card"\r\n\r\na\r\n' * 300 + b"--x--\r\n", FORM),
        (b'--x\r\nContent-Disposition: form-data; name="wheel"; filename="a"\r\n\r\nv', FORM),
    ],
    ids=str,
)  # fmt: skip
def test_a_form_that_is_broken_is_refused(plain_client: httpx.Client, body: bytes, kind: str) -> None:
    assert kind_of(post(plain_client, body, kind)) == "UploadRefused"


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"sha256_digest": "0" * 64}, "DigestMismatch"), ({"blake2_256_digest": "0" * 64}, "DigestMismatch"),
        ({"md5_digest": "0" * 32}, "DigestMismatch"), ({"sha256_digest": "nonsense"}, "DigestMismatch"),
        ({"sha256_digest": None, "blake2_256_digest": None}, "UploadRefused"),
        ({":action": "doc_upload"}, "UploadRefused"),
        ({":action": None}, "UploadRefused"), ({"filetype": "sdist"}, "UploadRefused"),
    ],
)  # fmt: skip
def test_an_upload_of_twine_with_wrong_fields_is_refused(
    plain_client: httpx.Client, changes: dict[str, str | None], kind: str
) -> None:
    assert kind_of(upload(plain_client, release("alice/coin"), **changes)) == kind
    assert plain_client.get("/index/simple/alice-coin/").status_code == 404


def test_a_body_that_declares_too_many_bytes_is_refused_before_it_arrives(plain_hub: HubProcess) -> None:
    connection = HTTPConnection("127.0.0.1", plain_hub.port, timeout=30)
    headers = {"content-type": FORM, "content-length": str(10**12)}
    connection.request("POST", "/api/v1/environments/alice/coin/versions", headers=headers)
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["error"]["data"]["kind"]) == (413, "PayloadTooLarge")
    connection.close()


def test_a_card_and_a_manifest_that_are_too_large_are_refused(plain_client: httpx.Client) -> None:
    one = release("alice/coin", card="x" * (256 * 1024 + 1))
    assert kind_of(publish(plain_client, one)) == "PayloadTooLarge"
    nested = {"manifest": "[" * 150_000, "card": ""}
    files = {"wheel": (one.filename, one.wheel)}
    answer = plain_client.post("/api/v1/environments/alice/coin/versions", data=nested, files=files)
    assert kind_of(answer) == "PayloadTooLarge"


def test_a_description_of_twine_that_is_larger_than_a_card_is_refused(plain_client: httpx.Client) -> None:
    head = "Metadata-Version: 2.1\nName: alice-coin\nVersion: 1.0.0\nDescription-Content-Type: text/markdown\n\n"
    one = release("alice/coin", parts=WheelParts("alice-coin", metadata=head + "x" * 300_000))
    assert kind_of(upload(plain_client, one)) == "PayloadTooLarge"


def test_a_wheel_beyond_the_limit_is_refused_while_it_arrives_and_leaves_no_file(plain_hub: HubProcess) -> None:
    size = 101 * 1024 * 1024
    head = b'--x\r\nContent-Disposition: form-data; name="wheel"; filename="a.whl"\r\n\r\n'

    def body() -> Any:
        yield head
        for _ in range(size // 65536):
            yield bytes(65536)

    with plain_hub.client() as client:
        answer = client.post("/api/v1/environments/alice/coin/versions", content=body(), headers={"content-type": FORM})
    assert kind_of(answer) == "PayloadTooLarge"
    assert list((plain_hub.data / "blobs" / "incoming").iterdir()) == []


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/environments/alice/absent", "/api/v1/environments/alice/absent/versions/latest",
        "/api/v1/environments/alice/absent/owners", "/index/simple/absent/", "/index/alice/simple/absent/",
        "/files/" + "0" * 64 + "/a.whl", "/files/..%2f..%2fhub.sqlite/a", "/nothing",
    ],
)  # fmt: skip
def test_what_does_not_exist_is_answered_as_such(plain_client: httpx.Client, path: str) -> None:
    answer = plain_client.get(path)
    assert (answer.status_code, kind_of(answer) in ("PackageNotFound", "NotFound")) == (404, True)


@pytest.mark.suite("hub", first=1)
def test_a_null_character_is_refused_over_each_database(client: httpx.Client) -> None:
    for address in ("/api/v1/environments/a%00b/c", "/api/v1/environments?tag=%00", "/index/%00/simple/"):
        assert kind_of(client.get(address)) == "InvalidParams"
    name = f"alice/{new_name()}"
    assert kind_of(publish(client, release(name, card="a\0b"))) == "ManifestRefused"
    published(client, release(name, description="a\0b"))
    yank = client.post(f"/api/v1/environments/{name}/versions/1.0.0/yank", json={"reason": "a\0b"})
    assert kind_of(yank) == "InvalidParams"


@pytest.mark.parametrize("query", ["page=0", "page=x", "size=1000", f"q={'x' * 300}", "page=99999999999999999999"])
def test_a_search_with_wrong_parameters_is_refused(plain_client: httpx.Client, query: str) -> None:
    assert kind_of(plain_client.get(f"/api/v1/environments?{query}")) == "InvalidParams"


def test_pages_of_others_and_other_hosts_may_not_use_a_hub_on_loopback(plain_client: httpx.Client) -> None:
    assert plain_client.get("/health", headers={"host": "evil.example"}).status_code == 421
    answer = publish_from(plain_client, "https://evil.example")
    assert (answer.status_code, kind_of(answer)) == (403, "Forbidden")


def publish_from(client: httpx.Client, origin: str) -> httpx.Response:
    one = release(f"alice/{new_name()}")
    files = {"wheel": (one.filename, one.wheel)}
    where = f"/api/v1/environments/{one.manifest.id}/versions"
    return client.post(where, data=one.fields(), files=files, headers={"origin": origin})


def test_a_refusal_leaves_no_file(plain_hub: HubProcess, plain_client: httpx.Client) -> None:
    published(plain_client, release("keeps/coin"))
    blobs = plain_hub.data / "blobs"
    before = sorted(blobs.rglob("*"))
    publish(plain_client, release("alice/coin", wheel=b"no wheel"))
    one = release("alice/coin")
    tampered_card(one)
    publish(plain_client, one)
    assert sorted(blobs.rglob("*")) == before
