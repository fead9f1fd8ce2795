"""SSH keys of an organization."""

import pytest

from control_plane.services.ssh_keys import KEYS_MAX
from tests.integration.api.conftest import Tenant
from tests.integration.api.endpoints import SSH_KEY
from tests.integration.api.problems import hold
from tests.unit.domain.test_ssh_public_key import a_line, field

pytestmark = pytest.mark.database


async def test_an_ssh_key_name_is_unique_and_a_deleted_key_is_gone(acme: Tenant) -> None:
    body = {"name": "k", "public_key": SSH_KEY}
    key = (await acme.http.post("/v1/ssh-keys", json=body)).json()["id"]
    hold(await acme.http.post("/v1/ssh-keys", json=body), "name_taken")
    assert (await acme.http.delete(f"/v1/ssh-keys/{key}")).status_code == 204
    hold(await acme.http.delete(f"/v1/ssh-keys/{key}"), "not_found")


async def test_a_lease_cannot_use_another_tenants_ssh_key(acme: Tenant, other: Tenant) -> None:
    key = (await other.http.post("/v1/ssh-keys", json={"name": "k", "public_key": SSH_KEY})).json()["id"]
    hold(await acme.http.post("/v1/leases", json={"sku": "h100x1", "ssh_key_ids": [key]}), "ssh_key_unknown")


async def test_the_same_key_is_stored_once_and_an_organization_has_a_bounded_number(acme: Tenant) -> None:
    first = {"name": "laptop", "public_key": SSH_KEY}
    assert (await acme.http.post("/v1/ssh-keys", json=first)).status_code == 201
    again = await acme.http.post("/v1/ssh-keys", json={"name": "again", "public_key": f"{SSH_KEY} at home"})
    hold(again, "ssh_key_duplicate")
    assert "'laptop'" in again.json()["detail"]
    for number in range(1, KEYS_MAX):
        line = a_line("ssh-ed25519", field(number.to_bytes(32, "big")))
        answer = await acme.http.post("/v1/ssh-keys", json={"name": f"k{number}", "public_key": line})
        assert answer.status_code == 201, answer.text
    more = {"name": "more", "public_key": a_line("ssh-ed25519", field(b"k" * 32))}
    hold(await acme.http.post("/v1/ssh-keys", json=more), "ssh_keys_too_many")
