"""The cluster network: the hub of private networks, and the hosts that clusters' servers run on.

It is a VPC of its own, peered with the control plane's. Rented machines open tunnels to it from anywhere, so it is the
part of a deployment that attackers see most; from it, nothing of the control plane can be reached but the process that
takes samples of machines, and the names of its services.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.components.common import Component, document, trust
from infra.components.hosts import cloud_config
from infra.components.network import Network
from infra.config import Stack


class ClusterNetwork(Component):
    def __init__(self, stack: Stack, parent: pulumi.Resource, control: Network) -> None:
        super().__init__(stack, "cluster-network", parent)
        self.vpc = aws.ec2.Vpc(
            "clusters",
            cidr_block=str(stack.cluster_network),
            enable_dns_support=True,
            enable_dns_hostnames=True,
            tags={"Name": self.name("clusters")},
            opts=self.guarded(),  # What is protected is in it, and cannot move.
        )
        aws.ec2.DefaultSecurityGroup(
            "clusters-default", vpc_id=self.vpc.id, ingress=[], egress=[], opts=self.below()
        )
        self.peering = aws.ec2.VpcPeeringConnection(
            "control",
            vpc_id=control.vpc.id,
            peer_vpc_id=self.vpc.id,
            auto_accept=True,
            tags={"Name": self.name("control-clusters")},
            opts=self.below(),
        )
        internet = aws.ec2.InternetGateway("clusters", vpc_id=self.vpc.id, opts=self.below())
        table = aws.ec2.RouteTable("hosts", vpc_id=self.vpc.id, opts=self.below())
        for name, block, target in (
            ("internet", "0.0.0.0/0", {"gateway_id": internet.id}),
            ("control", str(stack.network), {"vpc_peering_connection_id": self.peering.id}),
        ):
            aws.ec2.Route(
                f"hosts-{name}",
                route_table_id=table.id,
                destination_cidr_block=block,
                **target,
                opts=self.below(),
            )
        for zone, private in zip(stack.zones, control.private_tables, strict=True):
            aws.ec2.Route(
                f"{zone}-to-hosts",
                route_table_id=private.id,
                destination_cidr_block=str(stack.cluster_network),
                vpc_peering_connection_id=self.peering.id,
                opts=self.below(),
            )
        self.subnets = self._subnets(table)
        self.register_outputs({})

    def _subnets(self, table: aws.ec2.RouteTable) -> list[aws.ec2.Subnet]:
        blocks = list(self.stack.cluster_network.subnets(prefixlen_diff=3))
        subnets = []
        for zone, block in zip(self.stack.zones, blocks, strict=False):
            subnet = aws.ec2.Subnet(
                f"hosts-{zone}",
                vpc_id=self.vpc.id,
                availability_zone=zone,
                cidr_block=str(block),
                map_public_ip_on_launch=False,
                tags={"Name": self.name(f"hosts-{zone}")},
                opts=self.below(),
            )
            aws.ec2.RouteTableAssociation(
                f"hosts-{zone}", route_table_id=table.id, subnet_id=subnet.id, opts=self.below()
            )
            subnets.append(subnet)
        return subnets


@dataclass(frozen=True, slots=True)
class HostKind:
    group: str
    """Its security group, and the principal that it trusts."""
    type: str


@dataclass(frozen=True, slots=True)
class Host:
    name: str
    port: aws.ec2.NetworkInterface
    address: aws.ec2.Eip
    instance: aws.ec2.Instance


class Hosts(Component):
    """Each host has an address that outlives its instance. Nobody has an SSH key: the reconciler logs in with
    certificates, and people through Session Manager.
    """

    def __init__(
        self,
        stack: Stack,
        parent: pulumi.Resource,
        network: ClusterNetwork,
        *,
        groups: dict[str, aws.ec2.SecurityGroup],
        disk_key: aws.kms.Key,
        host_key: aws.secretsmanager.Secret,
        credentials_key: aws.kms.Key,
        after: Sequence[pulumi.Resource],
    ) -> None:
        """`after`: what lets a host reach the internet, from which it installs packages at its first start."""
        super().__init__(stack, "hosts", parent)
        self._network, self._groups, self._disk_key = network, groups, disk_key
        self._after = [network, *after]
        publish = {
            "Effect": "Allow",
            "Action": "secretsmanager:PutSecretValue",
            "Resource": host_key.arn,
        }
        encrypt = {
            "Effect": "Allow",
            "Action": ["kms:Decrypt", "kms:GenerateDataKey"],
            "Resource": credentials_key.arn,
            "Condition": {"StringEquals": {"kms:EncryptionContext:SecretARN": host_key.arn}},
        }
        profile = self._profile("hub", publish, encrypt)
        first_start = pulumi.Output.from_input(host_key.arn).apply(
            lambda arn: cloud_config("hub", stack.region, arn)
        )
        self.hub = self._host("hub", 0, HostKind("hub", stack.hosts.hub_type), profile, first_start)
        kind, profile = HostKind("servers", stack.hosts.server_type), self._profile("servers")
        plain = cloud_config("servers", stack.region, "")
        self.servers = [
            self._host(f"server-{number + 1}", number, kind, profile, plain)
            for number in range(stack.hosts.servers)
        ]
        self.register_outputs({})

    def _profile(self, name: str, *statements: dict[str, object]) -> aws.iam.InstanceProfile:
        role = aws.iam.Role(
            name, name=self.name(name), assume_role_policy=trust("ec2.amazonaws.com"), opts=self.below()
        )
        rights: list[pulumi.Resource] = [
            aws.iam.RolePolicyAttachment(
                f"{name}-sessions",
                role=role.name,
                policy_arn="arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore",
                opts=self.below(),
            )
        ]
        if statements:
            policy = document(*statements)
            rights.append(aws.iam.RolePolicy(name, role=role.id, policy=policy, opts=self.below()))
        # A host uses its rights once, at its first start.
        return aws.iam.InstanceProfile(
            name, name=self.name(name), role=role.name, opts=self.below(depends_on=rights)
        )

    def _host(
        self,
        name: str,
        number: int,
        kind: HostKind,
        profile: aws.iam.InstanceProfile,
        first_start: pulumi.Input[str],
    ) -> Host:
        port = aws.ec2.NetworkInterface(
            name,
            subnet_id=self._network.subnets[number % len(self._network.subnets)].id,
            security_groups=[self._groups[kind.group].id],
            description=self.name(name),
            opts=self.guarded(),
        )
        address = aws.ec2.Eip(
            name,
            domain="vpc",
            network_interface=port.id,
            tags={"Name": self.name(name)},
            opts=self.guarded(depends_on=[self._network]),  # AWS wants an internet gateway there.
        )
        instance = aws.ec2.Instance(
            name,
            ami=self.stack.hosts.image,
            instance_type=kind.type,
            primary_network_interface=aws.ec2.InstancePrimaryNetworkInterfaceArgs(
                network_interface_id=port.id
            ),
            iam_instance_profile=profile.name,
            metadata_options=aws.ec2.InstanceMetadataOptionsArgs(
                http_tokens="required", http_put_response_hop_limit=1
            ),
            root_block_device=aws.ec2.InstanceRootBlockDeviceArgs(
                encrypted=True,
                kms_key_id=self._disk_key.arn,
                volume_type="gp3",
                volume_size=40,
                delete_on_termination=not self.stack.protect_data,
            ),
            user_data=first_start,
            disable_api_termination=self.stack.protect_data,
            maintenance_options=aws.ec2.InstanceMaintenanceOptionsArgs(auto_recovery="default"),
            monitoring=True,
            volume_tags={"Name": self.name(name)},
            tags={"Name": self.name(name)},
            # A newer image, or what a new host would be told at its first start, is no reason to replace one that runs.
            opts=self.guarded(depends_on=[address, *self._after], ignore_changes=["ami", "userData"]),
        )
        return Host(name, port, address, instance)
