"""A stranger's client, generated from the OpenAPI document by openapi-python-client, leases and releases."""

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.endpoints import SSH_KEY

pytestmark = pytest.mark.database
PACKAGE = "generated_splitplane"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The generated client. A warning of the generator is a part of the document that it does not understand."""
    folder = tmp_path_factory.mktemp("client")
    (folder / "configuration.yaml").write_text(
        f"post_hooks: []\npackage_name_override: {PACKAGE}\n"
        "content_type_overrides: {application/x-ndjson: application/octet-stream}\n"  # It knows no lines of JSON.
    )
    command = [
        *(sys.executable, "-m", "openapi_python_client", "generate", "--fail-on-warning", "--meta", "none"),
        *("--path", str(Path("docs/generated/openapi.json").absolute()), "--config", "configuration.yaml"),
        *("--output-path", PACKAGE),
    ]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder


@pytest.fixture
def load(package: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of the generated client."""
    monkeypatch.syspath_prepend(str(package))

    def module(name: str) -> ModuleType:
        return importlib.import_module(f"{PACKAGE}.{name}")

    return module


async def test_a_generated_client_leases_and_releases(load: Any, api: Api, acme: Tenant) -> None:
    models = load("models")
    client = load("client").AuthenticatedClient(base_url="http://api", token=acme.secret)
    client.set_async_httpx_client(acme.http)

    async def call(tag: str, name: str, *path: str, **arguments: Any) -> Any:
        return await load(f"api.{tag}.{name}").asyncio(*path, client=client, **arguments)

    skus = await call("catalogue", "list_skus")
    assert [sku.name for sku in skus.items] == ["h100x1", "h100x8"]
    key = await call(
        "ssh_keys", "create_ssh_key", body=models.SshKeyRequest(name="laptop", public_key=SSH_KEY)
    )
    labels = models.LeaseRequestLabels.from_dict({"team": "vision"})
    body = models.LeaseRequest(sku="h100x1", name="train", regions=[], ssh_key_ids=[key.id], labels=labels)
    lease = await call("leases", "create_lease", body=body, idempotency_key="first")
    assert isinstance(lease, models.LeaseView), lease
    assert lease.labels.to_dict() == {"team": "vision"}
    assert lease.state is models.LeaseState.PLACING
    assert [admitted.id for admitted in lease.ssh_keys] == [key.id]
    again = await call("leases", "create_lease", body=body, idempotency_key="first")
    assert again.id == lease.id

    found = await call("leases", "list_leases", state=[models.LeaseState.PLACING], limit=10)
    assert [each.id for each in found.items] == [lease.id]
    released = await call("leases", "release_lease", lease.id)
    assert released.state is models.LeaseState.ENDING

    refused = await call("leases", "create_lease", body=models.LeaseRequest(sku="h100x9"))
    assert isinstance(refused, models.Problem)
    assert refused.code == "sku_unknown"
