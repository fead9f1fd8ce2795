"""Who connected to whom, in both networks: flow logs of VPCs, in one log group."""

from collections.abc import Mapping

import pulumi
import pulumi_aws as aws

from infra.components.common import Component, document, trust
from infra.config import Stack

LOG_DAYS = 90


class FlowLogs(Component):
    def __init__(
        self,
        stack: Stack,
        parent: pulumi.Resource,
        networks: Mapping[str, aws.ec2.Vpc],
        log_key: pulumi.Input[str],
    ) -> None:
        super().__init__(stack, "flow-logs", parent)
        group = aws.cloudwatch.LogGroup(
            "flows",
            name=self.name("flows"),
            retention_in_days=LOG_DAYS,
            kms_key_id=log_key,
            opts=self.below(),
        )
        account = {"StringEquals": {"aws:SourceAccount": stack.account}}
        role = aws.iam.Role(
            "flows",
            name=self.name("flows"),
            assume_role_policy=trust("vpc-flow-logs.amazonaws.com", **account),
            opts=self.below(),
        )
        write = {
            "Effect": "Allow",
            "Action": ["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"],
            "Resource": pulumi.Output.concat(group.arn, ":*"),
        }
        aws.iam.RolePolicy("flows", role=role.id, policy=document(write), opts=self.below())
        for name, network in networks.items():
            aws.ec2.FlowLog(
                name,
                vpc_id=network.id,
                traffic_type="ALL",
                iam_role_arn=role.arn,
                log_destination=group.arn,
                log_destination_type="cloud-watch-logs",
                opts=self.below(),
            )
        self.register_outputs({})
