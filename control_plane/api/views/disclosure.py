"""What a caller sees of our purchasing, beyond its own tenant, and of its own leases, by its permissions."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Self

from control_plane.domain.permission import Permission


@dataclass(frozen=True, slots=True)
class Disclosure:
    """What the views of offers, placements and explanations may show."""

    costs: bool
    """What we pay our providers."""
    accounts: bool
    """Why nothing is bought at one of our provider accounts."""
    proofs: bool
    """The GPU proofs of the caller's own leases, with their evidence."""
    provider_words: bool
    """What providers said about our orders, in their own words: they may name our accounts and limits."""
    proof_records: bool
    """Which GPU proofs, of any customer's machines, count against an offer."""

    @classmethod
    def of(cls, permissions: Collection[Permission]) -> Self:
        return cls(
            costs=Permission.COSTS_READ in permissions,
            accounts=Permission.PROVIDER_ACCOUNTS_READ in permissions,
            proofs=Permission.PROOFS_READ in permissions,
            provider_words=Permission.PROVIDER_ACCOUNTS_READ in permissions,
            proof_records=Permission.PROOF_RECORDS_READ in permissions,
        )
