"""The processes that a deployment runs. A new one is a new entry of SERVICES, and a section of each stack.

Everything else follows from the entry: task definition, roles, security group with its rules, log group, name in the
private DNS, scaling, alarms. `{...}` in a value is filled in with the facts of `infra/program.py`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

FILES = "/run/splitplane"
"""Where a task has the secrets that a process reads from files. Another container writes them before it starts."""


class Reach(StrEnum):
    """What a service may open connections to, besides AWS itself through private endpoints."""

    DATABASE = "database"
    ISSUER = "issuer"
    """The OpenID provider that people sign in with, by TLS from the fixed addresses."""
    HUB = "hub"
    SERVERS = "servers"
    INTERNET = "internet"
    """Providers and rented machines, by TCP from the fixed addresses."""


class Runs(StrEnum):
    ALWAYS = "always"
    ONCE = "once"
    """It ends by itself; somebody starts it (docs/deploying.md)."""


class Keys(StrEnum):
    """Which policy for the sealing key a process has: the files of that name in control_plane/vault/policies/."""

    SEALS = "api"
    OPENS = "reconciler"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    name: str
    command: tuple[str, ...]
    runs: Runs = Runs.ALWAYS
    port: int | None = None
    """The port of its listener, if others call it."""
    metrics: int | None = None
    """The port at which Prometheus reads its metrics."""
    health: tuple[int, str] | None = None
    """Port and path that answer 200 while the process is well."""
    public: bool = False
    """Whether the load balancer passes requests on to it. At most one service is."""
    reaches: frozenset[Reach] = frozenset()
    calls: frozenset[str] = frozenset()
    """Services whose port it opens connections to."""
    for_hosts: bool = False
    """Whether the hub and the servers of clusters open connections to its port."""
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Variables, and the secret that each one gets its value from."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Names of files below FILES, and the secret that each one holds."""
    keys: Keys | None = None
    writes: frozenset[str] = frozenset()
    """Buckets that it may put objects into."""
    keeps: frozenset[str] = frozenset()
    """Buckets in which it may put, read, list and delete objects."""
    connections: int = 0
    """Database connections of one task at most."""
    requests_per_task: int | None = None
    """The requests a minute from which on there is another task; all services scale with their CPU as well."""


