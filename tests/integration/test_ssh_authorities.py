"""The key that signs SSH certificates: one for all processes, sealed, and opened by the reconciler alone."""

import asyncio

import pytest
from sqlalchemy import text

from control_plane.db import organizations
from control_plane.db.engine import Database
from control_plane.domain.ids import OrganizationId
from control_plane.vault.errors import KeyManagerError
from control_plane.vault.unsealing.local_file import LocalKeyManager
from control_plane.world import uuid7
from data_plane.access.authority import Authority
from reconciler.ssh_authorities import NoAuthority, StoredAuthorities
from tests.support import keys
from tests.support.clock import Clock
from tests.support.keys import AFTER, BEFORE, NEW
from tests.support.rows import rows

pytestmark = pytest.mark.database
_SECRETS = text(
    "SELECT s.id, s.organization_id, s.purpose, s.ciphertext FROM secrets s JOIN ssh_authorities a ON a.secret_id = s.id"
)


async def _platform(db: Database, clock: Clock) -> OrganizationId:
    organization_id = OrganizationId(uuid7())
    async with db.transaction(organization_id) as connection:
        assert await organizations.insert(
            connection, organization_id, "operators", platform=True, now=clock.now()
        )
    return organization_id


def _process(db: Database, clock: Clock, manager: LocalKeyManager = AFTER) -> StoredAuthorities:
    return StoredAuthorities(db, clock.now, uuid7, manager)


async def test_of_processes_that_race_for_the_first_authority_one_wins_and_all_sign_with_it(
    db: Database, clock: Clock
) -> None:
    await _platform(db, clock)
    processes = [_process(db, clock) for _ in range(4)]
    found = await asyncio.gather(*(process.signing() for process in processes))
    assert len({authority.public_key for authority in found}) == 1
    assert await _process(db, clock).trusted() == [found[0].public_key]
    restarted = await _process(db, clock).signing()
    assert restarted.public_key == found[0].public_key


async def test_its_private_key_is_a_secret_of_the_platforms_organization(db: Database, clock: Clock) -> None:
    platform = await _platform(db, clock)
    authority = await _process(db, clock).signing()
    async with db.reading() as connection:
        (stored,) = await rows(connection, _SECRETS)
    assert (stored.organization_id, stored.purpose) == (platform, "ssh_authority")
    assert b"OPENSSH PRIVATE KEY" not in bytes(stored.ciphertext)
    opened = await keys.read(db, AFTER, stored.id)
    assert opened is not None
    assert Authority(opened.decode()).public_key == authority.public_key


async def test_a_process_without_the_master_key_signs_nothing(db: Database, clock: Clock) -> None:
    await _platform(db, clock)
    await _process(db, clock, LocalKeyManager([NEW])).signing()
    with pytest.raises(KeyManagerError):
        await _process(db, clock, BEFORE).signing()


async def test_without_an_organization_of_operators_the_error_says_how_to_create_it(
    db: Database, clock: Clock
) -> None:
    process = _process(db, clock)
    with pytest.raises(NoAuthority, match="bootstrap --organization NAME --operator"):
        await process.signing()
    await _platform(db, clock)
    clock.advance(1)
    await process.signing()
