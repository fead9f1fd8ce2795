"""Provider accounts and their termination permits on the wire."""

from control_plane.services.accounts import Account, Permit
from control_plane.wire.accounts import AccountView, TerminationPermitView


def termination_permit_view(permit: Permit) -> TerminationPermitView:
    return TerminationPermitView(
        account=permit.account, why=permit.why, actor=permit.actor, at=permit.at, until=permit.until
    )


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
        termination_permit=None if permit is None else termination_permit_view(permit),
    )
