"""The control plane's network: private subnets in three zones, one way out by fixed addresses, private ways to AWS."""

import pulumi
import pulumi_aws as aws

from infra.components.common import Component, Document, document
from infra.config import Stack

IMAGES = (
    "ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetAuthorizationToken", "ecr:GetDownloadUrlForLayer",
)  # fmt: skip
ENDPOINTS = {
    "ecr.api": IMAGES,
    "ecr.dkr": IMAGES,
    "kms": ("kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey", "kms:ReEncryptFrom", "kms:ReEncryptTo"),
    "logs": ("logs:CreateLogStream", "logs:PutLogEvents"),
    "secretsmanager": ("secretsmanager:GetSecretValue",),
}
"""The services of AWS with a private way to them, and what tasks do there. What a role may do is its own policy's."""


class Network(Component):
    """Tasks and the database have private addresses only. What they send to the internet leaves by a NAT gateway, whose
    Elastic IP providers can put on their lists; it survives everything but its own deletion, which is protected.
    """

    def __init__(self, stack: Stack, parent: pulumi.Resource) -> None:
        super().__init__(stack, "network", parent)
        self.vpc = aws.ec2.Vpc(
            "control",
            cidr_block=str(stack.network),
            enable_dns_support=True,
            enable_dns_hostnames=True,
            tags={"Name": self.name("control")},
            opts=self.guarded(),  # What is protected is in it, and cannot move.
        )
        # Without rules, so that what is put into it by mistake reaches nothing.
        aws.ec2.DefaultSecurityGroup(
            "control-default", vpc_id=self.vpc.id, ingress=[], egress=[], opts=self.below()
        )
        blocks = [str(block) for block in stack.network.subnets(prefixlen_diff=3)]
        self.private = self._subnets("private", blocks[: len(stack.zones)])
        self.public_blocks = blocks[4 : 4 + len(stack.zones)]
        self.public = self._subnets("public", self.public_blocks)
        self._open_public()
        self.egress = self._gateways()
        self.private_tables = self._private_tables()
        self.register_outputs({"egress_addresses": [address.public_ip for address in self.egress]})

    def _subnets(self, kind: str, blocks: list[str]) -> list[aws.ec2.Subnet]:
        return [
            aws.ec2.Subnet(
                f"{kind}-{zone}",
                vpc_id=self.vpc.id,
                availability_zone=zone,
                cidr_block=block,
                map_public_ip_on_launch=False,
                tags={"Name": self.name(f"{kind}-{zone}")},
                opts=self.below(),
            )
            for zone, block in zip(self.stack.zones, blocks, strict=True)
        ]

    def _open_public(self) -> None:
        """The public subnets hold the load balancer and the NAT gateways, and nothing else."""
        self.internet = aws.ec2.InternetGateway("control", vpc_id=self.vpc.id, opts=self.below())
        table = aws.ec2.RouteTable("public", vpc_id=self.vpc.id, opts=self.below())
        aws.ec2.Route(
            "public-internet",
            route_table_id=table.id,
            destination_cidr_block="0.0.0.0/0",
            gateway_id=self.internet.id,
            opts=self.below(),
        )
        for zone, subnet in zip(self.stack.zones, self.public, strict=True):
            aws.ec2.RouteTableAssociation(
                f"public-{zone}", route_table_id=table.id, subnet_id=subnet.id, opts=self.below()
            )

    def _gateways(self) -> list[aws.ec2.Eip]:
        addresses, self.gateways = [], []
        for zone, subnet in list(zip(self.stack.zones, self.public, strict=True))[: self.stack.nat_gateways]:
            address = aws.ec2.Eip(
                f"egress-{zone}",
                domain="vpc",
                tags={"Name": self.name(f"egress-{zone}")},
                opts=self.guarded(),
            )
            addresses.append(address)
            self.gateways.append(
                aws.ec2.NatGateway(
                    f"egress-{zone}",
                    allocation_id=address.id,
                    subnet_id=subnet.id,
                    tags={"Name": self.name(f"egress-{zone}")},
                    opts=self.below(depends_on=[self.internet]),
                )
            )
        return addresses

    def _private_tables(self) -> list[aws.ec2.RouteTable]:
        tables = []
        for number, (zone, subnet) in enumerate(zip(self.stack.zones, self.private, strict=True)):
            table = aws.ec2.RouteTable(f"private-{zone}", vpc_id=self.vpc.id, opts=self.below())
            aws.ec2.Route(
                f"private-{zone}-internet",
                route_table_id=table.id,
                destination_cidr_block="0.0.0.0/0",
                nat_gateway_id=self.gateways[number % len(self.gateways)].id,
                opts=self.below(),
            )
            aws.ec2.RouteTableAssociation(
                f"private-{zone}", route_table_id=table.id, subnet_id=subnet.id, opts=self.below()
            )
            tables.append(table)
        return tables

    def endpoints(self, security_group: pulumi.Input[str]) -> pulumi.Output[str]:
        """Private ways to AWS. Returns the prefix list of S3, which holds the layers of images too.

        They take credentials of this account alone: with others, a task in the hands of an attacker would have
        a way out, to a bucket or a log of the attacker's. Policies of endpoints permit principals by a condition:
        https://docs.aws.amazon.com/vpc/latest/privatelink/vpc-endpoints-access.html (2026-11-28).
        """
        for service, actions in ENDPOINTS.items():
            aws.ec2.VpcEndpoint(
                service.replace(".", "-"),
                vpc_id=self.vpc.id,
                service_name=f"com.amazonaws.{self.stack.region}.{service}",
                vpc_endpoint_type="Interface",
                private_dns_enabled=True,
                subnet_ids=[subnet.id for subnet in self.private],
                security_group_ids=[security_group],
                policy=document(self._of_this_account(list(actions), "*")),
                opts=self.below(),
            )
        gateway = aws.ec2.VpcEndpoint(
            "s3",
            vpc_id=self.vpc.id,
            service_name=f"com.amazonaws.{self.stack.region}.s3",
            vpc_endpoint_type="Gateway",
            route_table_ids=[table.id for table in self.private_tables],
            policy=document(self._into_own_buckets(), self._layers_of_images()),
            opts=self.below(),
        )
        return pulumi.Output.from_input(gateway.prefix_list_id)

    def _of_this_account(self, actions: list[str], resource: str, **more: str) -> Document:
        return {
            "Effect": "Allow",
            "Principal": "*",
            "Action": actions,
            "Resource": resource,
            "Condition": {"StringEquals": {"aws:PrincipalAccount": self.stack.account, **more}},
        }

    def _into_own_buckets(self) -> Document:
        buckets = f"arn:aws:s3:::{self.name('*/*')}"
        owner = {"aws:ResourceAccount": self.stack.account}
        return self._of_this_account(["s3:PutObject"], buckets, **owner)

    def _layers_of_images(self) -> Document:
        """ECR keeps layers in a bucket of AWS's, and signs the addresses in it itself:
        https://docs.aws.amazon.com/AmazonECR/latest/userguide/vpc-endpoints.html (2026-11-28).
        """
        layers = f"arn:aws:s3:::prod-{self.stack.region}-starport-layer-bucket/*"
        return {"Effect": "Allow", "Principal": "*", "Action": ["s3:GetObject"], "Resource": layers}
