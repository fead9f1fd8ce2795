"""What every component has: its stack, names, tags, and whether it guards data."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from infra.config import Stack

Document = Mapping[str, Any]


class Component(pulumi.ComponentResource):
    """A part of a deployment. What it makes is below it, and has the provider and so the tags of the stack."""

    def __init__(
        self,
        stack: Stack,
        name: str,
        parent: pulumi.Resource | None = None,
        options: pulumi.ResourceOptions | None = None,
    ) -> None:
        own = pulumi.ResourceOptions(parent=parent)
        super().__init__(
            f"splitplane:infra:{type(self).__name__}", name, None, pulumi.ResourceOptions.merge(own, options)
        )
        self.stack = stack

    def name(self, part: str) -> str:
        """The name of something in AWS: unique in the account and region, also with several stacks there."""
        return f"splitplane-{self.stack.name}-{part}"

    def below(
        self, *, depends_on: Sequence[pulumi.Resource] = (), ignore_changes: list[str] | None = None
    ) -> pulumi.ResourceOptions:
        """Options of what this component makes."""
        return pulumi.ResourceOptions(parent=self, depends_on=list(depends_on), ignore_changes=ignore_changes)

    def guarded(
        self, *, depends_on: Sequence[pulumi.Resource] = (), ignore_changes: list[str] | None = None
    ) -> pulumi.ResourceOptions:
        """Options of what holds data, or is known to others by its address: Pulumi refuses to delete or replace it."""
        return pulumi.ResourceOptions(
            parent=self,
            depends_on=list(depends_on),
            protect=self.stack.protect_data,
            ignore_changes=ignore_changes,
        )


def tags(stack: Stack) -> dict[str, str]:
    """The tags of everything. The provider sets them; a resource adds only its Name."""
    return {"project": "splitplane", "stack": stack.name, "managed-by": "pulumi"}


def document(*statements: Document) -> pulumi.Output[str]:
    """A policy of IAM. Its statements may contain outputs."""
    return pulumi.Output.json_dumps({"Version": "2012-10-17", "Statement": list(statements)})


def trust(service: str, **conditions: object) -> str:
    """Who may take a role: a service of AWS, for this account only."""
    statement: dict[str, object] = {
        "Effect": "Allow",
        "Principal": {"Service": service},
        "Action": "sts:AssumeRole",
    }
    if conditions:
        statement["Condition"] = conditions
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})
