"""The offers that quotes rank, kept in the process as long as their accounts were not refreshed.

Reading 800 rows costs more than ranking them, and between two refreshes they are the same. They are kept in lots, as
rankings take them. Quotes decide nothing: what buys a machine reads the offers themselves.
"""

from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import text

from control_plane.db import catalogue
from control_plane.db.connection import Connection
from control_plane.db.rows import read
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName
from control_plane.domain.lot import Lot, lots_of
from control_plane.domain.placement import Offer

# The offers of an account change with its refreshes alone; a removed account that is added again has new credentials.
_VERSIONS = text("""
SELECT name AS account, offers_at, credentials_since FROM provider_accounts
WHERE removed_at IS NULL AND offers_at IS NOT NULL
""")


@dataclass(frozen=True, slots=True)
class _Version:
    """The state of an account's offers."""

    account: AccountName
    offers_at: datetime
    credentials_since: datetime | None


@dataclass(slots=True)
class OfferCache:
    """One for each process and database. It holds every offer at most once, about 1 kB each."""

    _kept: dict[tuple[GpuModel | None, int], dict[_Version, list[Lot]]] = field(
        default_factory=dict[tuple[GpuModel | None, int], dict[_Version, list[Lot]]]
    )

    async def lots(self, connection: Connection, gpu_model: GpuModel | None, gpu_count: int) -> list[Lot]:
        """The lots of the offers with this GPU model (None: without GPUs) and count, of all accounts, in no order."""
        versions = await read(connection, _VERSIONS, _Version)
        kept = self._kept.get((gpu_model, gpu_count), {})
        changed = {version.account: version for version in versions if version not in kept}
        anew: dict[_Version, list[Lot]] = {version: kept.get(version, []) for version in versions}
        if changed:
            found = await catalogue.offers_of_shape(connection, gpu_model, gpu_count, accounts=list(changed))
            of_account: dict[AccountName, list[Offer]] = {account: [] for account in changed}
            for offer in found:
                of_account[AccountName(offer.account)].append(offer)
            anew |= {changed[account]: lots_of(offers) for account, offers in of_account.items()}
            # Read after the versions, so that what is too new is read again, and nothing old is kept.
            self._kept[gpu_model, gpu_count] = anew
        return [lot for lots in anew.values() for lot in lots]
