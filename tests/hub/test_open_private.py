"""An open hub hides nothing, and says so instead of taking a package as private."""

from __future__ import annotations

import httpx
from hubs import kind_of, new_name, published, release


def test_an_open_hub_refuses_to_make_a_package_private_and_says_what_to_do(client: httpx.Client) -> None:
    one = release(f"local/{new_name()}")
    files = {"wheel": (one.filename, one.wheel, "application/octet-stream")}
    where = f"/api/v1/environments/{one.manifest.id}"
    refused = client.post(f"{where}/versions", data={**one.fields(), "visibility": "private"}, files=files)
    assert (refused.status_code, kind_of(refused)) == (409, "Conflict")
    assert "ludus hub accounts create" in refused.json()["detail"]
    assert client.get(where).status_code == 404, "nothing was published"
    published(client, one)
    refused = client.put(f"{where}/access", json={"private": True})
    assert (refused.status_code, "everyone who reaches it" in refused.text) == (409, True)
    assert not client.get(where).json()["private"]
    assert client.put(f"{where}/access", json={"private": False}).status_code == 200


def test_a_signature_with_a_name_twice_is_refused(client: httpx.Client) -> None:
    one = release(f"local/{new_name()}")
    fields = one.fields()
    files = {"wheel": (one.filename, one.wheel, "application/octet-stream")}
    for part, kind in (("signature", "SignatureRefused"), ("manifest", "ManifestRefused")):
        doubled = {**fields, part: fields[part].replace('"version":', '"version":"9.9.9","version":', 1)}
        refused = client.post(f"/api/v1/environments/{one.manifest.id}/versions", data=doubled, files=files)
        assert (kind_of(refused), "twice" in refused.text) == (kind, True)
