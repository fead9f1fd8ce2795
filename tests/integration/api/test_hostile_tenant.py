"""A tenant tries to reach another one, in every way that we know, and is refused in each."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest
from sqlalchemy import text

from control_plane.api.app import create_app
from control_plane.outcomes import audit as audit_outcomes
from tests.integration.api.conftest import SETTINGS, Api, Tenant
from tests.integration.api.sign_in import URL, signing_in_of
from tests.integration.api.sign_in import SignIn as People
from tests.integration.api.test_idempotency import add_machine
from tests.integration.api.test_node_pools import node_of, ready_cluster
from tests.support import oidc_server
from tests.support.hostile_tenant.play import play, told
from tests.support.hostile_tenant.things import (
    Things,
    plant,
    ssh_public_key,
    with_certificate,
    with_nodes,
    with_places,
)
from tests.support.hostile_tenant.way import OWN, Stand
from tests.support.hostile_tenant.ways import WAYS

pytestmark = pytest.mark.database
SKU = "h100x1"
SHARED = "eu-1"
_NUMBERS = count(2)
"""Of nodes in the clusters that both tenants may use, and of machines."""


@pytest.fixture(scope="module")
def provider() -> Iterator[oidc_server.Provider]:
    with oidc_server.running() as made:
        for name in ("ada", "mallory"):
            made.user(name, email=f"{name}@example.com", email_verified=True, name=name)
        yield made


@dataclass
class SignedIn:
    """The attacker's people, terminals and service account, and a sign-in of the victim's that is under way."""

    people: People
    token: str
    refresh_token: str
    person: httpx.AsyncClient
    service_account: str
    service_account_key: str
    url: str = URL

    def http(self) -> httpx.AsyncClient:
        return self.people.http()

    async def device(self) -> Mapping[str, Any]:
        return await self.people.device()

    async def victims_callback(self) -> str:
        begun = await self.http().get("/auth/start")
        return self.people.provider.sign_in(begun.headers["location"], "ada")

    async def stranger(self, email: str, *, verified: bool) -> httpx.Response:
        self.people.provider.user("stranger", email=email, email_verified=verified)
        _, answer = await self.people.browser("stranger")
        return answer


async def _sealed(api: Api) -> None:
    await api.app.state.context.refusals.flush()
    async with api.owner.db.transaction() as connection:
        await audit_outcomes.seal(connection, limit=1_000, now=api.clock.now())


async def _signed_in(people: People, attacker: Tenant) -> SignedIn:
    tokens = await people.sign_in("mallory")
    browser, _ = await people.browser("mallory")
    account = (await attacker.http.post("/v1/service-accounts", json={"name": "pipeline"})).json()["id"]
    scope = {"kind": "organization"}
    await attacker.http.post("/v1/role-bindings", json={"subject": account, "role": "viewer", "scope": scope})
    key = await attacker.http.post("/v1/api-keys", json={"name": "pipeline", "subject": account})
    return SignedIn(
        people, tokens["access_token"], tokens["refresh_token"], browser, account, key.json()["secret"]
    )


_ISSUED = text("""
UPDATE kubeconfigs SET issued_at = requested_at, expires_at = requested_at + interval '8 hours', sealed = '\\x00'
WHERE organization_id = :id
""")


async def _with_nodes(api: Api, operator: Tenant, tenant: Tenant, things: Things) -> Things:
    """With node pools and issued kubeconfigs in the shared cluster, a node, and a cluster of the tenant's own."""
    things = await with_nodes(tenant.http, things, SHARED, sku=SKU)
    async with api.owner.db.transaction() as connection:
        await connection.execute(_ISSUED, {"id": tenant.id})
    pool = (await tenant.http.get(f"/v1/node-pools/{things['node pool']}")).json()
    leases = (await tenant.http.get("/v1/leases")).json()["items"]
    lease = next(each for each in leases if each["node_pool_id"] == pool["id"])
    node = await node_of(api, tenant, pool["cluster_id"], pool, lease, number=next(_NUMBERS))
    name = f"{things.marker}-own"
    own = await ready_cluster(api, operator, name, organization_id=things["organization"])
    return things.and_more(
        node=f"nd_{node.hex}",
        node_name=f"node-{node.hex}",
        dedicated_cluster=own,
        dedicated_cluster_name=name,
    )


async def _planted(api: Api, operator: Tenant, tenant: Tenant, marker: str) -> Things:
    things = await plant(tenant.http, marker, sku=SKU)
    things = await _with_nodes(api, operator, tenant, things)
    async with api.owner.db.transaction() as connection:
        await connection.execute(
            text("UPDATE leases SET state = 'ready', ready_at = created_at WHERE id = :id"),
            {"id": UUID(hex=things["lease"].removeprefix("le_"))},
        )
    await add_machine(api, tenant, things["lease"], number=next(_NUMBERS))
    return await with_certificate(tenant.http, things)


async def _victim(api: Api, people: People, operator: Tenant, victim: Tenant) -> Things:
    things = await _planted(api, operator, victim, "planted-5e0f7a31")
    person = await people.invite(victim, "ada@example.com")
    tokens = await people.sign_in("ada")
    await _sealed(api)
    things = await with_places(victim.http, things)
    device = await people.device()
    return things.and_more(
        frozenset({tokens["access_token"], tokens["refresh_token"], victim.secret}),
        person=person,
        persons_address="ada@example.com",
        session=tokens["session"],
        user_code=device["user_code"].replace("-", ""),
    )


