"""By what usage is added up, for whoever wants to know what the money went to."""

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from control_plane.domain.money import Nano


class UsageGrouping(StrEnum):
    ORGANIZATION = "organization"
    """All of a customer's usage together."""
    PROJECT = "project"
    LEASE = "lease"
    SKU = "sku"
    DAY = "day"
    """The day in UTC in which the charged time began; no charge is longer than an hour."""
    LABEL = "label"
    """The value that a label of the lease has now."""


@dataclass(frozen=True, slots=True)
class UsageGroup:
    """The charges that have something in common."""

    id: UUID | None
    """Of the organization, the project or the lease."""
    name: str | None
    """Of the organization, the project, the lease or the SKU; the day such as `2026-11-20`; the label's value, and None
    without it."""
    charges: int
    """The number of charges."""
    gpu_seconds: int
    machine_seconds: int
    """Of machines without GPUs."""
    amount_nano: Nano
    unused_nano: Nano
    """The part of it for what customers did not use of terms, which is no GPU-seconds."""
