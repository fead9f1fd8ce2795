"""Decides as IAM does whether a policy permits a call of AWS KMS or Secrets Manager.

moto stores users and policies and checks signatures, but it takes every call of these two for one on the resource `*`,
and does not know the conditions that our policies use. This adds both. What moto permits in S3 it decides itself.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from moto.core.authorization import enable_iam_authentication
from moto.iam.access_control import IAMRequest
from moto.kms.exceptions import AccessDeniedException
from moto.kms.responses import KmsResponse
from moto.secretsmanager.models import secretsmanager_backends
from moto.secretsmanager.responses import SecretsManagerResponse

Policy = Mapping[str, Any]


def permits(
    policies: list[Policy], action: str, resource: str, context: Mapping[str, str], *, via: str | None = None
) -> bool:
    """Whether some statement allows the action, and none denies it. `via` is the service that calls for the user."""
    effects = {
        statement["Effect"]
        for policy in policies
        for statement in policy["Statement"]
        if _matches(statement["Action"], action)
        and _matches(statement["Resource"], resource)
        and _fulfilled(statement.get("Condition", {}), resource, context, via)
    }
    return effects == {"Allow"}


def _matches(patterns: str | list[str], value: str) -> bool:
    listed = [patterns] if isinstance(patterns, str) else patterns
    return any(re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), value) for pattern in listed)


def _fulfilled(
    condition: Mapping[str, Mapping[str, str | list[str]]],
    resource: str,
    context: Mapping[str, str],
    via: str | None,
) -> bool:
    facts = {f"kms:EncryptionContext:{name}": value for name, value in context.items()}
    if via is not None:
        facts["kms:ViaService"] = via
    facts["aws:ResourceAccount"] = resource.split(":")[4]
    for operator, demanded in condition.items():
        for name, value in demanded.items():
            match operator:
                case "Null":
                    fulfilled = (name not in facts) is (value == "true")
                case "StringEquals":
                    fulfilled = facts.get(name) in ([value] if isinstance(value, str) else value)
                case "StringNotEquals":
                    fulfilled = facts.get(name) != value
                case _:
                    raise NotImplementedError(operator)
            if not fulfilled:
                return False
    return True


class _KmsRequest(IAMRequest):
    def check_action_permitted(self, resource: str) -> None:
        asked = json.loads(self._body)
        found: list[Any] = list(self._access_key.collect_policies())
        policies = [json.loads(policy["policy_document"]) for policy in found]
        for action, key, context in _parts(self._action, asked):
            if not permits(policies, action, key, context):
                raise AccessDeniedException(f"{action} on {key}")


def _parts(action: str, asked: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, str]]]:
    """What is checked: for ReEncrypt both of its halves."""
    if action != "kms:ReEncrypt":
        return [(action, asked["KeyId"], asked.get("EncryptionContext", {}))]
    return [
        ("kms:ReEncryptFrom", asked["SourceKeyId"], asked.get("SourceEncryptionContext", {})),
        ("kms:ReEncryptTo", asked["DestinationKeyId"], asked.get("DestinationEncryptionContext", {})),
    ]


class _SecretRequest(IAMRequest):
    """Secrets Manager uses the key of a secret for its caller, who needs the right to that as well.

    https://docs.aws.amazon.com/secretsmanager/latest/userguide/security-encryption.html (2026-11-24)
    """

    def check_action_permitted(self, resource: str) -> None:
        asked = json.loads(self._body)["SecretId"]
        secret: Any = secretsmanager_backends[self.account_id][self._region].describe_secret(asked)
        found: list[Any] = list(self._access_key.collect_policies())
        policies = [json.loads(policy["policy_document"]) for policy in found]
        of_key = {"GetSecretValue": ("Decrypt",), "PutSecretValue": ("GenerateDataKey", "Decrypt")}
        needed = [
            (self._action, secret.arn),
            *((f"kms:{action}", str(secret.kms_key_id)) for action in of_key[self._action.partition(":")[2]]),
        ]
        via = f"secretsmanager.{self._region}.amazonaws.com"
        for action, arn in needed:
            if not permits(policies, action, arn, {"SecretARN": str(secret.arn)}, via=via):
                raise AccessDeniedException(f"{action} on {arn}")


@contextmanager
def enforced() -> Iterator[None]:
    """Calls need the permission of the user who signed them."""

    def of_kms(self: Any, resource: str = "*") -> None:
        self._authenticate_and_authorize_action(_KmsRequest, resource)

    def of_secrets(self: Any, resource: str = "*") -> None:
        self._authenticate_and_authorize_action(_SecretRequest, resource)

    with (
        enable_iam_authentication(),
        patch.object(KmsResponse, "_authenticate_and_authorize_normal_action", of_kms),
        patch.object(SecretsManagerResponse, "_authenticate_and_authorize_normal_action", of_secrets),
    ):
        yield
