"""Decides as IAM does whether a policy permits a call of AWS KMS.

moto stores users and policies and checks signatures, but it takes every call of KMS for one on the resource `*`, and
does not know the conditions that our policies use. This adds both.
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

Policy = Mapping[str, Any]


def permits(policies: list[Policy], action: str, resource: str, context: Mapping[str, str]) -> bool:
    """Whether some statement allows the action, and none denies it."""
    effects = {
        statement["Effect"]
        for policy in policies
        for statement in policy["Statement"]
        if _matches(statement["Action"], action)
        and _matches(statement["Resource"], resource)
        and _fulfilled(statement.get("Condition", {}), resource, context)
    }
    return effects == {"Allow"}


def _matches(patterns: str | list[str], value: str) -> bool:
    listed = [patterns] if isinstance(patterns, str) else patterns
    return any(re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), value) for pattern in listed)


def _fulfilled(condition: Mapping[str, Mapping[str, str]], resource: str, context: Mapping[str, str]) -> bool:
    facts = {f"kms:EncryptionContext:{name}": value for name, value in context.items()}
    facts["aws:ResourceAccount"] = resource.split(":")[4]
    for operator, demanded in condition.items():
        for name, value in demanded.items():
            match operator:
                case "Null":
                    fulfilled = (name not in facts) is (value == "true")
                case "StringEquals":
                    fulfilled = facts.get(name) == value
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


@contextmanager
def enforced() -> Iterator[None]:
    """Calls of KMS need the permission of the user who signed them."""

    def authorize(self: Any, resource: str = "*") -> None:
        self._authenticate_and_authorize_action(_KmsRequest, resource)

    with (
        enable_iam_authentication(),
        patch.object(KmsResponse, "_authenticate_and_authorize_normal_action", authorize),
    ):
        yield
