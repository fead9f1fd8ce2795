"""ECS on Fargate: one service, or one task to start by hand, for each entry of the catalogue."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.components.common import Component, Document, document
from infra.components.containers import containers
from infra.components.credentials import Credentials
from infra.components.keys import Keys, policy_text
from infra.components.load_balancer import LoadBalancer
from infra.components.network import Network
from infra.components.roles import Roles
from infra.components.storage import Storage
from infra.config import Stack
from infra.services import Runs, Service

LOG_DAYS = 90
TARGET = aws.appautoscaling.PolicyTargetTrackingScalingPolicyConfigurationArgs
METRIC = aws.appautoscaling.PolicyTargetTrackingScalingPolicyConfigurationPredefinedMetricSpecificationArgs


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What services are put into."""

    network: Network
    cluster_vpc: aws.ec2.Vpc
    groups: Mapping[str, aws.ec2.SecurityGroup]
    roles: Roles
    keys: Keys
    credentials: Credentials
    storage: Storage
    balancer: LoadBalancer
    after: Sequence[pulumi.Resource]
    """What lets a task reach AWS, from which it gets its image and its secrets."""
    facts: Mapping[str, pulumi.Input[str]]
    """What `{...}` in the environment of a service stands for."""


class Services(Component):
    def __init__(
        self, stack: Stack, parent: pulumi.Resource, catalogue: tuple[Service, ...], around: Around
    ) -> None:
        super().__init__(stack, "services", parent)
        self._around = around
        self.cluster = aws.ecs.Cluster(
            "cluster",
            name=self.name("services"),
            settings=[aws.ecs.ClusterSettingArgs(name="containerInsights", value="enabled")],
            opts=self.below(),
        )
        self.namespace = aws.servicediscovery.PrivateDnsNamespace(
            "names", name=namespace(stack), vpc=around.network.vpc.id, opts=self.below()
        )
        # The hub and the servers of clusters find the services that they call by their names, too.
        aws.route53.ZoneAssociation(
            "clusters", zone_id=self.namespace.hosted_zone, vpc_id=around.cluster_vpc.id, opts=self.below()
        )
        self.tasks, self.running = {}, {}
        self._rights: dict[str, list[pulumi.Resource]] = {}
        for service in catalogue:
            self.tasks[service.name] = self._task(service)
            if service.runs is Runs.ALWAYS:
                self.running[service.name] = self._keep_running(service, self.tasks[service.name])
        self.register_outputs({"cluster": self.cluster.name})

    def _task(self, service: Service) -> aws.ecs.TaskDefinition:
        log = aws.cloudwatch.LogGroup(
            service.name,
            name=self.name(service.name),
            retention_in_days=LOG_DAYS,
            kms_key_id=self._around.keys.operations.arn,
            opts=self.below(),
        )
        self._rights[service.name] = [self._permit_start(service, log), *self._permit_task(service)]
        size, roles = self.stack.services[service.name], self._around.roles.of[service.name]
        image = pulumi.Output.concat(self._around.storage.images.repository_url, "@", self.stack.image)
        secrets = {name: secret.arn for name, secret in self._around.credentials.of.items()}
        return aws.ecs.TaskDefinition(
            service.name,
            family=self.name(service.name),
            skip_destroy=True,  # ECS goes back to the one before when a new version does not become healthy.
            requires_compatibilities=["FARGATE"],
            network_mode="awsvpc",
            cpu=str(size.cpu),
            memory=str(size.memory_mib),
            runtime_platform=aws.ecs.TaskDefinitionRuntimePlatformArgs(
                cpu_architecture="X86_64", operating_system_family="LINUX"
            ),
            task_role_arn=roles.task.arn,
            execution_role_arn=roles.start.arn,
            volumes=[
                aws.ecs.TaskDefinitionVolumeArgs(name=name)
                for name in ("tmp", *(["files"] if service.files else []))
            ],
            container_definitions=pulumi.Output.all(
                image=image, log=log.name, secrets=secrets, facts=dict(self._around.facts)
            ).apply(lambda known: containers(service, region=self.stack.region, **known)),
            opts=self.below(),
        )

    def _permit_start(self, service: Service, log: aws.cloudwatch.LogGroup) -> pulumi.Resource:
        names = {*service.secrets.values(), *service.files.values()}
        own = [self._around.credentials.of[name].arn for name in sorted(names)]
        statements: list[Document] = [
            {"Effect": "Allow", "Action": "ecr:GetAuthorizationToken", "Resource": "*"},
            {
                "Effect": "Allow",
                "Action": [
                    "ecr:BatchCheckLayerAvailability",
                    "ecr:BatchGetImage",
                    "ecr:GetDownloadUrlForLayer",
                ],
                "Resource": self._around.storage.images.arn,
            },
            {
                "Effect": "Allow",
                "Action": ["logs:CreateLogStream", "logs:PutLogEvents"],
                "Resource": pulumi.Output.concat(log.arn, ":*"),
            },
            {"Effect": "Allow", "Action": "secretsmanager:GetSecretValue", "Resource": own},
            {
                "Effect": "Allow",
                "Action": "kms:Decrypt",
                "Resource": self._around.keys.credentials.arn,
                "Condition": {"StringEquals": {"kms:EncryptionContext:SecretARN": own}},
            },
        ]
        right: pulumi.Resource = aws.iam.RolePolicy(
            f"{service.name}-start",
            role=self._around.roles.of[service.name].start.id,
            policy=document(*statements),
            opts=self.below(),
        )
        return right

    def _permit_task(self, service: Service) -> Iterator[pulumi.Resource]:
        """A process that calls nothing of AWS has a role without a right."""
        if service.keys:
            keys = service.keys
            arn = pulumi.Output.from_input(self._around.keys.sealing.arn)
            yield aws.iam.RolePolicy(
                f"{service.name}-sealing",
                role=self._around.roles.of[service.name].task.id,
                policy=arn.apply(lambda key: policy_text(keys, key, self.stack.account)),
                opts=self.below(),
            )
        statements = [*self._on_objects(service.writes, "s3:PutObject")]
        if service.keeps:
            statements += self._on_objects(service.keeps, "s3:PutObject", "s3:GetObject", "s3:DeleteObject")
            # Without this, S3 answers that nobody may read an object that is not there.
            kept = [self._around.storage.buckets[name].arn for name in sorted(service.keeps)]
            statements.append({"Effect": "Allow", "Action": "s3:ListBucket", "Resource": kept})
        if not statements:
            return
        encrypt = {
            "Effect": "Allow",
            "Action": ["kms:GenerateDataKey", *(["kms:Decrypt"] if service.keeps else [])],
            "Resource": self._around.keys.exports.arn,
            "Condition": {"StringEquals": {"kms:ViaService": f"s3.{self.stack.region}.amazonaws.com"}},
        }
        yield aws.iam.RolePolicy(
            f"{service.name}-buckets",
            role=self._around.roles.of[service.name].task.id,
            policy=document(*statements, encrypt),
            opts=self.below(),
        )

    def _on_objects(self, buckets: frozenset[str], *actions: str) -> list[Document]:
        """The right to do this to objects in these buckets; nothing without a bucket."""
        arns = [self._around.storage.buckets[name].arn for name in sorted(buckets)]
        on = [pulumi.Output.concat(arn, "/*") for arn in arns]
        return [{"Effect": "Allow", "Action": list(actions), "Resource": on}] if on else []

    def _keep_running(self, service: Service, task: aws.ecs.TaskDefinition) -> aws.ecs.Service:
        balancer, size = self._around.balancer, self.stack.services[service.name]
        running = aws.ecs.Service(
            service.name,
            name=service.name,
            cluster=self.cluster.arn,
            task_definition=task.arn,
            launch_type="FARGATE",
            desired_count=size.tasks_min,
            deployment_minimum_healthy_percent=100,
            deployment_maximum_percent=200,
            deployment_circuit_breaker=aws.ecs.ServiceDeploymentCircuitBreakerArgs(
                enable=True, rollback=True
            ),
            enable_execute_command=False,
            propagate_tags="SERVICE",
            network_configuration=aws.ecs.ServiceNetworkConfigurationArgs(
                subnets=[subnet.id for subnet in self._around.network.private],
                security_groups=[self._around.groups[service.name].id],
                assign_public_ip=False,
            ),
            service_registries=aws.ecs.ServiceServiceRegistriesArgs(registry_arn=self._dns_name(service).arn),
            load_balancers=[
                aws.ecs.ServiceLoadBalancerArgs(
                    target_group_arn=balancer.targets.arn,
                    container_name=service.name,
                    container_port=service.port,
                )
            ]
            if service.public
            else [],
            health_check_grace_period_seconds=60 if service.public else None,
            # A group of targets can be used once a listener has it, and a task without its rights or its way out only
            # fails. The number of tasks is the scaling's, below.
            opts=self.below(
                depends_on=[balancer.listener, *self._around.after, *self._rights[service.name]],
                ignore_changes=["desiredCount"],
            ),
        )
        self._scale(service, running)
        return running

    def _dns_name(self, service: Service) -> aws.servicediscovery.Service:
        return aws.servicediscovery.Service(
            service.name,
            name=service.name,
            dns_config=aws.servicediscovery.ServiceDnsConfigArgs(
                namespace_id=self.namespace.id,
                routing_policy="MULTIVALUE",
                dns_records=[aws.servicediscovery.ServiceDnsConfigDnsRecordArgs(type="A", ttl=10)],
            ),
            opts=self.below(),
        )

    def _scale(self, service: Service, running: aws.ecs.Service) -> None:
        size = self.stack.services[service.name]
        target = aws.appautoscaling.Target(
            service.name,
            service_namespace="ecs",
            scalable_dimension="ecs:service:DesiredCount",
            resource_id=pulumi.Output.concat("service/", self.cluster.name, "/", running.name),
            min_capacity=size.tasks_min,
            max_capacity=size.tasks_max,
            opts=self.below(),
        )
        signals = {"cpu": (60, METRIC(predefined_metric_type="ECSServiceAverageCPUUtilization"))}
        if service.requests_per_task and service.public:
            balancer = self._around.balancer
            label = pulumi.Output.concat(balancer.balancer.arn_suffix, "/", balancer.targets.arn_suffix)
            signals["requests"] = (
                service.requests_per_task,
                METRIC(predefined_metric_type="ALBRequestCountPerTarget", resource_label=label),
            )
        for name, (value, metric) in signals.items():
            aws.appautoscaling.Policy(
                f"{service.name}-{name}",
                name=self.name(f"{service.name}-{name}"),
                policy_type="TargetTrackingScaling",
                service_namespace=target.service_namespace,
                scalable_dimension=target.scalable_dimension,
                resource_id=target.resource_id,
                target_tracking_scaling_policy_configuration=TARGET(
                    target_value=value,
                    predefined_metric_specification=metric,
                    scale_out_cooldown=60,
                    scale_in_cooldown=300,
                ),
                opts=self.below(),
            )


def namespace(stack: Stack) -> str:
    """The private domain of a stack's services."""
    return f"{stack.name}.splitplane.internal"
