"""Records of orders that came to nothing, whose machines are at the provider all the same."""

from datetime import datetime

from control_plane.db import machines
from control_plane.db.connection import Connection
from control_plane.domain.actor import Actor, ActorKind
from control_plane.domain.failure import FailReason
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName, LaunchKey, LeaseId, MachineId
from control_plane.domain.machine import (
    MachineEvent,
    MachineMove,
    MachineOrder,
    MachineState,
    Purpose,
    step,
)
from control_plane.domain.money import Nano
from control_plane.domain.proof import Tier
from control_plane.domain.transitions import Moved
from control_plane.world import uuid7

HOURLY = Nano(2_190_000_000)
_ACTOR = Actor(ActorKind.LOOP, "planted")


async def record(connection: Connection, key: LaunchKey, account: AccountName, *, now: datetime) -> None:
    """Store the closed record of an order that the provider refused with a word that says nothing about its offer."""
    order = MachineOrder(
        id=MachineId(uuid7()),
        purpose=Purpose.POOL,
        account=account,
        provider="fake",
        region="us-east-1",
        native_region="us-east-1",
        native_type="h100-sxm-80gb.1",
        offer_key="planted",
        cost_nano_per_hour=HOURLY,
        gpu_model=GpuModel.H100_SXM_80GB,
        gpu_count=1,
        vcpus=8,
        memory_gib=64,
        proof=Tier.LISTED,
        launch_key=key,
        reserved_for=LeaseId(uuid7()),
    )
    await machines.insert(connection, [order], now=now, deadline_at=now)
    asked = MachineMove(order.id, 1, _moved(MachineState.INTENDED, MachineEvent.ASKED), asked_at=now)
    refused = MachineMove(
        order.id,
        2,
        _moved(MachineState.LAUNCHING, MachineEvent.REJECTED),
        why="refused",
        fail_reason=FailReason.NO_CAPACITY,
        gone_evidence="the provider refused it",
    )
    for move in (asked, refused):
        assert await machines.move(connection, [move], actor=_ACTOR, now=now)


def _moved(state: MachineState, event: MachineEvent) -> Moved[MachineState, MachineEvent]:
    moved = step(state, event)
    assert isinstance(moved, Moved)
    return moved
