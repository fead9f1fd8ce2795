"""What a stack may say about itself, checked before anything is built: `infra/stacks/Pulumi.<stack>.yaml`.

A stack that makes no sense is refused with one sentence that says what to change. Nothing here is a secret: secrets are
put into Secrets Manager by hand, and Pulumi never sees them.
"""

import dataclasses
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any, TypeVar, get_type_hints

from infra.services import SERVICES, Runs, Service

Section = TypeVar("Section")

ZONES = 3
OUR_RANGES = {
    "overlays of clusters and private networks": IPv4Network("10.64.0.0/10"),
    "pods of clusters": IPv4Network("10.48.0.0/12"),
    "services of clusters": IPv4Network("10.43.0.0/16"),
}
"""Addresses that the hub and the servers of clusters route elsewhere (docs/decisions/0030)."""
PRIVATE = (IPv4Network("10.0.0.0/8"), IPv4Network("172.16.0.0/12"), IPv4Network("192.168.0.0/16"))
CONNECTIONS_PER_GIB = 100
"""RDS sets max_connections to the memory in bytes divided by 9,531,392, of somewhat less than the nominal memory."""
CONNECTIONS_MAX = 5000
"""... and to no more than this: `LEAST({DBInstanceClassMemory/9531392},5000)`, the default of its parameter groups."""
DATABASE_MEMORY_GIB = {
    "db.t4g.medium": 4, "db.t4g.large": 8, "db.m7g.large": 8, "db.m7g.xlarge": 16,
    "db.r7g.large": 16, "db.r7g.xlarge": 32, "db.r7g.2xlarge": 64,
}  # fmt: skip
TASKS_MAX = 8
"""Cloud Map answers a name with up to eight tasks, so the verifier's ninth would get no work, and Prometheus would miss
some: https://docs.aws.amazon.com/cloud-map/latest/api/API_DnsConfig.html (2026-11-24)."""
FARGATE_MEMORY_MIB = {
    256: {512, 1024, 2048},
    512: {1024 * gib for gib in range(1, 5)},
    1024: {1024 * gib for gib in range(2, 9)},
    2048: {1024 * gib for gib in range(4, 17)},
    4096: {1024 * gib for gib in range(8, 31)},
}
"""The memory that Fargate offers for each number of CPU units: AWS, "Task CPU and memory"."""


class ConfigError(ValueError):
    """A stack's configuration cannot be deployed. The message is one sentence that says what to change."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large the tasks of a service are, and how many there may be."""

    cpu: int
    """Units of 1/1024 vCPU."""
    memory_mib: int
    tasks_min: int
    tasks_max: int


@dataclass(frozen=True, slots=True)
class DatabaseSize:
    instance_class: str
    storage_gib: int
    storage_max_gib: int
    """RDS grows the storage by itself up to here."""
    multi_az: bool
    backup_days: int


@dataclass(frozen=True, slots=True)
class Hosts:
    """The machines of the cluster network: the hub of private networks, and servers of clusters."""

    image: str
    """The AMI of Ubuntu that new hosts start from. Another one changes no host that exists."""
    hub_type: str
    server_type: str
    servers: int
    kubectl_from: tuple[str, ...]
    """Networks whose users reach the Kubernetes API of the servers."""


@dataclass(frozen=True, slots=True)
class SignIn:
    """The OpenID provider that people sign in with (docs/signin.md)."""

    issuer: str
    """Exactly as it names itself in `iss`."""
    client_id: str
    client_secret: bool
    """Whether there is one, in the secret `oidc-client-secret`; a public client has none."""
    email_domains: tuple[str, ...]
    """The domains whose people may sign in; all if there is none."""


@dataclass(frozen=True, slots=True)
class Stack:
    name: str
    account: str
    """The AWS account. Pulumi refuses credentials of any other one."""
    region: str
    zones: tuple[str, ...]
    domain: str
    hosted_zone: str
    """The id of the Route 53 zone that holds the domain."""
    alarm_email: str
    monthly_budget_usd: int
    network: IPv4Network
    cluster_network: IPv4Network
    nat_gateways: int
    image: str
    """The image of all processes, `sha256:...`, in the stack's own registry."""
    protect_data: bool
    database: DatabaseSize
    hosts: Hosts
    services: Mapping[str, Size]
    sign_in: SignIn | None
    """None where the stack has no such section: then there are API keys alone."""


def read(name: str, given: Mapping[str, Any], catalogue: tuple[Service, ...] = SERVICES) -> Stack:
    """Read the configuration of a stack. Raises ConfigError."""
    given = dict(given)
    sizes = given.pop("services", {})
    if not isinstance(sizes, Mapping):
        raise ConfigError(f"stack {name}: services must be a table with a section for each service")
    sign_in = given.pop("sign_in", None)
    sections = {
        "database": _section(DatabaseSize, given.pop("database", {}), "database"),
        "hosts": _section(Hosts, given.pop("hosts", {}), "hosts"),
        "services": {key: _section(Size, value, f"services.{key}") for key, value in sizes.items()},
        "sign_in": None if sign_in is None else _section(SignIn, sign_in, "sign_in"),
    }
    stack = _section(Stack, given | sections | {"name": name}, "the stack")
    for check in (
        _check_place,
        _check_networks,
        _check_services,
        _check_database,
        _check_hosts,
        _check_sign_in,
    ):
        check(stack, catalogue)
    if name == "prod":
        _check_prod(stack)
    return stack


