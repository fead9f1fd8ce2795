"""Secrets Manager: a place for each secret of a process. Pulumi makes it, and people fill it (docs/deploying.md)."""

import pulumi
import pulumi_aws as aws

from infra.components.common import Component
from infra.config import Stack
from infra.services import Service


class Credentials(Component):
    """No value of a secret is an input or an output here, so none can get into a preview, a log or the state."""

    def __init__(
        self, stack: Stack, parent: pulumi.Resource, catalogue: tuple[Service, ...], key: aws.kms.Key
    ) -> None:
        super().__init__(stack, "credentials", parent)
        wanted = sorted(
            {name for service in catalogue for name in (*service.secrets.values(), *service.files.values())}
        )
        self.of = {
            name: aws.secretsmanager.Secret(
                name,
                name=f"splitplane-{stack.name}/{name}",
                kms_key_id=key.arn,
                recovery_window_in_days=30,
                opts=self.guarded(),
            )
            for name in wanted
        }
        self.register_outputs({})
