"""Provider accounts and their termination permits on the wire."""

from control_plane.services.operators import Account, Permit
from control_plane.wire.accounts import AccountView, PermitView


def permit_view(permit: Permit) -> PermitView:
    return PermitView(permit.account, permit.why, permit.actor, permit.at, permit.until)


def account_view(account: Account, permit: Permit | None) -> AccountView:
    return AccountView(
        name=account.name,
        provider=account.provider,
        listing_asked_at=account.listing_asked_at,
        listing_size=account.listing_size,
        frozen_since=None if account.freeze is None else account.freeze.since,
        frozen_why=None if account.freeze is None else account.freeze.why,
        failing_since=account.failing_since,
        failing_why=account.failing_why,
        ending_permit=None if permit is None else permit_view(permit),
    )
