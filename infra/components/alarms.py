"""What wakes somebody, and what warns of money: alarms of CloudWatch, and a budget, by email.

They watch AWS's own figures. The alert rules of the product itself are for Prometheus (docs/monitoring/alerts.yml).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

import pulumi
import pulumi_aws as aws

from infra.components.clusters import Hosts
from infra.components.common import Component
from infra.components.database import Database
from infra.components.load_balancer import LoadBalancer
from infra.components.network import Network
from infra.components.services import Services
from infra.config import Stack

GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    name: str
    meaning: str
    namespace: str
    metric: str
    threshold: float
    dimensions: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    statistic: str = "Average"
    below: bool = False
    """Whether it is a figure below the threshold that is wrong."""
    missing: str = "notBreaching"
    minutes: int = 5


class Alarms(Component):
    def __init__(
        self,
        stack: Stack,
        parent: pulumi.Resource,
        *,
        key: aws.kms.Key,
        balancer: LoadBalancer,
        database: Database,
        services: Services,
        hosts: Hosts,
        network: Network,
    ) -> None:
        super().__init__(stack, "alarms", parent)
        self.topic = aws.sns.Topic(
            "alarms", name=self.name("alarms"), kms_master_key_id=key.arn, opts=self.below()
        )
        aws.sns.TopicSubscription(
            "email", topic=self.topic.arn, protocol="email", endpoint=stack.alarm_email, opts=self.below()
        )
        alarms = [
            *_of_balancer(balancer),
            *_of_database(stack, database),
            *_of_services(stack, services),
            *_of_hosts(hosts),
            *_of_gateways(network),
        ]
        for alarm in alarms:
            self._alarm(alarm)
        self._draw(alarms)
        self._budget()
        self.register_outputs({})

    def _alarm(self, alarm: Alarm) -> None:
        percentile = alarm.statistic.startswith("p")
        aws.cloudwatch.MetricAlarm(
            alarm.name,
            name=self.name(alarm.name),
            alarm_description=alarm.meaning,
            namespace=alarm.namespace,
            metric_name=alarm.metric,
            dimensions=dict(alarm.dimensions),
            statistic=None if percentile else alarm.statistic,
            extended_statistic=alarm.statistic if percentile else None,
            comparison_operator="LessThanThreshold" if alarm.below else "GreaterThanThreshold",
            threshold=alarm.threshold,
            period=60,
            evaluation_periods=alarm.minutes,
            treat_missing_data=alarm.missing,
            alarm_actions=[self.topic.arn],
            ok_actions=[self.topic.arn],
            opts=self.below(),
        )

    def _draw(self, alarms: list[Alarm]) -> None:
        """A dashboard with a graph for each alarm, and its threshold as a line."""
        widgets = [
            {
                "type": "metric",
                "x": 8 * (number % 3),
                "y": 6 * (number // 3),
                "width": 8,
                "height": 6,
                "properties": {
                    "title": alarm.name,
                    "region": self.stack.region,
                    "stat": alarm.statistic,
                    "period": 60,
                    "metrics": [
                        [alarm.namespace, alarm.metric, *chain.from_iterable(alarm.dimensions.items())]
                    ],
                    "annotations": {"horizontal": [{"label": alarm.meaning, "value": alarm.threshold}]},
                },
            }
            for number, alarm in enumerate(alarms)
        ]
        aws.cloudwatch.Dashboard(
            "alarms",
            dashboard_name=self.name("alarms"),
            dashboard_body=pulumi.Output.json_dumps({"widgets": widgets}),
            opts=self.below(),
        )

    def _budget(self) -> None:
        """Of the whole account: every stack has one of its own, and a filter by tag finds nothing before somebody
        activates the tag for billing.
        """
        aws.budgets.Budget(
            "monthly",
            name=self.name("monthly"),
            budget_type="COST",
            time_unit="MONTHLY",
            limit_amount=str(self.stack.monthly_budget_usd),
            limit_unit="USD",
            notifications=[
                aws.budgets.BudgetNotificationArgs(
                    comparison_operator="GREATER_THAN",
                    threshold=threshold,
                    threshold_type="PERCENTAGE",
                    notification_type=kind,
                    subscriber_email_addresses=[self.stack.alarm_email],
                )
                for kind, threshold in (("ACTUAL", 80), ("FORECASTED", 100))
            ],
            opts=self.below(),
        )


def _of_balancer(balancer: LoadBalancer) -> list[Alarm]:
    whole = {"LoadBalancer": balancer.balancer.arn_suffix}
    targets = whole | {"TargetGroup": balancer.targets.arn_suffix}
    return [
        Alarm(
            name="api-errors",
            meaning="The API answers 5xx: look at its log, and at /readyz.",
            namespace="AWS/ApplicationELB",
            metric="HTTPCode_Target_5XX_Count",
            dimensions=targets,
            statistic="Sum",
            threshold=20,
        ),
        Alarm(
            name="balancer-errors",
            meaning="The load balancer has no API that answers.",
            namespace="AWS/ApplicationELB",
            metric="HTTPCode_ELB_5XX_Count",
            dimensions=whole,
            statistic="Sum",
            threshold=20,
        ),
        Alarm(
            name="api-slow",
            meaning="One request in a hundred takes longer than 2 s.",
            namespace="AWS/ApplicationELB",
            metric="TargetResponseTime",
            dimensions=targets,
            statistic="p99",
            threshold=2,
            minutes=10,
        ),
        Alarm(
            name="api-unhealthy",
            meaning="An API is not ready: is the database away?",
            namespace="AWS/ApplicationELB",
            metric="UnHealthyHostCount",
            dimensions=targets,
            statistic="Maximum",
            threshold=0,
        ),
    ]


def _of_database(stack: Stack, database: Database) -> list[Alarm]:
    one = {"DBInstanceIdentifier": database.instance.identifier}
    return [
        Alarm(
            name="database-cpu",
            meaning="The database has too little CPU time.",
            namespace="AWS/RDS",
            metric="CPUUtilization",
            dimensions=one,
            threshold=80,
            minutes=15,
        ),
        Alarm(
            name="database-disk",
            meaning="The database's disk is nearly full: raise storage_max_gib.",
            namespace="AWS/RDS",
            metric="FreeStorageSpace",
            dimensions=one,
            below=True,
            threshold=stack.database.storage_gib * GIB // 10,
        ),
        Alarm(
            name="database-memory",
            meaning="The database has too little memory.",
            namespace="AWS/RDS",
            metric="FreeableMemory",
            dimensions=one,
            below=True,
            threshold=GIB // 4,
            minutes=15,
        ),
        Alarm(
            name="database-silent",
            meaning="The database reports nothing: is it there?",
            namespace="AWS/RDS",
            metric="DatabaseConnections",
            dimensions=one,
            below=True,
            threshold=1,
            missing="breaching",
        ),
    ]


def _of_services(stack: Stack, services: Services) -> list[Alarm]:
    return [
        Alarm(
            name=f"{name}-tasks",
            meaning=f"Fewer tasks of {name} run than its minimum: look at its events and its log.",
            namespace="ECS/ContainerInsights",
            metric="RunningTaskCount",
            below=True,
            statistic="Minimum",
            missing="breaching",
            dimensions={"ClusterName": services.cluster.name, "ServiceName": running.name},
            threshold=stack.services[name].tasks_min,
        )
        for name, running in services.running.items()
    ]


def _of_hosts(hosts: Hosts) -> list[Alarm]:
    return [
        Alarm(
            name=f"{host.name}-status",
            meaning="A host of the cluster network fails its checks; AWS moves it by itself.",
            namespace="AWS/EC2",
            metric="StatusCheckFailed",
            dimensions={"InstanceId": host.instance.id},
            statistic="Maximum",
            threshold=0,
            missing="breaching",
            minutes=3,
        )
        for host in (hosts.hub, *hosts.servers)
    ]


def _of_gateways(network: Network) -> list[Alarm]:
    return [
        Alarm(
            name=f"egress-{number}-ports",
            meaning="A NAT gateway is out of ports: calls of providers fail.",
            namespace="AWS/NATGateway",
            metric="ErrorPortAllocation",
            dimensions={"NatGatewayId": gateway.id},
            statistic="Sum",
            threshold=0,
        )
        for number, gateway in enumerate(network.gateways, 1)
    ]
