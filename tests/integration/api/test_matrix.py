"""Every endpoint x every role x what is in reach, out of reach, and of another tenant.

`tests/golden/access.txt` has a line for each endpoint that says who passes the door; a review sees who gains what.
Then what is out of reach, in the own organization or in another one, is not found by anybody.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from sqlalchemy import text

from control_plane.db.rows import write
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.permission import EVERYBODYS, NARROWEST
from control_plane.domain.role import Role
from control_plane.domain.role_permissions import permissions_of, roles_at
from control_plane.domain.scope import ScopeKind
from tests.integration.api.conftest import Shared
from tests.integration.api.endpoints import ENDPOINTS, SSH_KEY, Endpoint
from tests.integration.api.problems import SOME_ID, hold, hold_denied
from tests.integration.api.test_node_pools import made_pool, ready_cluster
from tests.support import golden
from tests.support.cases import case

pytestmark = pytest.mark.database
GOLDEN = Path("tests/golden/access.txt")
WITH_KEY = [endpoint for endpoint in ENDPOINTS if not endpoint.public]
OF_THINGS = [endpoint for endpoint in WITH_KEY if endpoint.id_prefix and endpoint.for_customers]
"""Endpoints about one thing of an organization."""
CLUSTER = "for all"
NOT_FOUND = ("lease_not_found", "not_found")


@dataclass(frozen=True)
class Who:
    """A subject with one role at one scope."""

    role: Role | None
    kind: ScopeKind
    http: httpx.AsyncClient = field(compare=False)

    def __str__(self) -> str:
        return "no role" if self.role is None else f"{self.role} of {self.kind}"


@dataclass(frozen=True)
class Stage:
    """One organization with two projects, where everybody has a role somewhere; another one, and the platform."""

    everybody: tuple[Who, ...]
    near: Mapping[str, str]
    """Ids of things in the project, the environment and the lease of those whose roles are bound there, by prefix."""
    far: Mapping[str, str]
    """Ids of things in another project of the same organization."""
    foreign: Mapping[str, str]
    """Ids of things in another organization."""


async def _id(http: httpx.AsyncClient, path: str, **body: Any) -> str:
    answer = await http.post(path, json=body)
    assert answer.is_success, answer.text
    made = answer.json()
    return str(made["key"]["id"] if "key" in made else made["id"])


async def _things(http: httpx.AsyncClient, project: str) -> dict[str, str]:
    """A project with one thing of every kind in it, and people of its organization."""
    prj = await _id(http, "/v1/projects", name=project)
    env = await _id(http, f"/v1/projects/{prj}/environments", name="prod")
    user = await _id(http, "/v1/users", email=f"{project}@example.com", name="Ada")
    return {
        "prj": prj,
        "env": env,
        "le": await _id(
            http,
            "/v1/leases",
            sku="h100x1",
            ssh_key_ids=[],
            project=project,
            environment="prod",
            name=project,
        ),
        "ssh": await _id(http, "/v1/ssh-keys", name=project, public_key=SSH_KEY, project=project),
        "user": user,
        "sa": await _id(http, "/v1/service-accounts", name=project),
        "key": await _id(http, "/v1/api-keys", name=project, subject=user),
        "rb": await _id(
            http, "/v1/role-bindings", subject=user, role="viewer", scope={"kind": "project", "id": prj}
        ),
        "qr": await _id(
            http,
            "/v1/quota-requests",
            limits={"gpus": 9},
            reason="a larger model",
            project=project,
            environment="prod",
        ),
        "pf": f"pf_{SOME_ID}",
        "nd": f"nd_{SOME_ID}",
        "np": (await made_pool(http, CLUSTER, name=project, nodes=1, project=project, environment="prod"))[
            "id"
        ],
    }


_QUOTE = text("""
INSERT INTO quotes (id, organization_id, project_id, environment_id, sku, regions, providers, purchase,
  sla, list_nano_per_unit_hour, nano_per_unit_hour, stopped_nano_per_unit_hour, price_book, quoted_at, expires_at)
SELECT :id, organization_id, project_id, environment_id, sku, regions, providers, purchase,
  sla, list_nano_per_unit_hour, nano_per_unit_hour, stopped_nano_per_unit_hour, price_book, created_at,
  created_at + interval '15 minutes'
