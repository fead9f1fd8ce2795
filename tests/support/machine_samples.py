"""Samples of machines on a stage, as the ingest process stores them."""

from datetime import timedelta

from control_plane.db import claims, samples
from control_plane.db.samples import SETTLED_AFTER, NewSample
from control_plane.domain.lease import Lease
from data_plane.documents.sample import Gpu, Host, Sample, Server, Xid, encode_sample, notable
from tests.support.stage import Stage

JUST_SETTLED = SETTLED_AFTER + timedelta(seconds=1)


async def sent(
    stage: Stage,
    lease: Lease,
    *gpus: Gpu,
    xids: tuple[Xid, ...] = (),
    servers: tuple[Server, ...] = (),
    ago: timedelta = timedelta(0),
    at_ms: int | None = None,
) -> None:
    """The agent on the machine of a lease sent a sample so long ago: of one GPU that is well, unless others are given.

    `at_ms` is what its clock showed; ours when it is left out.
    """
    machine = (await stage.machines(lease))[-1]
    async with stage.db.reading() as connection:
        (claim,) = await claims.open_of_machine(connection, machine.id)
    at = stage.clock.now() - ago
    sample = Sample(
        sequence=int(at.timestamp()),
        at_ms=int(at.timestamp() * 1_000) if at_ms is None else at_ms,
        boot="",
        uptime_seconds=3_600,
        spooled=0,
        dropped=0,
        source="nvml",
        failure=None,
        gpus=gpus or (Gpu(0),),
        xids=xids,
        xids_more=0,
        events=True,
        kernel_log="kmsg",
        host=Host(),
        servers=servers,
    )
    new = NewSample(
        organization_id=lease.organization_id,
        project_id=lease.project_id,
        claim_id=claim.id,
        lease_id=lease.id,
        machine_id=machine.id,
        sequence=sample.sequence,
        at=at,
        received_at=at,
        skew_ms=0,
        notable=notable(sample),
        document=encode_sample(sample).decode(),
    )
    async with stage.db.transaction() as connection:
        assert await samples.insert(connection, [new]) == 1
