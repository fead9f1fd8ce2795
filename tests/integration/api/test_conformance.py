"""Every answer of the real process is held against the OpenAPI document, for thousands of generated requests.

Schemathesis sends what the document allows and what it forbids. CONFORMANCE_SECONDS=600 makes it look for that long.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from control_plane.db import role_bindings
from control_plane.db.engine import Role as DatabaseRole
from control_plane.domain.ids import RoleBindingId
from control_plane.domain.money import Nano
from control_plane.domain.role import Role
from control_plane.domain.role_binding import RoleBinding
from control_plane.domain.scope import ORGANIZATION
from control_plane.services import administration, process
from demo.ports import free_port
from tests.support.database import login_url

pytestmark = pytest.mark.database
CONFIGURATION = Path(__file__).with_name("schemathesis.toml")
SKU = "h100-sxm.1x"
BOOK = f"""[[sku]]
name = "{SKU}"
gpu_model = "h100-sxm-80gb"
gpu_count = 1
vcpus = 8
memory_gib = 64
disk_gib = 100
usd_per_gpu_hour = "2.49"
"""


@dataclass
class Target:
    url: str
    secret: str
    lease: str = ""

    @property
    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secret}"}


@pytest.fixture
async def target(database_url: str) -> AsyncIterator[Target]:
    """The API's own process, and the key of an operator who also owns the platform's organization."""
    async with process.administrator(database_url) as owner:
        await administration.load_price_book(owner, BOOK)
        made = await administration.bootstrap(
            owner, "us", platform=True, top_up=Nano(10**15), gpu_quota=1_000_000
        )
        assert isinstance(made, administration.FirstOrganization)
        async with owner.db.transaction(made.id) as connection:
            binding = RoleBinding(
                RoleBindingId(owner.new_id()),
                made.issued.key.subject,
                Role.OWNER,
                ORGANIZATION,
                owner.now(),
                "test",
            )
            await role_bindings.insert(connection, made.id, binding)
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PROVIDER_")} | {
        "SPLITPLANE_DATABASE_URL": login_url(database_url, DatabaseRole.API),
        "SPLITPLANE_LISTEN": f"127.0.0.1:{port}",
        "SPLITPLANE_METRICS_LISTEN": f"127.0.0.1:{free_port()}",
        "SPLITPLANE_REQUESTS_PER_SECOND": "100000",
        "SPLITPLANE_REQUESTS_BURST": "1000000",
        "SPLITPLANE_ORGANIZATION_REQUESTS_PER_SECOND": "100000",
        "SPLITPLANE_ORGANIZATION_REQUESTS_BURST": "1000000",
        "SPLITPLANE_ANONYMOUS_REQUESTS_PER_SECOND": "100000",
        "SPLITPLANE_LOG_LEVEL": "error",
    }
    server = subprocess.Popen([sys.executable, "-m", "control_plane", "serve"], env=environment)  # noqa: ASYNC220 - starting takes milliseconds
    found = Target(f"http://127.0.0.1:{port}", made.issued.secret)
    try:
        await _ready(found)
        async with httpx.AsyncClient(base_url=found.url, headers=found.authorization) as client:
            lease = await client.post("/v1/leases", json={"sku": SKU, "ssh_key_ids": []})
        assert lease.status_code == 202, lease.text
        found.lease = lease.json()["id"]
        yield found
    finally:
        server.kill()
        server.wait(20)


async def _ready(target: Target) -> None:
    async with httpx.AsyncClient(base_url=target.url) as client:
        for _ in range(400):
            with contextlib.suppress(httpx.TransportError):
                if (await client.get("/readyz")).is_success:
                    return
            await asyncio.sleep(0.05)
    raise TimeoutError("the API is not ready after 20 s")


async def test_the_api_is_what_its_document_says(target: Target, tmp_path: Path) -> None:
    seconds = os.environ.get("CONFORMANCE_SECONDS")
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIGURATION), "run"),
        *("--header", f"Authorization: Bearer {target.secret}", "--no-color"),
        *(("--max-time", seconds, "--max-examples", "1000") if seconds else ()),
        f"{target.url}/schema/openapi.json",
    ]
    ran = await asyncio.to_thread(
        subprocess.run,
        command,
        env=os.environ
        | {"PYTHONPATH": str(Path.cwd()), "CONFORMANCE_LEASE": target.lease, "CONFORMANCE_SKU": SKU},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr[-5_000:]
