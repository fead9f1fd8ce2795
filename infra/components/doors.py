"""Who may open connections to whom: the security groups of both networks, with one rule for each way.

The whole table is `Doors.__init__`. A way has two rules, one at each end, and what has no way in the table is closed.
"""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.components.common import Component
from infra.config import Stack
from infra.services import Reach, Service

EVERYWHERE = "0.0.0.0/0"
HUB_PORTS = (20_000, 28_191)
"""WireGuard of private networks and of relays (docs/operating.md)."""
SERVER_PORT = 51_820
KUBERNETES_PORT = 6443
PROMETHEUS = "prometheus"
"""Whatever has this group may read the metrics of every process (docs/deploying.md)."""
FIXED = ("load-balancer", "database", "endpoints", PROMETHEUS)
CLUSTER = ("hub", "servers")


@dataclass(frozen=True, slots=True)
class Ports:
    protocol: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.protocol}-{self.first}" + (f"-{self.last}" if self.last != self.first else "")


def tcp(first: int, last: int | None = None) -> Ports:
    return Ports("tcp", first, last or first)


def udp(first: int, last: int | None = None) -> Ports:
    return Ports("udp", first, last or first)


class Doors(Component):
    def __init__(
        self,
        stack: Stack,
        parent: pulumi.Resource,
        catalogue: tuple[Service, ...],
        *,
        vpc: aws.ec2.Vpc,
        cluster_vpc: aws.ec2.Vpc,
        peering: aws.ec2.VpcPeeringConnection,
    ) -> None:
        super().__init__(stack, "doors", parent)
        # A rule may name a group of the other network only once the networks are peered.
        self._peering = peering
        services = [service.name for service in catalogue]
        self.groups = {name: self._group(name, vpc) for name in (*FIXED, *services)}
        self.groups |= {name: self._group(name, cluster_vpc) for name in CLUSTER}
        self._from_internet("load-balancer", tcp(443), EVERYWHERE)
        self._from_internet("hub", udp(*HUB_PORTS), EVERYWHERE)
        self._from_internet("servers", udp(SERVER_PORT), EVERYWHERE)
        for network in stack.hosts.kubectl_from:
            self._from_internet("servers", tcp(KUBERNETES_PORT), network)
        for host in CLUSTER:  # Their tunnels end anywhere, and they install packages.
            for ports in (udp(1, 65_535), tcp(80), tcp(443)):
                self._to_internet(host, ports)
        for service in catalogue:
            self._ways_to(service)
            self._ways_from(service, {one.name: one for one in catalogue})
        self.register_outputs({})

    def _ways_to(self, service: Service) -> None:
        callers = [*(["load-balancer"] if service.public else []), *(CLUSTER if service.for_hosts else [])]
        if service.port:
            for caller in callers:
                self._way(caller, service.name, tcp(service.port))
        if service.metrics:
            self._way(PROMETHEUS, service.name, tcp(service.metrics))

    def _ways_from(self, service: Service, catalogue: dict[str, Service]) -> None:
        self._way(service.name, "endpoints", tcp(443))
        if Reach.DATABASE in service.reaches:
            self._way(service.name, "database", tcp(5432))
        if Reach.ISSUER in service.reaches:  # Its addresses are not known, and change.
            self._to_internet(service.name, tcp(443))
        for name in sorted(service.calls):
            port = catalogue[name].port
            if port is None:
                raise ValueError(f"{service.name} calls {name}, which has no port")
            self._way(service.name, name, tcp(port))
        if Reach.HUB in service.reaches:
            self._way(service.name, "hub", tcp(22))
        if Reach.SERVERS in service.reaches:
            self._way(service.name, "servers", tcp(22))
            self._way(service.name, "servers", tcp(KUBERNETES_PORT))
        if Reach.INTERNET in service.reaches:
            # Providers choose the port at which a machine's sshd is reached.
            self._to_internet(service.name, tcp(1, 65_535))

    def to_s3(self, catalogue: tuple[Service, ...], prefix_list: pulumi.Input[str]) -> None:
        """Every task loads the layers of its image from S3."""
        for service in catalogue:
            aws.vpc.SecurityGroupEgressRule(
                f"{service.name}-to-s3",
                security_group_id=self.groups[service.name].id,
                prefix_list_id=prefix_list,
                ip_protocol="tcp",
                from_port=443,
                to_port=443,
                description="images and objects in S3",
                opts=self.below(),
            )

    def _group(self, name: str, vpc: aws.ec2.Vpc) -> aws.ec2.SecurityGroup:
        # Without rules of its own: those below are all there are.
        return aws.ec2.SecurityGroup(
            name,
            name=self.name(name),
            description=f"splitplane {self.stack.name}: {name}",
            vpc_id=vpc.id,
            tags={"Name": self.name(name)},
            opts=self.below(),
        )

    def _way(self, source: str, target: str, ports: Ports) -> None:
        aws.vpc.SecurityGroupEgressRule(
            f"{source}-to-{target}-{ports}",
            security_group_id=self.groups[source].id,
            referenced_security_group_id=self.groups[target].id,
            ip_protocol=ports.protocol,
            from_port=ports.first,
            to_port=ports.last,
            description=f"to {target}",
            opts=self.below(depends_on=[self._peering]),
        )
        aws.vpc.SecurityGroupIngressRule(
            f"{target}-from-{source}-{ports}",
            security_group_id=self.groups[target].id,
            referenced_security_group_id=self.groups[source].id,
            ip_protocol=ports.protocol,
            from_port=ports.first,
            to_port=ports.last,
            description=f"from {source}",
            opts=self.below(depends_on=[self._peering]),
        )

    def _from_internet(self, target: str, ports: Ports, network: str) -> None:
        place = "internet" if network == EVERYWHERE else network.replace("/", "-")
        aws.vpc.SecurityGroupIngressRule(
            f"{target}-from-{place}-{ports}",
            security_group_id=self.groups[target].id,
            cidr_ipv4=network,
            ip_protocol=ports.protocol,
            from_port=ports.first,
            to_port=ports.last,
            description=f"from {place}",
            opts=self.below(),
        )

    def _to_internet(self, source: str, ports: Ports) -> None:
        aws.vpc.SecurityGroupEgressRule(
            f"{source}-to-internet-{ports}",
            security_group_id=self.groups[source].id,
            cidr_ipv4=EVERYWHERE,
            ip_protocol=ports.protocol,
            from_port=ports.first,
            to_port=ports.last,
            description="to the internet",
            opts=self.below(),
        )
