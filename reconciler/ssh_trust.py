"""Tells a machine which SSH authorities to trust, and stores which ones it was told."""

from control_plane.db import ssh_authorities
from control_plane.domain.ids import MachineId
from control_plane.domain.ssh_authority import fingerprint
from data_plane.access.login import trust
from data_plane.access.port import Session
from reconciler.worlds.access import AccessWorld


async def tell(world: AccessWorld, session: Session, machine_id: MachineId) -> None:
    """Raises AccessError."""
    trusted = await world.ssh_authorities.trusted()
    await trust(session, trusted)
    async with world.db.statement() as connection:
        await ssh_authorities.told(connection, machine_id, fingerprint(trusted))
