"""What a stack costs a month before anybody uses it, line by line.

List prices of AWS in us-east-1, on demand, in USD, November 2026; other regions cost up to a third more. They were held
against tables that others publish of AWS's price list, and not against the list itself. What depends on use is left
out: requests, bytes through NAT gateways and to the internet, logs, objects, growth of the database, and the metrics
of Container Insights, whose number grows with tasks.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from infra.config import ZONES, Stack
from infra.services import SERVICES, Runs

HOURS = 730
VCPU_HOUR, GIB_HOUR = 0.04048, 0.004445
"""AWS Fargate on x86-64."""
DATABASE_HOUR = {
    "db.t4g.medium": 0.065, "db.t4g.large": 0.129, "db.m7g.large": 0.168, "db.m7g.xlarge": 0.337,
    "db.r7g.large": 0.239, "db.r7g.xlarge": 0.478, "db.r7g.2xlarge": 0.956,
}  # fmt: skip
"""Of one instance; Multi-AZ costs twice as much, for its disk too."""
HOST_HOUR = {
    "t3.small": 0.0208, "t3.medium": 0.0416, "t3.large": 0.0832, "c6i.large": 0.085, "c6i.xlarge": 0.17,
    "m6i.large": 0.096, "m6i.xlarge": 0.192,
}  # fmt: skip
DATABASE_GIB, DISK_GIB = 0.115, 0.08
NAT_HOUR, BALANCER_HOUR, ENDPOINT_HOUR, ADDRESS_HOUR = 0.045, 0.0225, 0.01, 0.005
KEY_MONTH, SECRET_MONTH, FIREWALL_MONTH, RULE_MONTH = 1.0, 0.40, 5.0, 1.0
ALARM_MONTH, ZONE_MONTH, METRIC_MONTH = 0.10, 0.50, 0.30
KEYS, RULES, ENDPOINTS, HOST_DISK_GIB = 6, 4, 5, 40
HOST_METRICS = 7
"""What EC2 reports of a host each minute (detailed monitoring), each of them billed as a metric."""


@dataclass(frozen=True, slots=True)
class Line:
    what: str
    arithmetic: str
    usd_per_month: float


def estimate(stack: Stack) -> list[Line]:
    """A month's bill with all services at their minimum. Raises KeyError for a type that has no price here."""
    return [*_tasks(stack), *_database(stack), *_hosts(stack), *_network(stack), *_watching(stack), *_small()]


def alarms(stack: Stack) -> int:
    """One for each figure of the load balancer and the database, each service, each host and each NAT gateway."""
    always = sum(service.runs is Runs.ALWAYS for service in SERVICES)
    return 8 + always + 1 + stack.hosts.servers + stack.nat_gateways


def _line(what: str, *factors: tuple[float, str]) -> Line:
    total = 1.0
    for value, _ in factors:
        total *= value
    return Line(what, " x ".join(f"{value:g} {unit}".strip() for value, unit in factors), total)


def _tasks(stack: Stack) -> Iterator[Line]:
    for service in SERVICES:
        size = stack.services[service.name]
        if service.runs is Runs.ALWAYS:
            hour = size.cpu / 1024 * VCPU_HOUR + size.memory_mib / 1024 * GIB_HOUR
            yield _line(service.name, (size.tasks_min, "tasks"), (HOURS, "h"), (round(hour, 5), "USD"))


def _database(stack: Stack) -> Iterator[Line]:
    size, copies = stack.database, 2 if stack.database.multi_az else 1
    hour = DATABASE_HOUR[size.instance_class]
    yield _line(f"database {size.instance_class}", (copies, "instances"), (HOURS, "h"), (hour, "USD"))
    yield _line("its storage", (copies, "copies"), (size.storage_gib, "GiB"), (DATABASE_GIB, "USD"))


def _hosts(stack: Stack) -> Iterator[Line]:
    hosts = stack.hosts
    yield _line(f"hub {hosts.hub_type}", (HOURS, "h"), (HOST_HOUR[hosts.hub_type], "USD"))
    if hosts.servers:
        hour = HOST_HOUR[hosts.server_type]
        yield _line(f"servers {hosts.server_type}", (hosts.servers, "hosts"), (HOURS, "h"), (hour, "USD"))
    yield _line("their disks", (1 + hosts.servers, "hosts"), (HOST_DISK_GIB, "GiB"), (DISK_GIB, "USD"))


def _network(stack: Stack) -> Iterator[Line]:
    yield _line("NAT gateways", (stack.nat_gateways, ""), (HOURS, "h"), (NAT_HOUR, "USD"))
    yield _line("load balancer", (HOURS, "h"), (BALANCER_HOUR, "USD"))
    yield _line(
        "private endpoints", (ENDPOINTS, "services"), (ZONES, "zones"), (HOURS, "h"), (ENDPOINT_HOUR, "USD")
    )
    addresses = stack.nat_gateways + ZONES + 1 + stack.hosts.servers
    yield _line("public addresses", (addresses, ""), (HOURS, "h"), (ADDRESS_HOUR, "USD"))


def _watching(stack: Stack) -> Iterator[Line]:
    hosts = 1 + stack.hosts.servers
    yield _line("alarms", (alarms(stack), ""), (ALARM_MONTH, "USD"))
    yield _line("metrics of hosts", (hosts, "hosts"), (HOST_METRICS, "metrics"), (METRIC_MONTH, "USD"))


def _small() -> Iterator[Line]:
    yield _line("private DNS zone", (ZONE_MONTH, "USD"))
    secrets = len({name for one in SERVICES for name in (*one.secrets.values(), *one.files.values())})
    yield _line("KMS keys", (KEYS, ""), (KEY_MONTH, "USD"))
    yield _line("secrets", (secrets, ""), (SECRET_MONTH, "USD"))
    rules = f"{FIREWALL_MONTH:g} USD + {RULES} rules x {RULE_MONTH:g} USD"
    yield Line("firewall", rules, FIREWALL_MONTH + RULES * RULE_MONTH)
