"""A served API without sockets: the app on a database of its own, a virtual clock, and its tenants."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
import pytest
from litestar import Litestar
from litestar.datastructures import State
from sqlalchemy import text

from control_plane.api import app as api_app
from control_plane.api.app import create_app
from control_plane.api.observe import Metrics
from control_plane.db import accounts
from control_plane.db.engine import Database
from control_plane.db.engine import Role as DatabaseRole
from control_plane.db.rows import read_one
from control_plane.domain import actor
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName, OrganizationId
from control_plane.domain.money import Nano
from control_plane.domain.organization import OrganizationState
from control_plane.domain.price import ListPrice
from control_plane.domain.proof import Tier
from control_plane.domain.role import Role
from control_plane.domain.scope import ORGANIZATION
from control_plane.domain.sku import CapacityShape, Shape, Sku
from control_plane.outcomes import organizations as organization_outcomes
from control_plane.services import administration, api_keys, catalogue, organizations
from control_plane.settings import Settings
from control_plane.world import World, uuid7
from tests.integration.api.documented import check_documented
from tests.integration.db.sample import a_row, insert
from tests.support.clock import Clock
from tests.support.database import fresh_database
from tests.support.keys import SEALING
from tests.support.stage import Stage, set_stage

H100 = ListPrice(
    Sku("h100x1", Shape(GpuModel.H100_SXM_80GB, 1, 8, 64, 100), CapacityShape.VM, Tier.LISTED),
    Nano(3_600_000_000),
)
H100X8 = ListPrice(
    Sku("h100x8", Shape(GpuModel.H100_SXM_80GB, 8, 64, 512, 800), CapacityShape.VM, Tier.LISTED),
    Nano(3_000_000_001),
)
_PROJECT = text("SELECT project_id FROM leases WHERE id = :lease_id")
SETTINGS = Settings(
    database_url="unused",
    requests_per_second=1e6,
    requests_burst=1_000_000,
    organization_requests_per_second=1e6,
    organization_requests_burst=1_000_000,
    anonymous_requests_per_second=1e6,
)


class ByPath(httpx.Auth):
    """Those who run the installation: each request is made by the one of them who may make it."""

    def __init__(self, operator: str, finance: str, owner: str) -> None:
        self._operator, self._finance, self._owner = operator, finance, owner

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        if "Authorization" not in request.headers:
            secret = self.secret_for(request.method, request.url.path)
            request.headers["Authorization"] = f"Bearer {secret}"
        yield request

    def secret_for(self, method: str, path: str) -> str:
        if path.startswith("/v1/finance/"):
            return self._finance
        if "/consoles/" in path:  # Operators log in nowhere, and read no console.
            return self._owner
        if method == "GET" or path.startswith(("/v1/operator/", "/v1/quotes")):
            return self._operator
        return self._owner


@dataclass
class Tenant:
    """An organization as its own client sees it. Of the platform's, the secret is the operator's."""

    id: OrganizationId
    secret: str
    http: httpx.AsyncClient

    def secret_for(self, method: str, path: str) -> str:
        """The API key with which such a request is made."""
        auth = self.http.auth
        return auth.secret_for(method, path) if isinstance(auth, ByPath) else self.secret

    async def lease(self, **body: object) -> str:
        answer = await self.http.post("/v1/leases", json={"sku": "h100x1", "ssh_key_ids": []} | body)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])


async def top_up(finance: Tenant, organization_id: str, usd: str) -> httpx.Response:
    """Post a top-up as finance does, with a new Idempotency-Key."""
    body = {"organization_id": organization_id, "kind": "top_up", "amount_usd": usd, "reason": "SEPA 000815"}
    headers = {"Idempotency-Key": secrets.token_hex()}
    return await finance.http.post("/v1/finance/transactions", json=body, headers=headers)


@dataclass
class Api:
    metrics: Metrics
    world: World
    owner: World
    """Sees every tenant: for what the API itself does not do."""
    clock: Clock
    app: Litestar = field(init=False)
    while_asleep: Callable[[], Awaitable[object]] | None = None
    """What happens in the world whenever a stream sleeps; nothing but time when None."""

    @property
    def anonymous(self) -> httpx.AsyncClient:
        return self.client(None)

    async def sleep(self, seconds: float) -> None:
        if self.while_asleep is not None:
            await self.while_asleep()
        await self.clock.sleep(seconds)

    def client(self, secret: str | None) -> httpx.AsyncClient:
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)  # type: ignore[arg-type] # httpx types ASGI apps more narrowly than Litestar
        hooks = {"response": [check_documented]}
        return httpx.AsyncClient(
            transport=transport, base_url="http://api", headers=headers, event_hooks=hooks
        )

    async def tenant(
        self, name: str, *, platform: bool = False, credit: str | None = "1000", quota: int = 64
    ) -> Tenant:
        """A new organization, as its owner, or of the platform as its operator."""
        money = None if credit is None else Nano(int(credit) * 10**9)
        made = await administration.bootstrap(
            self.owner, name, platform=platform, top_up=money, gpu_quota=quota
        )
        assert isinstance(made, administration.FirstOrganization)
        http = self.client(None if made.finance else made.issued.secret)
        if made.finance is not None:
            http.auth = ByPath(made.issued.secret, made.finance.secret, await self.owner_of(made.id))
        return Tenant(made.id, made.issued.secret, http)

    async def owner_of(self, organization_id: OrganizationId) -> str:
        """The API key of one more owner of an organization."""
        async with self.owner.db.transaction(organization_id) as connection:
            account = await organizations.create_first_account(
                connection,
                self.owner,
                organization_id,
                f"owner-{uuid7().hex}",
                role=Role.OWNER,
                scope=ORGANIZATION,
            )
            issued = await api_keys.issue(
                connection, self.owner, organization_id, account.subject, name="owner's"
            )
        return issued.secret


WAYS: dict[OrganizationState, tuple[str, ...]] = {
    OrganizationState.ACTIVE: (),
    OrganizationState.SUSPENDED: ("suspensions",),
    OrganizationState.CLOSING: ("closures",),
    OrganizationState.CLOSED: ("closures", "settled"),
    OrganizationState.DELETED: ("closures", "settled", "deletions"),
}
"""How an operator, and the reconciler, bring an organization into a state."""


async def tenant_in(api: Api, operator: Tenant, state: OrganizationState, name: str) -> Tenant:
    """An organization in this state. It has no lease, so nothing keeps it from being closed."""
    tenant = await api.tenant(name)
    for way in WAYS[state]:
        if way == "settled":
            await settle(api, tenant)
        else:
            path = f"/v1/operator/organizations/org_{tenant.id.hex}/{way}"
            answer = await operator.http.post(path, json={"reason": "test"})
            assert answer.status_code == 201, answer.text
    return tenant


async def settle(api: Api, tenant: Tenant) -> None:
    """Close the books, as the reconciler does once nothing is left."""
    async with api.owner.db.transaction() as connection:
        now = api.clock.now()
        assert await organization_outcomes.settle(connection, tenant.id, actor=actor.loop("test"), now=now)


async def erase(api: Api, tenant: Tenant) -> None:
    """Erase the data of a deleted organization, as the reconciler does."""
    async with api.owner.db.transaction() as connection:
        assert await organization_outcomes.erase(
            connection, tenant.id, destruction_id=uuid7(), actor=actor.loop("test"), now=api.clock.now()
        )


ProofOf = Callable[..., Awaitable[str]]


class Ticking(Clock):
    """Moves on by a microsecond whenever it is read, as real clocks do: times of rows differ."""

    def now(self) -> datetime:
        self._now += timedelta(microseconds=1)
        return self._now


@pytest.fixture
def clock() -> Clock:
    return Ticking()


@pytest.fixture(scope="session", autouse=True)
def routes() -> Iterator[None]:
    """The routes of the API are made once, and not for each of hundreds of apps: it takes a fifth of a second.

    What an app serves with (its world, its settings, its metrics) is in its state and around its routes.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api_app, "Litestar", litestar_once())
        yield


