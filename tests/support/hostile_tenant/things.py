"""What a tenant has that another one could try to reach, planted through the API with a marker in every text."""

import base64
import os
import re
import secrets
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

SECOND = "second "
"""Begins the names of things of which a way uses one up: the tests do it with their own."""

RELEASED = "released "
"""Begins the name of a lease that was released: a stream of its events has an end."""


class NotPlantedError(Exception):
    """The tenant could not make what the attack is about."""


@dataclass(frozen=True)
class Things:
    """The ids, names and secrets of one tenant's things, by what they are: `lease`, `project name`."""

    marker: str
    """A word that is in every text that the tenant has written."""
    values: Mapping[str, str]
    secrets: frozenset[str] = field(default_factory=frozenset[str])
    places: Mapping[str, str] = field(default_factory=dict[str, str])
    """Places in the tenant's lists: cursors, and numbers. They are no secrets."""

    def __getitem__(self, what: str) -> str:
        return self.values[what]

    @property
    def planted(self) -> Iterator[str]:
        """Everything that nobody else may be sent. An id without its prefix would tell as much, and so would a key."""
        yield self.marker
        yield from self.secrets
        for value in self.values.values():
            if value.startswith("ssh-"):
                yield value.split()[1]
            else:
                yield value.rpartition("_")[2] if _is_id(value) else value

    def invented(self) -> "Things":
        """Things of the same shape that nobody has."""
        # Without a word in it: a name that is unknown is answered with own names that are like it.
        marker = secrets.token_hex(32)[: len(self.marker)]
        made = {what: self._invented(value, marker) for what, value in self.values.items()}
        return Things(marker, made, places=self.places)

    def _invented(self, value: str, marker: str) -> str:
        if _is_id(value):
            return f"{value.rpartition('_')[0]}_0190{secrets.token_hex(14)}"
        if value.startswith("ssh-"):
            return ssh_public_key(marker)
        return value.replace(self.marker, marker)

    def and_more(self, secrets: frozenset[str] = frozenset(), **more: str) -> "Things":
        named = {what.replace("_", " "): value for what, value in more.items()}
        return replace(self, values={**self.values, **named}, secrets=self.secrets | secrets)


def _is_id(value: str) -> bool:
    prefix, _, rest = value.rpartition("_")
    return prefix.isalpha() and len(rest) == 32 and set(rest) <= set("0123456789abcdef")


def ssh_public_key(comment: str) -> str:
    """A public key whose private one nobody has."""
    kind = b"ssh-ed25519"
    blob = struct.pack(">I", len(kind)) + kind + struct.pack(">I", 32) + os.urandom(32)
    return f"{kind.decode()} {base64.b64encode(blob).decode()} {comment}"


@dataclass
class _Planter:
    http: httpx.AsyncClient
    marker: str
    values: dict[str, str] = field(default_factory=dict[str, str])
    secrets: set[str] = field(default_factory=set[str])

    async def post(self, path: str, **body: Any) -> dict[str, Any]:
        headers = {"Idempotency-Key": f"{self.marker} {path} {len(self.values)}"}
        answer = await self.http.post(path, json=body or None, headers=headers)
        if not answer.is_success:
            raise NotPlantedError(f"POST {path} was answered {answer.status_code}: {answer.text}")
        made: dict[str, Any] = answer.json()
        return made

    async def make(self, what: str, path: str, **body: Any) -> str:
        made = await self.post(path, **body)
        if "secret" in made:
            self.secrets.add(str(made["secret"]))
            made = made["key"]
        self.values[what] = str(made["id"])
        return self.values[what]

    async def people(self, which: str = "") -> None:
        name = f"{self.marker} {which}".strip()
        email = f"{self.marker}{which.strip()}@example.com"
        self.values[f"{which}email"] = email
        await self.make(f"{which}user", "/v1/users", email=email, name=name)
        self.values[f"{which}account name"] = f"{name} account"
        account = await self.make(f"{which}account", "/v1/service-accounts", name=f"{name} account")
        await self.make(f"{which}key", "/v1/api-keys", name=name, subject=account)
        scope = {"kind": "project", "id": self.values["project"]}
        await self.make(f"{which}binding", "/v1/role-bindings", subject=account, role="viewer", scope=scope)

    async def lease(self, which: str, sku: str) -> None:
        await self.make(
            f"{which}lease",
            "/v1/leases",
            sku=sku,
            name=f"{self.marker} {which}".strip(),
            project=self.values["project name"],
            environment=self.values["environment name"],
            labels={self.marker: self.marker},
        )


