"""SSH keys of an organization."""

import pytest

from tests.integration.api.conftest import Tenant
from tests.integration.api.endpoints import SSH_KEY
from tests.integration.api.problems import hold

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
