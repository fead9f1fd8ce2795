"""Provider accounts and their termination permits on the wire."""

from datetime import datetime

from control_plane.domain.ids import Prefix, on_wire
from control_plane.services.accounts import Account, AccountOverview, BucketRow, Permit, StoredBlock
from control_plane.wire.accounts import (
    AccountView,
    MissingMachinesView,
    OfferBlockView,
    RateLimitView,
    TerminationPermitView,
)


def termination_permit_view(permit: Permit) -> TerminationPermitView:
    missing = None
    if permit.frozen_since is not None and permit.missing is not None:
        missing = MissingMachinesView(permit.frozen_since, permit.missing)
    return TerminationPermitView(
        account=permit.account,
        why=permit.why,
        actor=permit.actor,
        at=permit.at,
        until=permit.until,
        missing=missing,
    )


def _failing_since(account: Account) -> datetime | None:
    since = [at for at in (account.failing_since, account.offers_failing_since) if at is not None]
    return min(since, default=None)


def _failing_why(account: Account) -> str | None:
    offers = f"offers: {account.offers_failing_why}" if account.offers_failing_why else None
    return "; ".join(why for why in (account.failing_why, offers) if why) or None


def _block_view(block: StoredBlock) -> OfferBlockView:
    return OfferBlockView(
        scope=block.scope.value,
        subject=block.subject,
        reason=block.reason.value,
        machine_id=on_wire(Prefix.MACHINE, block.machine_id),
        since=block.since,
        until=block.until,
    )


def account_view(overview: AccountOverview, now: datetime) -> AccountView:
    account, permit, for_missing = overview.account, overview.permit, overview.missing_permit
    return AccountView(
        name=account.name,
        provider=account.provider,
        listing_asked_at=account.listing_asked_at,
        listing_size=account.listing_size,
        frozen_since=None if account.freeze is None else account.freeze.since,
        frozen_why=None if account.freeze is None else account.freeze.why,
        failing_since=_failing_since(account),
        failing_why=_failing_why(account),
        termination_permit=None if permit is None else termination_permit_view(permit),
        frozen_missing=0 if account.freeze is None else account.freeze.missing,
        frozen_needs_permit=account.freeze is not None and account.freeze.needs_permit,
        missing_permit=None if for_missing is None else termination_permit_view(for_missing),
        drained_since=account.drained_at,
        drained_why=account.drained_why,
        armed_since=account.armed_at,
        disarmed_why=account.disarmed_why,
        credentials_from="environment" if account.secret_id is None else "operator",
        credentials_since=account.credentials_since if account.secret_id is not None else None,
        blocks=tuple(_block_view(block) for block in overview.blocks),
        offers_left_out=account.offers_left_out,
        limits=tuple(_limit_view(bucket, now) for bucket in overview.limits),
    )


def _limit_view(bucket: BucketRow, now: datetime) -> RateLimitView:
    return RateLimitView(
        bucket=bucket.bucket,
        calls=bucket.calls,
        seconds=bucket.seconds,
        burst=bucket.burst,
        share_percent=round(100 * bucket.share_now(now)),
        turns_last_minute=bucket.turns_of_the_last_minute(now),
        next_turn_at=max(now, bucket.free_at, bucket.closed_until or now),
    )