async def _attacker(api: Api, people: People, operator: Tenant, attacker: Tenant) -> Things:
    things = await _planted(api, operator, attacker, "attacker-9d42")
    await people.invite(attacker, "mallory@example.com")
    await _sealed(api)
    return await with_places(attacker.http, things)


@pytest.fixture
async def victim(api: Api) -> Tenant:
    return await api.tenant("planted-5e0f7a31 organization")


@pytest.fixture
async def stand(api: Api, operator: Tenant, victim: Tenant, provider: oidc_server.Provider) -> Stand:
    signing_in = signing_in_of(api, provider)
    api.app = create_app(
        api.world, SETTINGS, metrics=api.metrics, signing_in=signing_in
    )  # Streams tick in real time.
    attacker = await api.tenant("attacker")
    people = People(api, provider, signing_in, attacker)
    await ready_cluster(api, operator, SHARED)
    mine = await _attacker(api, people, operator, attacker)
    theirs = await _victim(api, people, operator, victim)
    me = (await attacker.http.get("/v1/me")).json()
    assert operator.http.auth is not None
    return Stand(
        attacker.http,
        attacker.secret,
        mine,
        theirs,
        common={
            "sku": SKU,
            "cluster": SHARED,
            "attacker": me["subject"],
            "attackers lease": mine["released lease"],
            "attackers ready lease": mine["lease"],
            "attackers ssh key": mine["ssh key"],
            "attackers user": mine["user"],
            "attackers public key": mine["public key"],
            "fresh public key": ssh_public_key("fresh"),
            "new public key": ssh_public_key("new"),
        },
        operator=operator.http,
        sign_in=await _signed_in(people, attacker),
    )


_LIFTED = """
DO $$ DECLARE table_name name; BEGIN
  FOR table_name IN SELECT tablename FROM pg_policies WHERE policyname = 'tenant' AND cmd = 'ALL' LOOP
    EXECUTE format('ALTER POLICY tenant ON %I USING (true) WITH CHECK (true)', table_name);
  END LOOP;
END $$
"""


class Rows:
    """Everything that the database has of one organization."""

    def __init__(self, connection: Any, statement: str) -> None:
        self._connection = connection
        self._statement = statement

    @classmethod
    async def of(cls, connection: Any, organization: str) -> "Rows":
        tables = await connection.fetch(
            "SELECT table_name FROM information_schema.columns JOIN information_schema.tables"
            " USING (table_schema, table_name) WHERE table_schema = 'public' AND column_name = 'organization_id'"
            " AND table_type = 'BASE TABLE' ORDER BY table_name"
        )
        assert len(tables) > 20
        each = (
            f"SELECT '{table}' AS name, string_agg(t::text, chr(10) ORDER BY t::text) AS rows FROM {table} t"
            f" WHERE organization_id = '{organization.removeprefix('org_')}'"
            for (table,) in tables
        )
        return cls(connection, " UNION ALL ".join(each))

    async def digest(self) -> str:
        found = await self._connection.fetch(self._statement)
        return hashlib.sha256("".join(f"{row['name']} {row['rows']}" for row in found).encode()).hexdigest()


@pytest.mark.parametrize("policies", [True, False], ids=["with policies", "by filters alone"])
async def test_every_way_to_another_tenant_is_refused_and_the_same_way_to_ones_own_is_not(
    api: Api, stand: Stand, victim: Tenant, database_url: str, *, policies: bool
) -> None:
    """Row-level security would hide that a query forgets its filter, so once it lets the API see and write every row."""

    async def lines(request_ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        await _sealed(api)
        found: list[Mapping[str, Any]] = []
        cursor = None
        while cursor is not None or not found:
            query = {"limit": "200"} | ({} if cursor is None else {"cursor": cursor})
            page = (await stand.http.get("/v1/audit-events", params=query)).json()
            found, cursor = found + page["items"], page["next_cursor"]
        refused = [line for line in found if line["outcome"] == "refused"]
        return {line["request_id"]: line for line in refused if line["request_id"] in request_ids}

    async def passes(seconds: float) -> None:
        api.clock.advance(seconds)

    connection = await asyncpg.connect(database_url)
    try:
        if not policies:
            await connection.execute(_LIFTED)
        rows = await Rows.of(connection, stand.theirs["organization"])
        verdicts = await play(WAYS, stand, digest=rows.digest, lines=lines, sleep=passes)
        before = await rows.digest()
        await connection.execute("UPDATE projects SET name = name || ' ' WHERE name LIKE 'planted%project'")
        assert await rows.digest() != before, "a change of the victim's would be seen"
    finally:
        await connection.close()
    assert told(await victim.http.get("/v1/leases"), stand.theirs), (
        "an answer with something of theirs is noticed"
    )
    wrong = {verdict.way.name: verdict.faults for verdict in verdicts if verdict.faults}
    assert not wrong, "\n".join(f"{name}: {faults}" for name, faults in wrong.items())
    assert len([way for way in WAYS if way.refused != OWN]) >= 50
    assert max(Counter(way.name for way in WAYS).values()) == 1
