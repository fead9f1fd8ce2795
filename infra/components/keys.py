"""KMS keys, one for each kind of data, so that a right to one opens nothing else."""

import json
from pathlib import Path
from typing import Any

import pulumi
import pulumi_aws as aws

from infra.components.common import Component, Document, document
from infra.components.roles import Roles
from infra.config import Stack
from infra.services import Keys as KeyPolicy
from infra.services import Service

POLICIES = Path(__file__).parents[2] / "control_plane" / "vault" / "policies"
"""What the product says that its processes need of the sealing key: data, and the only thing read there."""
ADMINISTRATION = (
    "kms:CancelKeyDeletion", "kms:CreateAlias", "kms:DeleteAlias", "kms:DescribeKey", "kms:DisableKey", "kms:EnableKey",
    "kms:EnableKeyRotation", "kms:GetKeyPolicy", "kms:GetKeyRotationStatus", "kms:ListGrants", "kms:ListKeyPolicies",
    "kms:ListResourceTags", "kms:PutKeyPolicy", "kms:RevokeGrant", "kms:ScheduleKeyDeletion", "kms:TagResource",
    "kms:UntagResource", "kms:UpdateAlias", "kms:UpdateKeyDescription",
)  # fmt: skip
"""What whoever deploys may do with a key. None of it uses the key."""
USE = (
    "kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey",
    "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo",
)  # fmt: skip


class Keys(Component):
    """`sealing` wraps the data keys of the product's secrets. Only the processes that its policy names can use it; an
    administrator would have to change the policy, which CloudTrail records. The others are used through AWS services.
    """

    def __init__(
        self, stack: Stack, parent: pulumi.Resource, catalogue: tuple[Service, ...], roles: Roles
    ) -> None:
        super().__init__(stack, "keys", parent)
        region = stack.region
        self.sealing = self._key(
            "sealing", "wraps the data keys of sealed secrets", *self._users(catalogue, roles)
        )
        self.credentials = self._key("credentials", "secrets of processes", self._through("secretsmanager"))
        self.database = self._key(
            "database", "the database and its snapshots", self._through("rds", "secretsmanager")
        )
        self.exports = self._key("exports", "exports, the audit log and samples", self._through("s3"))
        self.hosts = self._key("hosts", "disks of the hub and of servers", self._through("ec2"))
        self.operations = self._key(
            "operations",
            "logs, alarms and images",
            self._through("ecr"),
            self._by(f"logs.{region}.amazonaws.com", {
                "ArnLike": {"kms:EncryptionContext:aws:logs:arn": f"arn:aws:logs:{region}:{stack.account}:*"},
            }),
            self._by("cloudwatch.amazonaws.com", {"StringEquals": {"aws:SourceAccount": stack.account}}),
        )  # fmt: skip
        self.register_outputs({"sealing": self.sealing.arn})

    def _key(self, name: str, purpose: str, *statements: Document) -> aws.kms.Key:
        administer = {
            "Sid": "AdministerAndNeverUse",
            "Effect": "Allow",
            "Principal": {"AWS": f"arn:aws:iam::{self.stack.account}:root"},
            "Action": list(ADMINISTRATION),
            "Resource": "*",
        }
        key = aws.kms.Key(
            name,
            description=f"splitplane {self.stack.name}: {purpose}",
            enable_key_rotation=True,
            deletion_window_in_days=30,
            policy=document(administer, *statements),
            tags={"Name": self.name(name)},
            opts=self.guarded(),
        )
        aws.kms.Alias(name, name=f"alias/{self.name(name)}", target_key_id=key.id, opts=self.below())
        return key

    def _through(self, *services: str) -> Document:
        """Whoever the account permits may use the key, through these services of AWS alone."""
        return {
            "Sid": f"UseThrough{services[0].capitalize()}",
            "Effect": "Allow",
            "Principal": {"AWS": f"arn:aws:iam::{self.stack.account}:root"},
            "Action": list(USE),
            "Resource": "*",
            "Condition": {
                "StringEquals": {
                    "kms:ViaService": [f"{one}.{self.stack.region}.amazonaws.com" for one in services],
                    "kms:CallerAccount": self.stack.account,
                }
            },
        }

    @staticmethod
    def _by(service: str, condition: Document) -> Document:
        """A service of AWS uses the key itself."""
        return {
            "Effect": "Allow",
            "Principal": {"Service": service},
            "Action": [
                "kms:Decrypt",
                "kms:DescribeKey",
                "kms:Encrypt",
                "kms:GenerateDataKey",
                "kms:ReEncryptFrom",
                "kms:ReEncryptTo",
            ],
            "Resource": "*",
            "Condition": condition,
        }

    def _users(self, catalogue: tuple[Service, ...], roles: Roles) -> list[Document]:
        """What each process may do with the sealing key, as its own policy says."""
        return [
            {**statement, "Principal": {"AWS": roles.of[service.name].task.arn}, "Resource": "*",
             "Sid": f"{service.name.capitalize()}{statement['Sid']}"}
            for service in catalogue
            if service.keys is not None
            for statement in policy_of(service.keys, "${MASTER_KEY_ARN}", self.stack.account)
            if statement["Effect"] == "Allow" and "${MASTER_KEY_ARN}" in statement["Resource"]
        ]  # fmt: skip


def policy_of(keys: KeyPolicy, key_arn: str, account: str) -> list[dict[str, Any]]:
    """The statements that the product ships for a process, with the key and the account filled in."""
    text = (POLICIES / f"{keys.value}.json").read_text()
    filled = text.replace("${MASTER_KEY_ARN}", key_arn).replace("${ACCOUNT_ID}", account)
    statements: list[dict[str, Any]] = json.loads(filled)["Statement"]
    return statements


def policy_text(keys: KeyPolicy, key_arn: str, account: str) -> str:
    """The whole policy, for the role of the process."""
    return json.dumps({"Version": "2012-10-17", "Statement": policy_of(keys, key_arn, account)})
