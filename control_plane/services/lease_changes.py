"""Changes of a lease: when it is released by itself, and, while it waits for a machine, what it asks for."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from control_plane.db import (
    admission_decisions,
    envelopes,
    holds,
    journal,
    lease_overviews,
    leases,
    organizations,
)
from control_plane.db.admission_decisions import About
from control_plane.db.connection import Connection
from control_plane.db.lease_overviews import Overview
from control_plane.domain import auto_release
from control_plane.domain.access import Reach
from control_plane.domain.actor import Actor
from control_plane.domain.admission import Admitted, Proposal, admit, agreed_price, month_part
from control_plane.domain.auto_release import AutoRelease
from control_plane.domain.decision import Action, NotAdmitted
from control_plane.domain.envelope_rules import Applied, exceeds, without
from control_plane.domain.ids import AdmissionDecisionId, LeaseId, OrganizationId
from control_plane.domain.journal import Note
from control_plane.domain.lease import LIVE, Lease, LeaseKind, LeaseState
from control_plane.domain.money import Nano
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.request import CapacityRequest
from control_plane.outcomes.market import Market, market_of
from control_plane.services import admissions, lease_reach
from control_plane.services.leases import ends_with_term, of_node_pool
from control_plane.world import World


@dataclass(frozen=True, slots=True)
class Changes:
    """What is to be different; None stays as it is."""

    sku: str | None = None
    regions: tuple[str, ...] | None = None
    providers: tuple[str, ...] | None = None
    price_nano_per_hour_max: Nano | None = None
    network_gbps_min: int | None = None
    """0 means any."""
    priority: int | None = None
    wait_timeout_seconds: int | None = None
    auto_release: AutoRelease | None = None

    def request(self, before: CapacityRequest) -> CapacityRequest:
        return CapacityRequest(
            before.sku if self.sku is None else self.sku,
            before.regions if self.regions is None else self.regions,
            before.providers if self.providers is None else self.providers,
            before.price_nano_per_hour_max
            if self.price_nano_per_hour_max is None
            else self.price_nano_per_hour_max,
            before.priority if self.priority is None else self.priority,
            before.purchase,
            before.sla,
            before.network_gbps_min if self.network_gbps_min is None else self.network_gbps_min or None,
            before.committed_days,
        )


async def change(
    connection: Connection,
    world: World,
    organization_id: OrganizationId,
    lease_id: LeaseId,
    changes: Changes,
    *,
    actor: Actor,
    reach: Reach,
) -> Overview | Refused:
    """Change a lease, or nothing of it. Every action that this takes is admitted like a new lease."""
    lease = await lease_reach.locked(connection, organization_id, lease_id, reach=reach)
    if isinstance(lease, Refused):
        return lease
    if lease.kind is LeaseKind.NODE:
        return of_node_pool(lease, "changed")
    if lease.state not in LIVE:
        return Refused(RefusalCode.LEASE_ENDING, f"The lease is {lease.state}, so nothing of it can change.")
    changing = _Changing(connection, world, lease, actor, world.now())
    for step in (changing.request, changing.release):
        refused = await step(changes)
        if refused is not None:
            return refused
    overview = await lease_overviews.show(connection, organization_id, lease_id)
    if overview is None:
        raise LookupError(f"lease {lease_id} vanished while it was locked")
    return overview


@dataclass(frozen=True, slots=True)
class _Change:
    """A change that was admitted."""

    verdict: Admitted
    repriced: bool
    """Whether the lease has another price with it: another SKU does, and so do regions with other prices."""


@dataclass(frozen=True, slots=True)
class _Changing:
    """A locked lease, and who changes it when."""

    connection: Connection
    world: World
    lease: Lease
    actor: Actor
    now: datetime

    async def request(self, changes: Changes) -> Refused | None:
        """Change what a lease that waits asks for."""
        lease, request = self.lease, changes.request(self.lease.request)
        wait = lease.wait_timeout_seconds
        if changes.wait_timeout_seconds is not None:
            wait = changes.wait_timeout_seconds
        if request == lease.request and wait == lease.wait_timeout_seconds:
            return None
        if lease.state is not LeaseState.PLACING:
            why = (
                f"The lease is {lease.state} and has its machine, which no provider resizes, moves or replaces: create"
                " another lease, move your work there, and release this one. Of this one, `auto_release` can change."
            )
            return Refused(RefusalCode.LEASE_HAS_MACHINE, why)
        if lease.ready_at is not None and request.sku != lease.sku:
            why = "The lease was billed as its SKU already, and waits for a machine like the one that it had."
            return Refused(RefusalCode.LEASE_HAS_MACHINE, why)
        action = _action(lease.request, request)
        admitted = None if action is None else await self._admit(action, request)
        if isinstance(admitted, Refused):
            return admitted
        changed = replace(
            lease,
            sku=request.sku,
            regions=request.regions,
            providers=request.providers,
            price_nano_per_hour_max=request.price_nano_per_hour_max,
            network_gbps_min=request.network_gbps_min,
            priority=request.priority,
            wait_timeout_seconds=wait,
        )
        hold = await holds.amount(self.connection, [lease.id])
        if admitted is not None and admitted.repriced:
            price = admitted.verdict.price
            changed = replace(
                changed,
                gpu_model=price.sku.shape.gpu_model,
                gpu_count=price.sku.shape.gpu_count,
                nano_per_unit_hour=price.nano_per_unit_hour,
                stopped_nano_per_unit_hour=price.stopped_nano,
                list_nano_per_unit_hour=price.listed_nano,
                price_book=price.book,
                price_agreement_id=price.agreement_id,
                committed_days=price.term_days,
                proof=price.sku.proof,
            )
            hold = admitted.verdict.hold_nano
        await leases.replace_request(self.connection, changed, hold_nano=hold, now=self.now)
        await self._note(Note.CHANGED, f"the lease now asks for {_words(changed)}")
        return None

    async def release(self, changes: Changes) -> Refused | None:
        """Change when a live lease is released by itself."""
        lease, limits = self.lease, changes.auto_release
        if limits is None or limits == lease.auto_release:
            return None
        if lease.committed_days is not None:
            return ends_with_term()
        release_at = None
        if lease.ready_at is not None:
            release_at = auto_release.release_at(limits, lease.tariff(lease.ready_at))
            if release_at is not None and release_at <= self.now:
                why = f"The lease would have been released at {release_at:%Y-%m-%d %H:%M:%S} UTC, which has passed."
                return Refused(RefusalCode.RELEASE_TIME_PASSED, why)
        if auto_release.is_later(limits, lease.auto_release):
            admitted = await self._admit(Action.LEASE_EXTEND, lease.request)
            if isinstance(admitted, Refused):
                return admitted
        await leases.set_auto_release(self.connection, lease.id, limits, release_at)
        when = "by nobody but its customer" if limits == AutoRelease() else _when(limits)
        await self._note(Note.CHANGED, f"the lease is now released {when}")
        return None

    async def _admit(self, action: Action, request: CapacityRequest) -> _Change | Refused:
        """Decide on an action, and store the decision when it is admitted."""
        lease, connection = self.lease, self.connection
        market = await market_of(connection, lease.organization_id, request, self.now)
        reprices = action is Action.LEASE_RESIZE or await self._moves_to_another_price(request, market)
        if reprices and lease.ready_at is not None:
            why = "The lease was billed already, and these regions have another price; create another lease there."
            return Refused(RefusalCode.LEASE_HAS_MACHINE, why)
        standing = await organizations.standing(connection, lease.organization_id, lock=True)
        if standing is None:
            raise LookupError(f"organization {lease.organization_id} has no standing")
        applied = (await envelopes.applied(connection, [lease.environment_id], now=self.now))[
            lease.environment_id
        ]
        hold = await holds.set_aside(connection, lease.id)
        verdict = admit(
            Proposal(
                action,
                request,
                market.price if reprices else agreed_price(lease),
                standing,
                _without(applied, lease, hold, self.now) if reprices else applied,
                self.now,
                sold=market.sold,
                unserved=market.unserved,
                adds=reprices,
                hold_nano=hold if reprices else Nano(0),
            )
        )
        about = About(lease.organization_id, lease.project_id, lease.environment_id, lease.id)
        if isinstance(verdict, NotAdmitted):
            return admissions.refused(verdict, about)
        decision_id = AdmissionDecisionId(self.world.new_id())
        await admission_decisions.insert(
            connection, [(decision_id, about, verdict.decision)], actor=self.actor, now=self.now
        )
        for each in applied:
            if each.id is not None and each.level in verdict.over and not exceeds(each):
                await envelopes.set_over_since(connection, each.id, self.now)
        return _Change(verdict, reprices)

    async def _moves_to_another_price(self, request: CapacityRequest, market: Market) -> bool:
        """Whether regions that the lease did not ask for before have another price today than those that it did."""
        lease = self.lease
        if request.regions == lease.regions:
            return False
        before = await market_of(self.connection, lease.organization_id, lease.request, self.now)
        prices = (before.price, market.price)
        return len({None if price is None else price.nano_per_unit_hour for price in prices}) > 1

    async def _note(self, event: Note, why: str) -> None:
        await journal.note_lease(
            self.connection, self.lease.id, event=event, why=why, actor=self.actor, now=self.now
        )


def _action(before: CapacityRequest, after: CapacityRequest) -> Action | None:
    """What a change of a request asks for; None for what asks for nothing more, such as a lower priority."""
    if after.sku != before.sku:
        return Action.LEASE_RESIZE
    if replace(after, priority=before.priority) != before:
        return Action.LEASE_MOVE
    return Action.LEASE_PRIORITY if after.priority > before.priority else None


def _without(applied: Sequence[Applied], lease: Lease, hold: Nano, now: datetime) -> tuple[Applied, ...]:
    if lease.committed_days is not None:
        hold = month_part(lease.nano_per_hour, hold, lease.created_at, now)
    return tuple(
        replace(each, use=without(each.use, lease.gpu_model, lease.gpu_count, lease.nano_per_hour, hold))
        for each in applied
    )


def _words(lease: Lease) -> str:
    where = " or ".join(lease.regions) or "anywhere"
    whose = " or ".join(lease.providers) or "any provider"
    least = "" if lease.network_gbps_min is None else f", {lease.network_gbps_min:,} Gbit/s at least"
    return f"{lease.sku}, {where}, {whose}{least}, priority {lease.priority}"


def _when(limits: AutoRelease) -> str:
    parts = []
    if limits.after_seconds is not None:
        parts.append(f"{limits.after_seconds:,} seconds after it is ready")
    if limits.spend_nano is not None:
        parts.append("before it costs more than its limit")
    return " or ".join(parts)