def _section(kind: type[Section], given: object, where: str) -> Section:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} must be a table")
    hints = get_type_hints(kind)
    for key in given:
        if key not in hints:
            near = difflib.get_close_matches(str(key), hints, n=1)
            raise ConfigError(
                f"{where} has no setting {key}" + (f"; did you mean {near[0]}?" if near else "")
            )
    missing = [field.name for field in dataclasses.fields(kind) if field.name not in given]  # type: ignore[arg-type] # every kind is a dataclass
    if missing:
        raise ConfigError(f"{where} lacks {', '.join(missing)}")
    return kind(**{key: _value(value, hints[key], f"{where}: {key}") for key, value in given.items()})


def _value(value: object, hint: object, where: str) -> object:
    if hint is IPv4Network:
        try:
            return IPv4Network(str(value))
        except ValueError:
            raise ConfigError(f"{where} must be a network such as 10.20.0.0/16, not {value}") from None
    if hint == tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise ConfigError(f"{where} must be a list of texts")
        return tuple(value)
    if isinstance(hint, type) and (type(value) is not hint) and not dataclasses.is_dataclass(hint):
        kinds = {int: "a whole number", str: "a text, in quotation marks", bool: "true or false"}
        raise ConfigError(f"{where} must be {kinds[hint]}, not {value!r}")
    return value


def _demand(holds: object, sentence: str) -> None:
    if not holds:
        raise ConfigError(sentence)


def _check_place(stack: Stack, _: tuple[Service, ...]) -> None:
    _demand(
        re.fullmatch(r"[a-z]{3,10}", stack.name),
        f"{stack.name} is no name of a stack; use dev, staging or prod",
    )
    _demand(re.fullmatch(r"\d{12}", stack.account), f"account must have 12 digits, not {stack.account!r}")
    _demand(
        re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d", stack.region),
        f"region must be one of AWS, such as eu-central-1, not {stack.region!r}",
    )
    _demand(
        len(set(stack.zones)) == ZONES
        and all(re.fullmatch(f"{stack.region}[a-z]", one) for one in stack.zones),
        f"zones must be {ZONES} different ones of {stack.region}, such as {stack.region}a",
    )
    _demand(
        re.fullmatch(r"([a-z0-9-]+\.){2,}[a-z]{2,}", stack.domain),
        f"domain must be the API's name, such as api.example.com, not {stack.domain!r}",
    )
    _demand(
        re.fullmatch(r"Z[A-Z0-9]{8,32}", stack.hosted_zone),
        "hosted_zone must be the id of a Route 53 zone, Z...",
    )
    _demand(
        re.fullmatch(r"[^@\s]+@[^@\s]+\.[^@\s]+", stack.alarm_email), "alarm_email must be an email address"
    )
    _demand(stack.monthly_budget_usd > 0, "monthly_budget_usd must be more than 0")
    _demand(
        re.fullmatch(r"sha256:[0-9a-f]{64}", stack.image),
        "image must be a digest, sha256: and 64 hexadecimal digits: a tag can be moved, and a digest cannot",
    )


def _check_networks(stack: Stack, _: tuple[Service, ...]) -> None:
    named = {"network": stack.network, "cluster_network": stack.cluster_network}
    for name, network in named.items():
        _demand(
            any(network.subnet_of(one) for one in PRIVATE),
            f"{name} {network} must be in a private range (RFC 1918)",
        )
        _demand(16 <= network.prefixlen <= 20, f"{name} {network} must be between a /16 and a /20")
        for what, taken in OUR_RANGES.items():
            _demand(
                not network.overlaps(taken),
                f"{name} {network} overlaps {taken}, the range of the {what}; choose another",
            )
    _demand(
        not stack.network.overlaps(stack.cluster_network),
        f"network {stack.network} and cluster_network {stack.cluster_network} overlap, so they cannot be peered",
    )
    _demand(
        stack.nat_gateways in (1, ZONES),
        f"nat_gateways must be 1 (one address, in one zone) or {ZONES} (an address for each zone),"
        f" not {stack.nat_gateways}",
    )


