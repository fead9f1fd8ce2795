"""Chooses a machine for every lease that waits for one, and writes the intent to buy it.

The intent and its launch key are committed before anything is asked of a provider (law 1), in one
transaction with the lease's move, so a lease is never STARTING without an attempt nor the other way
round. The whole ranking is stored, losers and their reasons included (law 9); an offer whose machines
failed their GPU proofs lately loses with the ids of those proofs. A lease that no offer
can serve waits; when it has waited too long or tried too often, it ends and says so.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from control_plane.db import catalogue, machines, leases, proofs
from control_plane.domain.ids import MachineId, launch_key
from control_plane.domain.lease import Lease, LeaseEvent, LeaseMove, step
from control_plane.domain.transitions import Moved
from control_plane.domain.money import Nano
from control_plane.domain.placement import ATTEMPTS_MAX, PROOF_RECORD_WINDOW, Offer, Ranking, rank
from control_plane.services.leases import unhealthy_accounts
from reconciler.loop import Loop, Report, World

NAME = "place_leases"
PLACED_PER_ACTIVATION_MAX = 100
LOOK_AGAIN_AFTER = timedelta(seconds=15)
WAIT_MAX = timedelta(minutes=30)
"""How long a lease waits for capacity before it is given up."""


async def activate(world: World) -> Report:
    now = world.now()
    async with world.db.transaction() as connection:
        waiting = await leases.take_placing(connection, now=now, limit=PLACED_PER_ACTIVATION_MAX)
        if not waiting:
            return Report()
        shapes = {price.sku.name: price.sku.shape for price in await catalogue.prices(connection, now=now)}
        by_gpus: dict[tuple[str, int], list[Offer]] = {}
        for offer in await catalogue.offers(connection):
            by_gpus.setdefault((offer.shape.gpu_model, offer.shape.gpu_count), []).append(offer)
        failures = await machines.failures(connection, [lease.id for lease in waiting if lease.attempts])
        unhealthy = await unhealthy_accounts(connection)
        disproven = await proofs.disproven(connection, since=now - PROOF_RECORD_WINDOW)
        decisions = [
            (
                lease,
                rank(
                    lease.request,
                    shapes[lease.request.sku],
                    Nano(lease.nano_per_gpu_hour * lease.gpu_count),
                    by_gpus.get((lease.gpu_model, lease.gpu_count), ()),
                    failures=failures.get(lease.id, {}),
                    unhealthy_accounts=unhealthy,
                    disproven=disproven,
                    now=now,
                ),
            )
            for lease in waiting
        ]
        placed = await _record(connection, world, decisions, now)
    return Report(
        looked_at=len(waiting), acted_on=placed, more=len(waiting) == PLACED_PER_ACTIVATION_MAX and placed > 0
    )


async def _record(
    connection: AsyncConnection, world: World, decisions: Sequence[tuple[Lease, Ranking]], now: datetime
) -> int:
    moves: list[LeaseMove] = []
    intents: list[dict[str, Any]] = []
    postponed = []
    for lease, ranking in decisions:
        gave_up = _gives_up(lease, ranking, now)
        if gave_up is not None:
            moves += _move(lease, LeaseEvent.GAVE_UP, gave_up)
        elif ranking.candidates:
            chosen = ranking.candidates[0]
            machine_id = MachineId(world.new_id())
            key = launch_key(world.installation, machine_id)
            intents.append(machines.intended(machine_id, lease.organization_id, lease.id, key, chosen))
            moves += _move(
                lease, LeaseEvent.PLACED, f"{chosen.native_type} at {chosen.account} in {chosen.region}"
            )
        else:
            postponed.append(lease.id)

    await leases.move(connection, moves, actor=world.actor(NAME), now=now)
    await machines.insert(connection, intents, actor=world.actor(NAME), now=now)
    await leases.insert_placements(connection, [_stored(*decision) for decision in decisions], now=now)
    if postponed:
        await leases.postpone(connection, postponed, due_at=now + LOOK_AGAIN_AFTER)
    return len(moves)


def _gives_up(lease: Lease, ranking: Ranking, now: datetime) -> str | None:
    if lease.attempts >= ATTEMPTS_MAX:
        return f"{lease.attempts} attempts failed; {ATTEMPTS_MAX} is the limit"
    if not ranking.candidates and now - lease.created_at >= WAIT_MAX:
        minutes = int(WAIT_MAX.total_seconds() // 60)
        return f"no offer could serve it for {minutes} minutes; see the explanation for each offer's reason"
    return None


def _move(lease: Lease, event: LeaseEvent, why: str) -> list[LeaseMove]:
    moved = step(lease.state, event)
    return [LeaseMove(lease.id, lease.generation, moved, why=why)] if isinstance(moved, Moved) else []


def _stored(lease: Lease, ranking: Ranking) -> dict[str, Any]:
    return {
        "lease_id": str(lease.id),
        "organization_id": str(lease.organization_id),
        "chosen": ranking.candidates[0].key if ranking.candidates else None,
        "ranking": {
            "candidates": [_shown(offer) for offer in ranking.candidates],
            "rejected": [
                _shown(rejection.offer)
                | {"code": rejection.code, "why": rejection.why}
                | ({"proofs": [proof.hex for proof in rejection.proofs]} if rejection.proofs else {})
                for rejection in ranking.rejected
            ],
        },
    }


def _shown(offer: Offer) -> dict[str, Any]:
    return {
        "offer": offer.key,
        "provider": offer.provider,
        "region": offer.region,
        "native_type": offer.native_type,
        "cost_nano_per_hour": offer.cost_nano_per_hour,
        "confidence": offer.confidence,
        "observed_at": offer.observed_at.isoformat(),
    }


LOOP = Loop(NAME, timedelta(seconds=0.5), activate, wakes=("launch_machines", "close_leases"))
