"""What honest callers notice of attackers who guess credentials, and how far the attackers get.

A real API process behind a proxy that it trusts, so that requests come from many addresses. Three attacks at once: many
keys from one address, many keys from many addresses, and secrets of service accounts at the token endpoint from the
first address. Honest callers are behind it as well: one whose key was right before, a service account that fetches
tokens, and newcomers, each with a key that is new to the process, who try again when they are refused.
"""

import asyncio
import os
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from benchmarks import api, ground
from benchmarks.load import answer, request
from benchmarks.results import Figure, median, percentile
from control_plane.api.guesses import LANE_PER_SECOND
from control_plane.domain.ids import OrganizationId, ServiceAccountId
from control_plane.domain.role import Role
from control_plane.domain.scope import ORGANIZATION
from control_plane.domain.subject import Subject, SubjectKind
from control_plane.services import api_keys, organizations
from control_plane.world import World

SECONDS = float(os.environ.get("BENCH_SECONDS", "30"))
ATTACKED = "198.51.100.7"
"""The address that attackers and honest callers share."""
ADDRESSES = 200
CONNECTIONS = 48
"""Of each attack."""
ANONYMOUS_RATE, ANONYMOUS_BURST = 20, 100
"""The defaults of an address."""
NEWCOMERS = 60
RETRY_SECONDS = 1.0
"""After which a refused newcomer tries again, as `Retry-After` says."""
HONEST_PER_SECOND = 10


@dataclass
class Seen:
    """The answers to some caller."""

    statuses: Counter[int] = field(default_factory=Counter[int])
    times: list[float] = field(default_factory=list[float])

    def share(self, status: int) -> float:
        return self.statuses[status] / max(1, self.statuses.total()) * 100


class Caller:
    """One connection, opened again when the server closes it."""

    def __init__(self, url: str) -> None:
        self._where = urlsplit(url)
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, wire: bytes) -> int:
        for _ in range(2):
            try:
                if self._open is None:
                    self._open = await asyncio.open_connection(self._where.hostname, self._where.port)
                self._open[1].write(wire)
                return await answer(self._open[0])
            except (OSError, asyncio.IncompleteReadError):
                self._open = None
        return 0


def _keyed(url: str, key: str, address: str) -> bytes:
    return request(
        url, "GET", "/v1/organization", {"Authorization": f"Bearer {key}", "X-Forwarded-For": address}
    )


def _for_a_token(url: str, account: str, key: str, address: str) -> bytes:
    fields = {"grant_type": "client_credentials", "client_id": account, "client_secret": key}
    body = urlencode(fields).encode()
    headers = {
        "X-Forwarded-For": address,
        "Content-Type": "application/x-www-form-urlencoded",
        "Content-Length": str(len(body)),
    }
    return request(url, "POST", "/oauth/token", headers) + body


def _invented() -> str:
    return f"spk_{secrets.token_urlsafe(32)}"


async def _attack(url: str, make: Callable[[], bytes], seen: Seen, until: float) -> None:
    async def connection() -> None:
        caller = Caller(url)
        while time.perf_counter() < until:
            seen.statuses[await caller.send(make())] += 1

    await asyncio.gather(*(connection() for _ in range(CONNECTIONS)))


async def _honest(url: str, wire: bytes, seen: Seen, until: float) -> None:
    """Some requests a second, whether the ones before were answered or not."""
    running = []
    while time.perf_counter() < until:
        running.append(asyncio.create_task(_timed(Caller(url), wire, seen)))
        await asyncio.sleep(1 / HONEST_PER_SECOND)
    await asyncio.gather(*running)


async def _timed(caller: Caller, wire: bytes, seen: Seen) -> None:
    begun = time.perf_counter()
    seen.statuses[await caller.send(wire)] += 1
    seen.times.append(time.perf_counter() - begun)


async def _newcomers(url: str, keys: list[str], waits: list[float], until: float) -> None:
    async def comes(key: str) -> None:
        begun, caller = time.perf_counter(), Caller(url)
        while await caller.send(_keyed(url, key, ATTACKED)) != 200:  # noqa: ASYNC110 - another process answers, which sets no event of ours
            await asyncio.sleep(RETRY_SECONDS)
        waits.append(time.perf_counter() - begun)

    running = []
    for key in keys:
        if time.perf_counter() < until:
            running.append(asyncio.create_task(comes(key)))
            await asyncio.sleep(
                SECONDS / 2 / NEWCOMERS
            )  # In the first half: the second one is for those who wait.
    await asyncio.wait(running, timeout=max(0.0, until - time.perf_counter()))
    for task in running:
        if not task.done():
            waits.append(SECONDS)
            task.cancel()


