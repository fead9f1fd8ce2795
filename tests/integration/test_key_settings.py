"""How the API and the reconciler come to their halves of the key manager, and how an organization brings its own key."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from control_plane.db import secrets
from control_plane.db.engine import Database, Role
from control_plane.domain.ids import OrganizationId, Prefix, on_wire
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.domain.secret import KeyContext, MasterKey, Plain, Purpose, Sealed
from control_plane.services import administration, sealing
from control_plane.settings import Settings
from control_plane.vault.errors import KeyManagerRefused
from control_plane.vault.sealing.aws_kms import KmsKeyMaker
from control_plane.vault.sealing.port import NewDataKey
from control_plane.vault.unsealing.aws_kms import KmsKeyManager
from control_plane.world import World
from environment.reading import SettingsError
from reconciler.keys import key_manager
from reconciler.settings import KeySettings
from tests.support.cases import case
from tests.support.clock import Clock
from tests.support.keys import AFTER, NEW, SEALING

ARN = MasterKey("arn:aws:kms:eu-central-1:123456789012:key/ours")
OWN = MasterKey("arn:aws:kms:eu-central-1:210987654321:key/theirs")
API = Settings(database_url="unused")


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """The private key of the reconciler, and the public one of the API."""
    private, public = tmp_path / "unsealing.pem", tmp_path / "sealing.pem"
    private.write_bytes(NEW.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    private.chmod(0o600)
    public.write_bytes(NEW.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


def test_each_process_gets_its_half_from_its_own_variables(files: tuple[Path, Path]) -> None:
    private, public = files
    local = sealing.key_maker(replace(API, sealing_key=public))
    assert local is not None
    assert not hasattr(local, "unwrap")
    whole = key_manager(KeySettings(unsealing_keys=private))
    assert whole is not None
    assert whole.master == AFTER.master
    assert type(sealing.key_maker(replace(API, kms_key=ARN))) is KmsKeyMaker
    assert type(key_manager(KeySettings(kms_key=ARN))) is KmsKeyManager
    assert sealing.key_maker(API) is None
    assert key_manager(KeySettings()) is None


def test_a_key_that_cannot_be_used_is_one_sentence_that_names_the_variable(files: tuple[Path, Path]) -> None:
    private, public = files
    gone = private.with_name("gone.pem")
    open_to_all = private.with_name("open.pem")
    open_to_all.write_bytes(private.read_bytes())
    open_to_all.chmod(0o644)
    for name, settings, words in (
        ("both", KeySettings(kms_key=ARN, unsealing_keys=private), "not both"),
        ("gone", KeySettings(unsealing_keys=gone), "UNSEALING_KEYS_PATH is .*No such file"),
        ("open", KeySettings(unsealing_keys=open_to_all), "chmod 600"),
        ("public", KeySettings(unsealing_keys=_private_copy(public)), "UNSEALING_KEYS_PATH is"),
    ):
        with case(name), pytest.raises(SettingsError, match=words):
            key_manager(settings)
    for name, api, words in (
        ("both", replace(API, kms_key=ARN, sealing_key=public), "not both"),
        ("gone", replace(API, sealing_key=gone), "SEALING_KEY_PATH is .*No such file"),
        ("the private key", replace(API, sealing_key=private), "SEALING_KEY_PATH is"),
    ):
        with case(name), pytest.raises(SettingsError, match=words):
            sealing.key_maker(api)


def _private_copy(path: Path) -> Path:
    copy = path.with_name("copy.pem")
    copy.write_bytes(path.read_bytes())
    copy.chmod(0o600)
    return copy


# A key of an organization's own


class _Recording:
    """Makes data keys as the API does, and notes under which master key it was asked for them."""

    def __init__(self) -> None:
        self.asked: list[MasterKey | None] = []

    async def make_data_key(self, context: KeyContext, master: MasterKey | None = None) -> NewDataKey:
        self.asked.append(master)
        return replace(await SEALING.make_data_key(context), master=master or SEALING.master)


@pytest.fixture
async def admin(database_url: str, clock: Clock) -> AsyncIterator[World]:
    database = Database(database_url, role=Role.ADMIN, pool_size=1, readers=1)
    yield World(database, now=clock.now)
    await database.close()


async def _seal(world: World, organization_id: OrganizationId) -> Sealed | Refused:
    return await sealing.seal(world, organization_id, Purpose.PROVIDER_CREDENTIALS, Plain(b"secret"))


@pytest.mark.database
async def test_an_administrator_lets_an_organization_bring_its_own_key_and_go_back(
    admin: World, api_db: Database, clock: Clock
) -> None:
    made = [
        await administration.bootstrap(admin, name, top_up=None, gpu_quota=8) for name in ("acme", "other")
    ]
    acme, other = (first.id for first in made if not isinstance(first, Refused))
    recording = _Recording()
    world = World(api_db, now=clock.now, sealing=recording)
    for organization, master in (("acme", OWN), (on_wire(Prefix.ORGANIZATION, acme), None)):
        assert await administration.set_master_key(admin, organization, master) is None
        for organization_id, expected in ((acme, master), (other, None)):
            sealed = await _seal(world, organization_id)
            assert isinstance(sealed, Sealed)
            assert recording.asked[-1] == expected
    unknown = await administration.set_master_key(admin, "nobody", OWN)
    assert isinstance(unknown, Refused)
    assert unknown.code is RefusalCode.NOT_FOUND


@pytest.mark.database
async def test_a_refusal_of_the_organizations_own_key_is_shown_and_nothing_is_sealed_under_ours(
    admin: World, api_db: Database, clock: Clock
) -> None:
    made = await administration.bootstrap(admin, "acme", top_up=None, gpu_quota=8)
    assert not isinstance(made, Refused)
    await administration.set_master_key(admin, "acme", OWN)
    refused = await _seal(World(api_db, now=clock.now, sealing=SEALING), made.id)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.KEY_MANAGER_REFUSED
    assert OWN in refused.why
    async with api_db.reading(made.id) as connection:
        assert await secrets.master_of(connection, made.id) == OWN
    with pytest.raises(KeyManagerRefused):
        await SEALING.make_data_key(KeyContext(made.id, Purpose.PROVIDER_CREDENTIALS), OWN)
