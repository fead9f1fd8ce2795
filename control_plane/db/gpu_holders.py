"""Queries on GPUs that two machines report."""

from dataclasses import dataclass

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.proofs import NewProof
from control_plane.db.rows import read
from control_plane.db.tables.marks import among
from control_plane.domain.ids import AccountName, MachineId
from control_plane.domain.machine import MachineState
from control_plane.domain.proof import ProofOutcome

# Workers that find the same GPU at the same moment run one after the other from here, before any other lock.
_LOCK_GPUS = text("""
SELECT pg_advisory_xact_lock(hashtextextended(gpu, 4711)) FROM (SELECT gpu FROM unnest(CAST(:gpus AS text[])) gpu
  ORDER BY gpu) ordered
""")
_HOLDERS = text(f"""
SELECT DISTINCT m.id AS machine_id, m.account
FROM machines m JOIN proofs p ON p.machine_id = m.id
WHERE {among("m.state", {MachineState.BOOTSTRAPPING, MachineState.VERIFIED})} AND m.id <> :machine_id
  AND p.outcome = '{ProofOutcome.PASSED}'
  AND (p.gpu_uuids && CAST(:uuids AS text[]) OR p.devices && CAST(:devices AS text[]))
ORDER BY m.id
""")


@dataclass(frozen=True, slots=True)
class Holder:
    """A machine that has passed a proof with a GPU."""

    machine_id: MachineId
    account: AccountName


async def lock(connection: Connection, proof: NewProof) -> None:
    """Until the transaction ends, let no other worker judge a machine that reports one of these GPUs.

    Take this lock before all others.
    """
    gpus = [*proof.gpu_uuids, *proof.devices]
    if gpus:
        await connection.execute(_LOCK_GPUS, {"gpus": gpus})


async def of(connection: Connection, machine_id: MachineId, proof: NewProof) -> list[Holder]:
    """Other live machines that passed with one of these GPUs, by UUID or by attested identity."""
    return await read(
        connection,
        _HOLDERS,
        Holder,
        machine_id=machine_id,
        uuids=list(proof.gpu_uuids),
        devices=list(proof.devices),
    )
