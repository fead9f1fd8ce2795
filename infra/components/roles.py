"""The roles that tasks run under: two for each service, and nothing shared between services."""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.components.common import Component, trust
from infra.config import Stack
from infra.services import Service


@dataclass(frozen=True, slots=True)
class TaskRoles:
    task: aws.iam.Role
    """What the process itself may do."""
    start: aws.iam.Role
    """What ECS may do to start it: get its image and its secrets, and write its log."""


class Roles(Component):
    """They are made before the keys, whose policies name them, and get their rights afterwards (`services.py`)."""

    def __init__(self, stack: Stack, parent: pulumi.Resource, catalogue: tuple[Service, ...]) -> None:
        super().__init__(stack, "roles", parent)
        self.of = {
            service.name: TaskRoles(self._role(service.name), self._role(f"{service.name}-start"))
            for service in catalogue
        }
        self.register_outputs({})

    def _role(self, name: str) -> aws.iam.Role:
        account, region = self.stack.account, self.stack.region
        return aws.iam.Role(
            name,
            name=self.name(name),
            assume_role_policy=trust(
                "ecs-tasks.amazonaws.com",
                StringEquals={"aws:SourceAccount": account},
                ArnLike={"aws:SourceArn": f"arn:aws:ecs:{region}:{account}:*"},
            ),
            opts=self.below(),
        )