async def measure() -> list[Figure]:
    url = await ground.empty_database("bench_guessing")
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder) / "token.pem"
        pem = X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        key.write_bytes(pem)
        key.chmod(0o600)
        settings = {
            "SPLITPLANE_TRUSTED_PROXIES": "127.0.0.1",
            "SPLITPLANE_PUBLIC_URL": "http://127.0.0.1:1",
            "SPLITPLANE_TOKEN_KEY_PATH": str(key),
        }
        async with ground.customer(url) as (world, organization_id, secret):
            account, of_account = await _account(world, organization_id)
            new = [await _key(world, organization_id, account) for _ in range(NEWCOMERS)]
            with api.started(url, **settings) as (base, _):
                return await _measure(base, secret, account.on_wire, of_account, new)


async def _account(world: World, organization_id: OrganizationId) -> tuple[Subject, str]:
    async with world.db.transaction(organization_id) as connection:
        made = await organizations.create_first_account(
            connection, world, organization_id, "pipeline", role=Role.OWNER, scope=ORGANIZATION
        )
        issued = await api_keys.issue(connection, world, organization_id, made.subject, name="pipeline")
    return Subject(SubjectKind.SERVICE_ACCOUNT, ServiceAccountId(made.subject.id)), issued.secret


async def _key(world: World, organization_id: OrganizationId, account: Subject) -> str:
    async with world.db.transaction(organization_id) as connection:
        issued = await api_keys.issue(connection, world, organization_id, account, name="new")
    return issued.secret


async def _measure(url: str, familiar: str, account: str, of_account: str, new: list[str]) -> list[Figure]:
    known = [_keyed(url, familiar, ATTACKED), _for_a_token(url, account, of_account, ATTACKED)]
    for wire in known:  # They were right here before the attack.
        if await Caller(url).send(wire) != 200:
            raise RuntimeError("an honest caller was refused before the attack")
    brute, stuffing, token = Seen(), Seen(), Seen()
    honest, pipeline = Seen(), Seen()
    waits: list[float] = []
    addresses = [f"203.0.113.{number}" for number in range(ADDRESSES)]
    until = time.perf_counter() + SECONDS
    await asyncio.gather(
        _attack(url, lambda: _keyed(url, _invented(), ATTACKED), brute, until),
        _attack(url, lambda: _keyed(url, _invented(), secrets.choice(addresses)), stuffing, until),
        _attack(url, lambda: _for_a_token(url, account, _invented(), ATTACKED), token, until),
        _honest(url, known[0], honest, until),
        _honest(url, known[1], pipeline, until),
        _newcomers(url, new, waits, until),
    )
    tried = (brute.statuses[401] + token.statuses[401]) / SECONDS
    bound = LANE_PER_SECOND + ANONYMOUS_RATE + ANONYMOUS_BURST / SECONDS
    return [
        Figure(
            "guesses sent",
            sum(seen.statuses.total() for seen in (brute, stuffing, token)) / SECONDS,
            "per second",
        ),
        Figure("looked up, of one address", tried, "per second", f"<= {bound:.0f}"),
        Figure(
            f"looked up, of {ADDRESSES} addresses",
            stuffing.statuses[401] / SECONDS,
            "per second",
            note=f"each may {ANONYMOUS_RATE} a second and {ANONYMOUS_BURST} at once",
        ),
        *_served("familiar key behind that address", honest, 200),
        *_served("service account's tokens behind that address", pipeline, 200),
        Figure("newcomer gets in, p50", median(waits), "s"),
        Figure("newcomer gets in, p90", percentile(waits, 0.9), "s"),
        Figure("newcomer gets in, slowest", max(waits), "s", note=f"{len(waits)} newcomers"),
    ]


def _served(who: str, seen: Seen, status: int) -> list[Figure]:
    return [
        Figure(f"{who}, served", seen.share(status), "%", ">= 95"),
        Figure(f"{who}, p50", median(seen.times) * 1e3, "ms"),
        Figure(f"{who}, p95", percentile(seen.times, 0.95) * 1e3, "ms"),
    ]
