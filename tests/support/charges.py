"""Charges as an export reads them, for tests and benchmarks."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from control_plane.domain.focus import AlikeFacts, OwnFacts, Pattern, Row
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import LeaseId, MachineId, OrganizationId, ProjectId
from control_plane.domain.money import Nano
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.rating import charge
from control_plane.domain.sku import CapacityShape, units_of
from control_plane.domain.sla import SlaTier

SELLER = "Neocloud Ltd"
START = datetime(2026, 10, 1, tzinfo=UTC)
PRICE = Nano(2_490_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeFacts(AlikeFacts):
    """A charge with everything that its row says."""

    id: UUID
    number: int
    started_at: datetime
    ended_at: datetime
    unit_seconds_before: int


def usage_row(facts: ChargeFacts, *, seller: str) -> Row:
    """The row of a charge, as an export makes it."""
    own = OwnFacts(
        id=facts.id,
        number=facts.number,
        started_at=facts.started_at,
        ended_at=facts.ended_at,
        unit_seconds_before=facts.unit_seconds_before,
    )
    return Pattern(facts, seller=seller).row(own)


FACTS = ChargeFacts(
    id=UUID(int=1),
    organization_id=OrganizationId(UUID(int=11)),
    organization="Heliotrope",
    project_id=ProjectId(UUID(int=12)),
    project="research",
    lease_id=LeaseId(UUID(int=13)),
    lease="train-1",
    number=1,
    machine_id=MachineId(UUID(int=14)),
    provider="lambda_cloud",
    region="us-east-1",
    sku="h100-sxm.8x",
    gpu_model=GpuModel.H100_SXM_80GB,
    gpu_count=8,
    capacity=CapacityShape.VM,
    purchase=PurchaseKind.ON_DEMAND,
    sla=SlaTier.BRONZE,
    price_book=3,
    period=START,
    started_at=START,
    ended_at=START + timedelta(hours=1),
    unit_seconds_before=0,
    unit_seconds=28_800,
    stopped=False,
    unused=False,
    nano_per_unit_hour=PRICE,
    list_nano_per_unit_hour=PRICE,
    amount_nano=Nano(8 * PRICE),
    labels={"team": "vision"},
    node_pool=None,
    invoice=None,
)
"""One hour of eight GPUs, at the start of October 2026."""


def lease_charges(
    cuts: list[int], *, price: Nano = PRICE, list_price: Nano | None = None, gpu_count: int = 8
) -> list[ChargeFacts]:
    """The charges of a lease that is used from the start of October on, cut after these seconds, in ascending order."""
    made, before, units = [], 0, units_of(gpu_count)
    for number, end in enumerate(cuts, start=1):
        seconds = (end - before) * units
        made.append(
            replace(
                FACTS,
                id=UUID(int=number),
                number=number,
                gpu_count=gpu_count,
                gpu_model=FACTS.gpu_model if gpu_count else None,
                started_at=START + timedelta(seconds=before),
                ended_at=START + timedelta(seconds=end),
                unit_seconds_before=before * units,
                unit_seconds=seconds,
                nano_per_unit_hour=price,
                list_nano_per_unit_hour=price if list_price is None else list_price,
                amount_nano=charge(price, before * units, seconds),
            )
        )
        before = end
    return made
