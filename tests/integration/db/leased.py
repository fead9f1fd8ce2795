"""Leases with machines, made by the product's own functions as far as they go, and moved on by hand from there."""

from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import UUID

from sqlalchemy import text

from control_plane.db import accounts, claims, leases, machines
from control_plane.db.engine import Database
from control_plane.domain.access import EVERYWHERE
from control_plane.domain.actor import loop
from control_plane.domain.claim import Claim
from control_plane.domain.failure import FailReason
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import AccountName, ClaimId, LeaseId, MachineId, OrganizationId, launch_key
from control_plane.domain.lease import Lease
from control_plane.domain.machine import Machine, MachineEvent, MachineFailure, MachineOrder, Purpose
from control_plane.domain.money import Nano
from control_plane.domain.price import ListPrice
from control_plane.domain.proof import Tier
from control_plane.domain.request import CapacityRequest
from control_plane.domain.sku import CapacityShape, Shape, Sku
from control_plane.outcomes import claims as claim_outcomes
from control_plane.outcomes import machines as machine_outcomes
from control_plane.services import catalogue, ledger, organizations
from control_plane.services import leases as lease_service
from control_plane.services.leases import WantedLease
from control_plane.world import World, uuid7
from tests.support import pools
from tests.support.clock import Clock
from tests.support.values import PAID

ACCOUNT, ELSEWHERE = AccountName("fake"), AccountName("fake/other")
ACTOR = loop("test")
MINUTE = timedelta(minutes=1)
_SHAPE = Shape(GpuModel.H100_SXM_80GB, 1, 8, 64, 100)
PRICE = ListPrice(Sku("h100x1", _SHAPE, CapacityShape.VM, Tier.LISTED), Nano(3_600_000_000))
_VERIFY = text("""
UPDATE machines SET state = 'verified', step = 'gpus_verified', asked_at = :now, sighted_at = :now,
  address = '192.0.2.7', host_key = 'ssh-ed25519 key', provider_ref = id::text
WHERE id = :id
""")