def _check_services(stack: Stack, catalogue: tuple[Service, ...]) -> None:
    known = {service.name for service in catalogue}
    for name in stack.services:
        _demand(
            name in known, f"services.{name}: there is no such service; there are {', '.join(sorted(known))}"
        )
    for service in catalogue:
        _demand(service.name in stack.services, f"services lacks a section {service.name}")
        size, where = stack.services[service.name], f"services.{service.name}"
        _demand(
            size.cpu in FARGATE_MEMORY_MIB,
            f"{where}: cpu must be one of {sorted(FARGATE_MEMORY_MIB)}, not {size.cpu}",
        )
        fits = FARGATE_MEMORY_MIB[size.cpu]
        _demand(
            size.memory_mib in fits,
            f"{where}: memory_mib for cpu {size.cpu} must be from {min(fits)} to {max(fits)}, in steps of Fargate's,"
            f" not {size.memory_mib}",
        )
        if service.runs is Runs.ALWAYS:
            _demand(
                1 <= size.tasks_min <= size.tasks_max <= TASKS_MAX,
                f"{where}: tasks_min must be at least 1, and tasks_max at least tasks_min and at most {TASKS_MAX}:"
                " a private name answers no more tasks",
            )
        else:
            _demand(
                (size.tasks_min, size.tasks_max) == (0, 1),
                f"{where} runs once at a time, when it is started: tasks_min must be 0 and tasks_max 1",
            )


def _check_database(stack: Stack, catalogue: tuple[Service, ...]) -> None:
    size = stack.database
    memory = DATABASE_MEMORY_GIB.get(size.instance_class)
    _demand(
        memory,
        f"database: instance_class must be one of {', '.join(DATABASE_MEMORY_GIB)}, not {size.instance_class}",
    )
    _demand(20 <= size.storage_gib <= size.storage_max_gib <= 65_536,
            "database: storage_gib must be at least 20, and storage_max_gib at least storage_gib")  # fmt: skip
    _demand(
        1 <= size.backup_days <= 35,
        "database: backup_days must be from 1 to 35; without backups there is no way back",
    )
    # While a new version rolls out, each service runs its tasks twice.
    needed = sum(2 * service.connections * stack.services[service.name].tasks_max for service in catalogue)
    offered = min(CONNECTIONS_PER_GIB * (memory or 0), CONNECTIONS_MAX)
    _demand(
        needed <= offered,
        f"database: {size.instance_class} takes about {offered} connections, and all tasks of a roll-out want {needed};"
        " choose a larger class or a smaller tasks_max",
    )


def _check_hosts(stack: Stack, _: tuple[Service, ...]) -> None:
    hosts = stack.hosts
    _demand(
        re.fullmatch(r"ami-[0-9a-f]{8,17}", hosts.image), "hosts: image must be the id of an AMI, ami-..."
    )
    for name in ("hub_type", "server_type"):
        chosen = getattr(hosts, name)
        _demand(
            re.fullmatch(r"[a-z][a-z0-9-]+\.[a-z0-9]+", chosen),
            f"hosts: {name} must be a type of EC2, such as t3.medium",
        )
        # K3s and the hub's collector are shipped for x86-64.
        _demand(
            not re.match(r"[a-z]+\d+g", chosen),
            f"hosts: {name} {chosen} has an ARM processor; hosts must be x86-64",
        )
    _demand(0 <= hosts.servers <= 20, f"hosts: servers must be from 0 to 20, not {hosts.servers}")
    for text in hosts.kubectl_from:
        network = _value(text, IPv4Network, "hosts: kubectl_from")
        _demand(
            isinstance(network, IPv4Network) and network.prefixlen >= 8,
            f"hosts: kubectl_from {text} would open the Kubernetes API to the whole internet; name networks of users",
        )


def _check_sign_in(stack: Stack, _: tuple[Service, ...]) -> None:
    sign_in = stack.sign_in
    if sign_in is None:
        return
    _demand(
        re.fullmatch(r"https://[a-z0-9.-]+(:\d+)?(/[^\s?#{}]*)?", sign_in.issuer),
        f"sign_in: issuer must be the https address that the provider names in its tokens, not {sign_in.issuer!r}",
    )
    _demand(
        re.fullmatch(r"[^\s{}]+", sign_in.client_id),
        "sign_in: client_id must be our client id at the provider",
    )
    for domain in sign_in.email_domains:
        _demand(
            re.fullmatch(r"([a-z0-9-]+\.)+[a-z]{2,}", domain),
            f"sign_in: email_domains must be domains such as example.com, not {domain!r}",
        )


def _check_prod(stack: Stack) -> None:
    for holds, sentence in (
        (stack.protect_data, "protect_data must be true: prod holds data that nobody can make again"),
        (
            stack.database.multi_az,
            "database: multi_az must be true in prod: a lost zone would stop everything",
        ),
        (stack.database.backup_days >= 14, "database: backup_days must be at least 14 in prod"),
        (stack.services["api"].tasks_min >= 2, "services.api: tasks_min must be at least 2 in prod"),
        (
            stack.services["reconciler"].tasks_min >= 2,
            "services.reconciler: tasks_min must be at least 2 in prod",
        ),
    ):
        _demand(holds, sentence)