async def plant(http: httpx.AsyncClient, marker: str, *, sku: str) -> Things:
    """Make one thing of every kind, and a second one of those that a way uses up. Raises NotPlantedError."""
    planter = _Planter(http, marker)
    values = planter.values
    values["organization"] = str((await http.get("/v1/organization")).json()["id"])
    values["project name"], values["environment name"] = f"{marker} project", f"{marker} environment"
    project = await planter.make("project", "/v1/projects", name=values["project name"])
    environments = f"/v1/projects/{project}/environments"
    await planter.make("environment", environments, name=values["environment name"])
    for which in ("", SECOND):
        values[f"{which}network name"] = f"{marker} {which}network"
        await planter.make(
            f"{which}network", f"/v1/projects/{project}/networks", name=values[f"{which}network name"]
        )
        await planter.people(which)
        await planter.lease(which, sku)
        values[f"{which}public key"] = ssh_public_key(marker)
        await planter.make(
            f"{which}ssh key",
            "/v1/ssh-keys",
            name=f"{marker} {which}".strip(),
            public_key=values[f"{which}public key"],
        )
    await planter.make(
        "quota request",
        "/v1/quota-requests",
        limits={"gpus": 1},
        reason=f"{marker} reason",
        project=project,
    )
    await planter.lease(RELEASED, sku)
    await planter.post(f"/v1/leases/{values[f'{RELEASED}lease']}/release")
    for which in ("", SECOND):
        name, key = f"{marker} {which}replayed", f"{marker} {which}once"
        values[f"{which}replayed name"], values[f"{which}idempotency key"] = name, key
        made = await http.post("/v1/projects", json={"name": name}, headers={"Idempotency-Key": key})
        values[f"{which}replayed project"] = str(made.json()["id"])
    return Things(marker, dict(values), frozenset(planter.secrets))


RECIPIENT = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="
"""The public X25519 key of RFC 7748, 6.1, which kubeconfigs are sealed for."""


async def with_nodes(http: httpx.AsyncClient, things: Things, cluster: str, *, sku: str) -> Things:
    """The things with node pools and kubeconfigs in a shared cluster. The kubeconfigs may not be issued yet."""
    planter = _Planter(http, things.marker, dict(things.values))
    for which in ("", SECOND):
        name = f"{things.marker}-{which.strip() or 'first'}"
        planter.values[f"{which}node pool name"] = name
        body = {"cluster": cluster, "name": name, "sku": sku, "nodes": 1, "project": things["project"]}
        await planter.make(f"{which}node pool", "/v1/node-pools", **body)
        wanted = {"name": name, "public_key": RECIPIENT, "project": things["project"]}
        await planter.make(f"{which}kubeconfig", f"/v1/clusters/{cluster}/kubeconfigs", **wanted)
    pools = (await http.get("/v1/node-pools", params={"limit": 1})).json()["next_cursor"]
    kubeconfigs = (await http.get("/v1/kubeconfigs", params={"limit": 1})).json()["next_cursor"]
    places = {**things.places, "node pools cursor": pools, "kubeconfigs cursor": kubeconfigs}
    return replace(things, values=planter.values, places=places)


async def with_certificate(http: httpx.AsyncClient, things: Things) -> Things:
    """The things with SSH certificates for the lease, which has to be ready."""
    planter = _Planter(http, things.marker, dict(things.values))
    for which in ("", SECOND):
        path = f"/v1/leases/{things['lease']}/ssh-certificates"
        await planter.make(f"{which}certificate", path, key=things["public key"])
    return replace(things, values=planter.values)


async def with_places(http: httpx.AsyncClient, things: Things) -> Things:
    """The things with places in the tenant's lists: read when its audit log has its lines."""
    leases = (await http.get("/v1/leases", params={"limit": 1})).json()["next_cursor"]
    audit = (await http.get("/v1/audit-events", params={"limit": 1})).json()["next_cursor"]
    head = (await http.get("/v1/audit-chain")).json()["sequence"]
    events = await http.get(f"/v1/leases/{things['released lease']}/events", params={"until": "ready"})
    event = re.findall(r"^id: (.*)$", events.text, re.MULTILINE)[-1]
    places = {"leases cursor": leases, "audit cursor": audit, "audit head": str(head), "event id": event}
    return replace(things, places={**things.places, **places})