def litestar_once() -> Callable[..., Litestar]:
    """Makes apps that share the routes of the first one."""
    made: list[Litestar] = []

    def litestar(*, state: State, **options: Any) -> Litestar:
        if not made:
            made.append(Litestar(state=state, **options))
        app = copy(made[0])
        app.state = state
        return app

    return litestar


async def serve(db: Database, api_db: Database, clock: Clock) -> Api:
    """The app over these databases, with a price book and a provider account."""
    world = World(api_db, now=clock.now, new_id=uuid7, sealing=SEALING)
    owner = World(db, now=clock.now)
    async with db.transaction() as connection:
        await catalogue.load_price_book(connection, owner, [H100, H100X8])
        await accounts.register(connection, AccountName("fake"), "fake", now=clock.now())
    metrics = Metrics()
    made = Api(metrics, world, owner, clock)
    made.app = create_app(world, SETTINGS, metrics=metrics, sleep=made.sleep)
    return made


@pytest.fixture
async def api(db: Database, api_db: Database, clock: Clock) -> Api:
    return await serve(db, api_db, clock)


@dataclass
class Shared:
    """One app with its rows for all tests of a module that leave them as they are: set-up costs more than a request."""

    api: Api
    acme: Tenant
    operator: Tenant


@pytest.fixture(scope="module")
async def shared(server_url: str, template: str) -> AsyncIterator[Shared]:
    async with fresh_database(server_url, template) as url:
        db = Database(url, role=DatabaseRole.RECONCILER, pool_size=2, readers=1)
        api_db = Database(url, role=DatabaseRole.API, pool_size=5, readers=3)
        api = await serve(db, api_db, Ticking())
        yield Shared(api, await api.tenant("acme"), await api.tenant("us", platform=True))
        await api_db.close()
        await db.close()


@pytest.fixture
async def proof_of(db: Database, clock: Clock) -> ProofOf:
    """Writes a proof of a tenant's, as the reconciler would, and answers its id on the wire."""

    async def write(tenant: Tenant, lease: str, number: int = 1, **other: Any) -> str:
        lease_id = UUID(hex=lease.removeprefix("le_"))
        machine = a_row("machines", tenant.id, number, account="fake", gpu_count=1)
        async with db.transaction() as connection:
            project_id = await read_one(connection, _PROJECT, UUID, lease_id=lease_id)
            of_lease = {"lease_id": lease_id, "project_id": project_id, "machine_id": machine["id"]}
            row = a_row("proofs", tenant.id, number, at=clock.now(), **of_lease)
            await insert(connection, "machines", machine)
            await insert(connection, "proofs", row | other)
        return f"pf_{row['id'].hex}"

    return write


@pytest.fixture
async def stage(db: Database, api_db: Database, clock: Clock) -> Stage:
    """Every loop and a fake provider, on the same database and clock."""
    return await set_stage(db, clock, api_db=api_db)


@pytest.fixture
async def acme(api: Api) -> Tenant:
    return await api.tenant("acme")


@pytest.fixture
async def other(api: Api) -> Tenant:
    return await api.tenant("other")


@pytest.fixture
async def operator(api: Api) -> Tenant:
    return await api.tenant("us", platform=True)


@pytest.fixture
async def owner(database_url: str) -> AsyncIterator[Database]:
    """Sees what other connections wait for."""
    database = Database(database_url, role=None, pool_size=1, readers=1)
    yield database
    await database.close()
