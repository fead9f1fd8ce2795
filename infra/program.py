"""A whole deployment: which component gets what from which."""

import pulumi
import pulumi_aws as aws

from infra.components.alarms import Alarms
from infra.components.clusters import ClusterNetwork, Hosts
from infra.components.common import Component, tags
from infra.components.credentials import Credentials
from infra.components.database import Database
from infra.components.doors import PROMETHEUS, Doors
from infra.components.flow_logs import FlowLogs
from infra.components.keys import Keys
from infra.components.load_balancer import LoadBalancer
from infra.components.network import Network
from infra.components.roles import Roles
from infra.components.services import Around, Services, namespace
from infra.components.storage import Storage
from infra.config import Stack
from infra.services import SERVICES, Service
from infra.sign_in import with_sign_in


class Deployment(Component):
    """Everything is below it, and so has its provider: one account, one region, and the tags of the stack."""

    def __init__(self, stack: Stack, catalogue: tuple[Service, ...] = SERVICES) -> None:
        provider = aws.Provider(
            "aws",
            region=stack.region,
            allowed_account_ids=[stack.account],
            default_tags={"tags": tags(stack)},
        )
        super().__init__(stack, "splitplane", options=pulumi.ResourceOptions(providers=[provider]))
        catalogue = with_sign_in(catalogue, stack.sign_in)
        self.roles = Roles(stack, self, catalogue)
        self.keys = Keys(stack, self, catalogue, self.roles)
        self.network = Network(stack, self)
        clusters = ClusterNetwork(stack, self, self.network)
        FlowLogs(
            stack,
            self,
            {"control": self.network.vpc, "clusters": clusters.vpc},
            log_key=self.keys.operations.arn,
        )
        doors = Doors(
            stack, self, catalogue, vpc=self.network.vpc, cluster_vpc=clusters.vpc, peering=clusters.peering
        )
        doors.to_s3(catalogue, self.network.endpoints(doors.groups["endpoints"].id))
        self.storage = Storage(stack, self, data_key=self.keys.exports, image_key=self.keys.operations)
        self.credentials = Credentials(stack, self, catalogue, self.keys.credentials)
        self.database = Database(
            stack,
            self,
            subnets=self.network.private,
            security_group=doors.groups["database"].id,
            key=self.keys.database,
            log_key=self.keys.operations,
        )
        self.hosts = Hosts(
            stack,
            self,
            clusters,
            groups=doors.groups,
            disk_key=self.keys.hosts,
            host_key=self.credentials.of["hub-host-key"],
            credentials_key=self.keys.credentials,
            after=[doors],
        )
        (public,) = [service for service in catalogue if service.public]
        self.balancer = LoadBalancer(
            stack, self, self.network, group=doors.groups["load-balancer"], service=public
        )
        self.services = self._services(catalogue, doors, clusters)
        Alarms(
            stack,
            self,
            key=self.keys.operations,
            balancer=self.balancer,
            database=self.database,
            services=self.services,
            hosts=self.hosts,
            network=self.network,
        )
        self._doors = doors
        self.register_outputs({})

    def _services(self, catalogue: tuple[Service, ...], doors: Doors, clusters: ClusterNetwork) -> Services:
        around = Around(
            network=self.network,
            cluster_vpc=clusters.vpc,
            groups=doors.groups,
            roles=self.roles,
            keys=self.keys,
            credentials=self.credentials,
            storage=self.storage,
            balancer=self.balancer,
            after=[self.network, doors],
            facts={
                "region": self.stack.region,
                "domain": self.stack.domain,
                "namespace": namespace(self.stack),
                "load_balancer_networks": ",".join(self.network.public_blocks),
                "sealing_key": self.keys.sealing.arn,
                "samples_bucket": self.storage.buckets["samples"].bucket,
                "hub_private_address": self.hosts.hub.port.private_ip,
                "hub_public_address": self.hosts.hub.address.public_ip,
            },
        )
        return Services(self.stack, self, catalogue, around)

    def outputs(self) -> dict[str, pulumi.Input[object]]:
        """What an SRE needs to go on with (docs/deploying.md). Nothing in it is a secret."""
        return {
            "api": f"https://{self.stack.domain}",
            "egress_addresses": [address.public_ip for address in self.network.egress],
            "registry": self.storage.images.repository_url,
            "database": self.database.instance.address,
            "cluster": self.services.cluster.name,
            "private_subnets": [subnet.id for subnet in self.network.private],
            "groups_of_tasks": {name: self._doors.groups[name].id for name in self.services.tasks},
            "buckets": {name: bucket.bucket for name, bucket in self.storage.buckets.items()},
            "policy_of_finance": self.storage.finance.arn,
            "group_of_prometheus": self._doors.groups[PROMETHEUS].id,
            "hub": {"public": self.hosts.hub.address.public_ip, "instance": self.hosts.hub.instance.id},
            "servers": [
                {"private": one.port.private_ip, "public": one.address.public_ip, "instance": one.instance.id}
                for one in self.hosts.servers
            ],
        }