@dataclass(frozen=True)
class Leased:
    """What tests of claims begin with."""

    db: Database
    clock: Clock

    async def begin(self) -> "Leased":
        """Register the provider accounts."""
        async with self.db.transaction() as connection:
            for account in (ACCOUNT, ELSEWHERE):
                await accounts.register(connection, account, "fake", now=self.clock.now())
        return self

    @property
    def world(self) -> World:
        return World(self.db, now=self.clock.now)

    async def organization(self) -> OrganizationId:
        organization_id = OrganizationId(uuid7())
        async with self.db.transaction() as connection:
            await organizations.create(connection, self.world, organization_id, organization_id.hex)
            await catalogue.load_price_book(connection, self.world, [PRICE])
            amount = Nano(100 * PRICE.nano_per_hour)
            await ledger.top_up(
                connection, self.world, organization_id, amount, key=organization_id.hex, approval=PAID
            )
        return organization_id

    async def lease(self, organization_id: OrganizationId | None = None) -> Lease:
        """A lease that waits for a machine."""
        tenant = organization_id or await self.organization()
        async with self.db.transaction() as connection:
            lease = await lease_service.create(
                connection,
                self.world,
                tenant,
                WantedLease(CapacityRequest(PRICE.sku.name), ssh_key_ids=[]),
                actor=ACTOR,
                reach=EVERYWHERE,
            )
        assert isinstance(lease, Lease), lease
        return lease

    def order(self, *, purpose: Purpose = Purpose.LEASE, account: AccountName = ACCOUNT) -> MachineOrder:
        machine_id = MachineId(uuid7())
        return MachineOrder(
            id=machine_id,
            purpose=purpose,
            account=account,
            provider="fake",
            region="us-east-1",
            native_region="us-east-1",
            native_type="h100.1",
            offer_key="offer",
            cost_nano_per_hour=Nano(1),
            gpu_model=_SHAPE.gpu_model,
            gpu_count=8 if purpose is Purpose.NODE else 1,
            vcpus=26,
            memory_gib=200,
            proof=Tier.LISTED,
            launch_key=launch_key("0a1b2c3d", machine_id),
        )

    async def placed(self, lease: Lease | None = None, *, account: AccountName = ACCOUNT) -> Claim:
        """The claim of a lease on a machine that is intended for it."""
        lease = lease or await self.lease()
        order = self.order(account=account)
        async with self.db.transaction() as connection:
            locked = (await leases.lock(connection, [lease.id]))[lease.id]
            placed = claim_outcomes.Placed(locked, order, ClaimId(uuid7()))
            assert await claim_outcomes.place(connection, [placed], actor=ACTOR, now=self.clock.now()) == 1
            (claim,) = await claims.open_of_machine(connection, order.id)
        return claim

    async def verified(self, claim: Claim | None = None, *, account: AccountName = ACCOUNT) -> Claim:
        """The claim of a lease on a machine that is verified, for the next ten minutes."""
        claim = claim or await self.placed(account=account)
        now = self.clock.now()
        async with self.db.transaction() as connection:
            await connection.execute(_VERIFY, {"id": claim.machine_id, "now": now})
            await claims.machine_verified(
                connection, claim.machine_id, now=now, deadline_at=now + 10 * MINUTE
            )
        return claim

    async def admitted(self, claim: Claim | None = None) -> Claim:
        """The claim of a lease that is ready."""
        claim = claim or await self.verified()
        (taken,) = await self.take(claim.id, lease_id=claim.lease_id)
        assert await self.admit(taken, token=claim.id)
        return taken

    async def waiting(self, purpose: Purpose) -> MachineId:
        """A verified machine that nobody claims."""
        order = self.order(purpose=purpose)
        async with self.db.transaction() as connection:
            if purpose is Purpose.POOL:
                await catalogue.load_price_book(connection, self.world, [PRICE])
                pool_id = await pools.keep(connection, PRICE.sku.name, now=self.clock.now())
                order = replace(order, pool_id=pool_id)
            await machine_outcomes.order(connection, [order], actor=ACTOR, now=self.clock.now())
            await connection.execute(_VERIFY, {"id": order.id, "now": self.clock.now()})
        return order.id

    async def claim(self, lease: Lease, machine_id: MachineId, slot: int | None = None) -> Claim | str:
        async with self.db.transaction() as connection:
            locked = (await leases.lock(connection, [lease.id]))[lease.id]
            return await claim_outcomes.claim_machine(
                connection,
                locked,
                machine_id,
                slot=slot,
                claim_id=ClaimId(uuid7()),
                actor=ACTOR,
                now=self.clock.now(),
            )

    async def take(
        self,
        token: UUID,
        *,
        account: AccountName = ACCOUNT,
        slots: bool = False,
        lease_id: LeaseId | None = None,
    ) -> list[Claim]:
        """Claims whose customers are to be admitted, held for a minute; those of one lease when it is named."""
        now = self.clock.now()
        async with self.db.transaction() as connection:
            taken = await claims.take_admitting(
                connection, account, token=token, until=now + MINUTE, now=now, limit=100, slots=slots
            )
        return [claim for claim in taken if lease_id in (None, claim.lease_id)]

    async def admit(self, claim: Claim, *, token: UUID) -> bool:
        async with self.db.transaction() as connection:
            return await claim_outcomes.admit(
                connection, claim, token=token, actor=ACTOR, now=self.clock.now()
            )

    async def fail(self, machine_id: MachineId, event: MachineEvent = MachineEvent.VANISHED) -> bool:
        failure = MachineFailure(event, FailReason.VANISHED, "a test")
        async with self.db.transaction() as connection:
            return await machine_outcomes.fail(
                connection, machine_id, failure, actor=ACTOR, now=self.clock.now()
            )

    async def release(self, lease_id: LeaseId, organization_id: OrganizationId) -> None:
        async with self.db.transaction(organization_id) as connection:
            await lease_service.release(
                connection, self.world, organization_id, lease_id, actor=ACTOR, reach=EVERYWHERE
            )

    async def lease_now(self, lease_id: LeaseId) -> Lease:
        async with self.db.transaction() as connection:
            return (await leases.lock(connection, [lease_id]))[lease_id]

    async def machine_now(self, machine_id: MachineId) -> Machine:
        async with self.db.reading() as connection:
            machine = await machines.get(connection, machine_id)
        assert machine is not None
        return machine

    async def open_claims(self, machine_id: MachineId) -> list[Claim]:
        async with self.db.reading() as connection:
            return await claims.open_of_machine(connection, machine_id)