FROM leases WHERE id = :lease_id
""")


@pytest.fixture(scope="module")
async def stage(shared: Shared) -> Stage:
    await ready_cluster(shared.api, shared.operator, CLUSTER)
    acme, near = shared.acme.http, await _things(shared.acme.http, "near")
    far = await _things(acme, "far")
    foreign = await _things((await shared.api.tenant("foreign")).http, "theirs")
    async with shared.api.owner.db.transaction() as connection:
        for things in (near, far, foreign):  # There is no offer here, so no quote would be kept.
            quote_id = shared.api.world.new_id()
            await write(connection, _QUOTE, id=quote_id, lease_id=UUID(hex=things["le"].removeprefix("le_")))
            things["qt"] = on_wire(Prefix.QUOTE, quote_id)
    scopes = {"project": near["prj"], "environment": near["env"], "lease": near["le"]}

    async def with_role(owner: httpx.AsyncClient, role: Role | None, kind: ScopeKind) -> Who:
        account = await _id(owner, "/v1/service-accounts", name=f"{role} of {kind}")
        if role is not None:
            scope = {"kind": kind.value} | ({"id": scopes[kind]} if kind.value in scopes else {})
            await _id(owner, "/v1/role-bindings", subject=account, role=role.value, scope=scope)
        issued = (await owner.post("/v1/api-keys", json={"name": "k", "subject": account})).json()
        return Who(role, kind, shared.api.client(issued["secret"]))

    everybody = [await with_role(acme, None, ScopeKind.ORGANIZATION)]
    for kind in (ScopeKind.ORGANIZATION, ScopeKind.PROJECT, ScopeKind.ENVIRONMENT, ScopeKind.LEASE):
        everybody += [await with_role(acme, role, kind) for role in roles_at(kind)]
    for role, method, path in (
        (Role.OPERATOR, "GET", "/"),
        (Role.FINANCE, "POST", "/v1/finance/transactions"),
    ):
        client = shared.api.client(shared.operator.secret_for(method, path))
        everybody.append(Who(role, ScopeKind.PLATFORM, client))
    operator = everybody[-2].http
    account = await _id(operator, "/v1/service-accounts", name="auditor")
    await _id(operator, "/v1/role-bindings", subject=account, role="auditor", scope={"kind": "platform"})
    issued = (await operator.post("/v1/api-keys", json={"name": "k", "subject": account})).json()
    everybody.append(Who(Role.AUDITOR, ScopeKind.PLATFORM, shared.api.client(issued["secret"])))
    return Stage(tuple(everybody), near, far, foreign)


def _path(endpoint: Endpoint, things: Mapping[str, str] | None = None) -> str:
    prefix = endpoint.id_prefix
    known = (things or {}).get(prefix or "", f"{prefix}_{SOME_ID}")
    return endpoint.at(things["ssh"] if things and "ssh-keys" in endpoint.path else known)


def _expected(who: Who, endpoint: Endpoint) -> bool:
    """Whether the door has to let somebody pass, told from the roles alone."""
    permission = endpoint.permission
    assert permission is not None
    if permission in EVERYBODYS:
        return True
    if who.role is None or permission not in permissions_of(who.role, who.kind):
        return False
    needed = ORGANIZATION_WIDE.get(endpoint.path, NARROWEST[permission])
    kinds = list(ScopeKind)
    return kinds.index(who.kind) <= kinds.index(needed)


ORGANIZATION_WIDE = dict.fromkeys(
    (
        "/v1/reconciliation",
        "/v1/balance",
        "/v1/sla-report",
        "/v1/balance/alerts",
        "/v1/balance/entries",
        "/v1/balance/entries.csv",
        "/v1/balance/events",
    ),
    ScopeKind.ORGANIZATION,
)
"""Endpoints that need their permission in a wider scope than is the narrowest for it."""


async def test_the_door_lets_everybody_pass_whose_role_allows_it_and_nobody_else(stage: Stage) -> None:
    """An unknown query parameter is refused behind the door, and before anything takes effect."""
    marks: dict[str, str] = {}
    for endpoint in WITH_KEY:
        passes = []
        for who in stage.everybody:
            with case(endpoint, who):
                path = f"{_path(endpoint)}?nonsense=1"
                answer = await who.http.request(endpoint.method, path, json=endpoint.body)
                if _expected(who, endpoint):
                    hold(answer, "unknown_parameter")
                else:
                    hold_denied(answer, endpoint.permission)
                passes.append(answer.status_code == 400)
        marks[str(endpoint)] = _line(stage, passes)
    width = max(map(len, marks))
    lines = [
        "Who passes the door of each endpoint: the widest scopes at which each role does, and `-` who never does.",
        "",
        *(f"{name:{width}}  {line}" for name, line in marks.items()),
    ]
    golden.check(GOLDEN, "\n".join(lines) + "\n")


def _line(stage: Stage, passes: list[bool]) -> str:
    words = []
    for role in ["no role", *Role]:
        kinds = [
            who.kind.value
            for who, passed in zip(stage.everybody, passes, strict=True)
            if passed and (who.role or "no role") == role
        ]
        words.append(f"{role}: {' '.join(kinds) or '-'}")
    return " | ".join(words)


async def test_what_belongs_to_another_organization_is_found_by_nobody(stage: Stage) -> None:
    for endpoint in OF_THINGS:
        for who in stage.everybody:
            with case(endpoint, who):
                answer = await who.http.request(
                    endpoint.method, _path(endpoint, stage.foreign), json=endpoint.body
                )
                if _expected(who, endpoint):
                    hold(answer, *NOT_FOUND)
                else:
                    hold_denied(answer, endpoint.permission)


async def test_what_is_out_of_reach_in_the_own_organization_is_not_found(stage: Stage) -> None:
    narrow = [who for who in stage.everybody if who.kind not in {ScopeKind.ORGANIZATION, ScopeKind.PLATFORM}]
    for endpoint in OF_THINGS:
        for who in narrow:
            if not _expected(who, endpoint):
                continue
            with case(endpoint, who):
                answer = await who.http.request(
                    endpoint.method, _path(endpoint, stage.far), json=endpoint.body
                )
                hold(answer, *NOT_FOUND)


async def test_what_is_in_reach_is_read(stage: Stage) -> None:
    for endpoint in OF_THINGS:
        if (
            endpoint.method != "GET"
            or endpoint.id_prefix in {"pf", "nd"}
            or "{certificate_id}" in endpoint.path
            or "{console_id}" in endpoint.path
            or "{kubeconfig_id}" in endpoint.path
            or "{export_id}" in endpoint.path
            or "{invoice_id}" in endpoint.path
            or "{credit_note_id}" in endpoint.path
            or endpoint.path.endswith("/events")
        ):
            continue
        for who in stage.everybody:
            if who.kind is not ScopeKind.PLATFORM and _expected(who, endpoint):
                with case(endpoint, who):
                    path = _path(endpoint, stage.near).replace("environments/default", "environments/prod")
                    answer = await who.http.get(path)
                    assert answer.status_code == 200, answer.text


LISTS = {
    "/v1/leases": "le",
    "/v1/node-pools": "np",
    "/v1/projects": "prj",
    "/v1/ssh-keys": "ssh",
    "/v1/quota-requests": "qr",
    "/v1/role-bindings": "rb",
    "/v1/users": "user",
    "/v1/service-accounts": "sa",
    "/v1/api-keys": "key",
}


async def test_lists_show_what_is_in_reach_and_nothing_else(stage: Stage) -> None:
    for endpoint in WITH_KEY:
        prefix = LISTS.get(endpoint.path)
        if endpoint.method != "GET" or prefix is None:
            continue
        for who in stage.everybody:
            if not _expected(who, endpoint):
                continue
            with case(endpoint, who):
                shown = {
                    item["id"] for item in (await who.http.get(f"{endpoint.path}?limit=200")).json()["items"]
                }
                assert stage.foreign[prefix] not in shown
                everywhere = who.kind is ScopeKind.ORGANIZATION
                if prefix == "key":
                    everywhere = everywhere and who.role in {Role.OWNER, Role.ADMIN}
                assert (stage.far[prefix] in shown) is everywhere


async def test_a_role_in_one_project_creates_nothing_in_another(stage: Stage) -> None:
    narrow = [who for who in stage.everybody if who.kind in {ScopeKind.PROJECT, ScopeKind.ENVIRONMENT}]
    far = stage.far
    for who in narrow:
        for path, body in (
            ("/v1/leases", {"sku": "h100x1", "ssh_key_ids": [], "project": far["prj"]}),
            ("/v1/leases", {"sku": "h100x1", "ssh_key_ids": []}),
            ("/v1/ssh-keys", {"name": "theirs", "public_key": SSH_KEY, "project": far["prj"]}),
            ("/v1/ssh-keys", {"name": "everywhere", "public_key": SSH_KEY}),
            ("/v1/quota-requests", {"limits": {"gpus": 9}, "reason": "more", "project": far["prj"]}),
            ("/v1/quota-requests", {"limits": {"gpus": 9}, "reason": "more"}),
            (
                "/v1/role-bindings",
                {"subject": far["sa"], "role": "viewer", "scope": {"kind": "project", "id": far["prj"]}},
            ),
            (
                "/v1/role-bindings",
                {"subject": far["sa"], "role": "viewer", "scope": {"kind": "environment", "id": far["env"]}},
            ),
            (
                "/v1/role-bindings",
                {"subject": far["sa"], "role": "viewer", "scope": {"kind": "organization"}},
            ),
        ):
            with case(who, path, str(body)):
                answer = await who.http.post(path, json=body)
                hold(
                    answer,
                    "permission_denied",
                    "project_unknown",
                    "environment_unknown",
                    "not_found",
                    "beyond_your_roles",
                )


def test_every_endpoint_behind_the_door_has_its_line() -> None:
    lines = GOLDEN.read_text().splitlines()
    assert [line.split("  ")[0].strip() for line in lines[2:]] == [str(endpoint) for endpoint in WITH_KEY]
