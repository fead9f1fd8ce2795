"""A refusal is data: a stable code for programs, and a sentence for people."""

from dataclasses import dataclass
from enum import StrEnum


class RefusalCode(StrEnum):
    """Codes never change meaning. The API documents each under docs/errors.md."""

    ORGANIZATION_SUSPENDED = "organization_suspended"
    SKU_UNKNOWN = "sku_unknown"
    SSH_KEY_UNKNOWN = "ssh_key_unknown"
    PRICE_ABOVE_CEILING = "price_above_ceiling"
    QUOTA_EXCEEDED = "quota_exceeded"
    BALANCE_TOO_LOW = "balance_too_low"
    REGION_NOT_SERVED = "region_not_served"
    PROVIDER_UNKNOWN = "provider_unknown"
    ACCOUNT_UNKNOWN = "account_unknown"
    PROJECT_UNKNOWN = "project_unknown"
    LEASE_NOT_FOUND = "lease_not_found"
    NAME_TAKEN = "name_taken"
    SSH_KEY_INVALID = "ssh_key_invalid"
    KEY_IN_USE = "key_in_use"
    NOT_FOUND = "not_found"


@dataclass(frozen=True, slots=True)
class Refused:
    code: RefusalCode
    why: str
    """A sentence that says what to change."""
