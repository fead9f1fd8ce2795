"""Tells a machine which SSH authorities to trust, and stores which ones it was told."""

from control_plane.db import ssh_authorities
from control_plane.domain.ids import MachineId
from control_plane.domain.ssh_authority import fingerprint
from data_plane.access.login import trust
from data_plane.access.port import Session
from reconciler.worlds.access import AccessWorld


async def tell(world: AccessWorld, session: Session, machine_id: MachineId) -> None:
    """Raises AccessError.

    Whom to trust is read when we are logged in. Logins and steps have time limits that are shorter than the hold on a
    machine, so that nobody who was slow tells it what somebody else has replaced.
    """
    trusted = await world.ssh_authorities.trusted()
    await trust(session, trusted)
    async with world.db.statement() as connection:
        await ssh_authorities.told(connection, machine_id, fingerprint(trusted))