API = Service(
    name="api",
    command=("python", "-m", "control_plane", "serve"),
    port=8080,
    metrics=9090,
    health=(8080, "/healthz"),
    public=True,
    reaches=frozenset({Reach.DATABASE}),
    environment={
        "SPLITPLANE_LISTEN": "0.0.0.0:8080",
        "SPLITPLANE_METRICS_LISTEN": "0.0.0.0:9090",
        "SPLITPLANE_REGION": "{region}",
        "SPLITPLANE_PUBLIC_URL": "https://{domain}",
        "SPLITPLANE_TRUSTED_PROXIES": "{load_balancer_networks}",
        # Longer than the load balancer's 60 s: it never sends a request on a connection that the API closes.
        "SPLITPLANE_IDLE_SECONDS": "75",
        "SPLITPLANE_KMS_KEY": "{sealing_key}",
    },
    secrets={"SPLITPLANE_DATABASE_URL": "database-api"},
    keys=Keys.SEALS,
    connections=21,
    requests_per_task=30_000,
)
RECONCILER = Service(
    name="reconciler",
    command=("python", "-m", "reconciler", "run"),
    metrics=9465,
    health=(9465, "/healthz"),
    reaches=frozenset({Reach.DATABASE, Reach.HUB, Reach.SERVERS, Reach.INTERNET}),
    calls=frozenset({"verifier"}),
    environment={
        "SPLITPLANE_RECONCILER_METRICS_LISTEN": "0.0.0.0:9465",
        "SPLITPLANE_KMS_KEY": "{sealing_key}",
        "SPLITPLANE_HUB": "{hub_private_address}:22",
        "SPLITPLANE_HUB_OUTSIDE": "{hub_public_address}",
        "SPLITPLANE_INGEST_ADDRESS": "ingest.{namespace}:8441",
        "SPLITPLANE_K3S_FILES": "/opt/k3s",
        "SPLITPLANE_SAMPLE_ARCHIVE": "s3://{samples_bucket}",
        "SPLITPLANE_VERIFIER_ADDRESS": "verifier.{namespace}:7443",
        "SPLITPLANE_VERIFIER_CA": f"{FILES}/verifier-ca.pem",
        "SPLITPLANE_VERIFIER_CALLER_CERTIFICATE": f"{FILES}/caller.pem",
        "SPLITPLANE_VERIFIER_CALLER_KEY": f"{FILES}/caller.key",
    },
    secrets={"SPLITPLANE_DATABASE_URL": "database-reconciler", "SPLITPLANE_HUB_HOST_KEY": "hub-host-key"},
    files={
        "verifier-ca.pem": "verifier-ca",
        "caller.pem": "verifier-caller-certificate",
        "caller.key": "verifier-caller-key",
    },
    keys=Keys.OPENS,
    writes=frozenset({"audit"}),
    keeps=frozenset({"samples"}),
    connections=33,
)
INGEST = Service(
    name="ingest",
    command=("python", "-m", "control_plane.ingest"),
    port=8441,
    metrics=9467,
    health=(8441, "/healthz"),
    reaches=frozenset({Reach.DATABASE}),
    for_hosts=True,
    environment={
        "SPLITPLANE_INGEST_LISTEN": "0.0.0.0:8441",
        "SPLITPLANE_INGEST_METRICS_LISTEN": "0.0.0.0:9467",
    },
    secrets={"SPLITPLANE_DATABASE_URL": "database-ingest"},
    connections=6,
)
VERIFIER = Service(
    name="verifier",
    command=("python", "-m", "data_plane.proof.verifier.service", "serve"),
    port=7443,
    metrics=9466,
    health=(9466, "/metrics"),
    environment={
        "SPLITPLANE_VERIFIER_LISTEN": "0.0.0.0:7443",
        "SPLITPLANE_VERIFIER_METRICS_LISTEN": "0.0.0.0:9466",
        "SPLITPLANE_VERIFIER_CERTIFICATE": f"{FILES}/verifier.pem",
        "SPLITPLANE_VERIFIER_KEY": f"{FILES}/verifier.key",
        "SPLITPLANE_VERIFIER_CLIENT_CA": f"{FILES}/verifier-ca.pem",
    },
    files={
        "verifier-ca.pem": "verifier-ca",
        "verifier.pem": "verifier-certificate",
        "verifier.key": "verifier-key",
    },
)
MIGRATE = Service(
    name="migrate",
    command=("python", "-m", "control_plane", "migrate"),
    runs=Runs.ONCE,
    reaches=frozenset({Reach.DATABASE}),
    secrets={"SPLITPLANE_DATABASE_URL": "database-migrate"},
    connections=2,
)
ADMIN = Service(
    name="admin",
    command=("python", "-m", "control_plane", "--help"),
    runs=Runs.ONCE,
    reaches=frozenset({Reach.DATABASE}),
    environment={"SPLITPLANE_KMS_KEY": "{sealing_key}"},
    secrets={"SPLITPLANE_DATABASE_URL": "database-admin"},
    connections=2,
)
LOGINS = Service(
    name="logins",
    command=("python", "-m", "control_plane", "logins", FILES),
    runs=Runs.ONCE,
    reaches=frozenset({Reach.DATABASE}),
    secrets={"SPLITPLANE_DATABASE_URL": "database-root"},
    files={name: f"database-{name}" for name in ("api", "reconciler", "ingest", "admin", "migrate")},
    connections=1,
)
SERVICES = (API, RECONCILER, INGEST, VERIFIER, MIGRATE, ADMIN, LOGINS)
