"""Sealed secrets: what binds a secret to its tenant, what is stored of it, and when it is encrypted anew.

A secret is encrypted with AES-256-GCM under a data key of its organization and purpose. The data key is wrapped by a
master key, which never leaves its key manager. No value of this file shows a secret in its repr.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum, auto
from typing import NewType

from control_plane.domain.ids import DataKeyId, OrganizationId, SecretId

MasterKey = NewType("MasterKey", str)
"""The name of a master key: the ARN of a key in AWS KMS, or the fingerprint of a local one."""


_KMS_ARN = re.compile(r"arn:aws[a-z-]*:kms:([a-z0-9-]+):[0-9]{12}:key/[A-Za-z0-9-]+")


def kms_region(master: str) -> str | None:
    """The region of a key in AWS KMS; None for a text that is not the ARN of one. An alias is not accepted, because it
    may point to another key tomorrow.
    """
    found = _KMS_ARN.fullmatch(master)
    return found and found.group(1)


class Purpose(StrEnum):
    """What a secret is for. Each purpose has data keys of its own."""

    PROVIDER_CREDENTIALS = "provider_credentials"
    SSH_AUTHORITY = "ssh_authority"
    CLUSTERS = "clusters"
    """What servers of clusters join with, and the administrators' kubeconfigs."""
    AUDIT_SIGNING = "audit_signing"
    """The keys that sign checkpoints of the audit log."""
    TOKEN_SIGNING = "token_signing"  # noqa: S105 - a purpose, and no password
    """The keys of access tokens, which are the one purpose whose secrets the API opens: it has to sign."""


@dataclass(frozen=True, slots=True)
class KeyContext:
    """Whose a data key is, and what for. A data key can be unwrapped only with the context that it was made for."""

    organization_id: OrganizationId
    purpose: Purpose

    def pairs(self) -> Mapping[str, str]:
        """The encryption context, as AWS KMS calls it. It is no secret: it stands in the audit log of AWS."""
        return {"organization": self.organization_id.hex, "purpose": self.purpose.value}

    def associated_data(self) -> bytes:
        """The same as bytes. No part can contain the separator, so that two contexts never give the same bytes."""
        return f"splitplane data key/{self.organization_id.hex}/{self.purpose.value}".encode()

    def of_secret(self, secret_id: SecretId) -> bytes:
        """The associated data of a secret, which therefore opens in no other row, tenant or purpose."""
        return f"splitplane secret/{self.organization_id.hex}/{self.purpose.value}/{secret_id.hex}".encode()


@dataclass(frozen=True, slots=True)
class Plain:
    """Bytes that nobody but their user may see. They are shown in no repr, and so in no log and no traceback."""

    reveal: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A data key as it is stored: encrypted under a master key."""

    id: DataKeyId
    context: KeyContext
    master: MasterKey
    wrapped: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Sealed:
    """A secret as it is stored."""

    id: SecretId
    key: WrappedKey
    nonce: bytes = field(repr=False)
    ciphertext: bytes = field(repr=False)
    version: int = 1
    """How often it was encrypted. Whoever encrypts it anew writes only over the version that it read."""


class Renewal(StrEnum):
    """What a data key needs."""

    REWRAP = auto()
    """Its master key is not the newest one: wrap the same data key under that one. Its secrets stay as they are."""
    REPLACE = auto()
    """It is too old: encrypt its secrets anew under a new data key."""


def renewal(
    key: WrappedKey, *, made_at: datetime, newest: MasterKey, now: datetime, lasts: timedelta
) -> Renewal | None:
    """What a data key needs now; None when it needs nothing. A new data key is wrapped under the newest master key."""
    if now - made_at >= lasts:
        return Renewal.REPLACE
    return None if key.master == newest else Renewal.REWRAP
