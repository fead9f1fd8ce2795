"""What a caller sees of our purchasing, beyond its own tenant."""

from dataclasses import dataclass
from typing import Self

from control_plane.domain.permission import Permission


@dataclass(frozen=True, slots=True)
class Disclosure:
    """What the views of offers and placements may show."""

    costs: bool
    """What we pay our providers."""
    accounts: bool
    """Why nothing is bought at one of our provider accounts."""
    proof_records: bool
    """Which GPU proofs, of any customer's machines, speak against an offer."""

    @classmethod
    def of(cls, permissions: frozenset[Permission]) -> Self:
        return cls(
            costs=Permission.COSTS_READ in permissions,
            accounts=Permission.PROVIDER_ACCOUNTS_READ in permissions,
            proof_records=Permission.PROOF_RECORDS_READ in permissions,
        )
