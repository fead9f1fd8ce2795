"""Who gets in on real machines: sshd accepts certificates of our authorities, for their principal, and nothing else.

Every judge logs in with asyncssh and a certificate of its own, without our access.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import timedelta

import asyncssh
import pytest
import pytest_asyncio

from data_plane.access.authority import Authority, new_authority
from data_plane.access.customer import admit_customer, end_customer
from data_plane.access.login import close_other_logins, trust
from data_plane.access.port import LoginRefused, StepFailed
from data_plane.access.revocation import revoke
from data_plane.access.ssh import SshAccess, new_host_key
from providers.emulators.host import MachineSpec
from providers.emulators.image import ensure_image
from providers.emulators.nspawn import NspawnHost, missing_requirements
from tests.support.certificates import Login, a_login, our_access
from tests.support.machines import IMAGES, Machine, boot_order, ready

pytestmark = [
    pytest.mark.machines,
    pytest.mark.xdist_group("machines"),
    pytest.mark.skipif(bool(missing_requirements()), reason="; ".join(missing_requirements())),
]

LEASE, OTHER_LEASE = "le_" + "1" * 32, "le_" + "2" * 32
REFUSED = (asyncssh.PermissionDenied, asyncssh.ConnectionLost)


@dataclass
class Fleet:
    authority: Authority
    access: SshAccess
    one: Machine
    two: Machine
    plain: asyncssh.SSHKey
    """A key that the provider installed for every user."""


def _with_keys_of_the_provider(boot: str, key: asyncssh.SSHKey) -> str:
    """User data as if the provider, too, had its registered key installed for every user."""
    head, _, body = boot.partition("\n")
    config = json.loads(body)
    line = key.export_public_key().decode().strip()
    for user in config["users"]:
        user["ssh_authorized_keys"] = [line]
    config["bootcmd"] = [f"mkdir -p ~root/.ssh && echo '{line}' > ~root/.ssh/authorized_keys"]
    return f"{head}\n{json.dumps(config)}\n"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def fleet() -> AsyncIterator[Fleet]:
    host = await NspawnHost.open(await asyncio.to_thread(ensure_image, IMAGES, print))
    try:
        authority, plain = new_authority(), asyncssh.generate_private_key("ssh-ed25519")
        access = our_access(authority)
        keys = {name: new_host_key() for name in ("sp-one", "sp-two")}
        for name, key in keys.items():
            boot = _with_keys_of_the_provider(boot_order(key, [authority], name), plain)
            await host.boot(MachineSpec(name, boot, ()))
        targets = await asyncio.gather(*(ready(host, access, name, key) for name, key in keys.items()))
        one, two = (Machine(target, authority) for target in targets)
        yield Fleet(authority, access, one, two, plain)
    finally:
        await host.close()


def _connected(
    machine: Machine, login: Login | asyncssh.SSHKey, *, user: str = "ubuntu"
) -> AbstractAsyncContextManager[asyncssh.SSHClientConnection]:
    return machine.connected(user=user, login=login)


async def _gets_in(machine: Machine, login: Login | asyncssh.SSHKey, *, user: str = "ubuntu") -> bool:
    try:
        return (await machine.sh("whoami", user=user, login=login)).strip() == user
    except REFUSED:
        return False


async def test_the_key_that_a_provider_installs_opens_nothing_and_is_deleted_at_the_bootstrap(
    fleet: Fleet,
) -> None:
    machine = fleet.one
    files = " ".join(f"~{user}/.ssh/authorized_keys" for user in ("root", "ubuntu", "splitplane"))
    line = fleet.plain.export_public_key().decode().strip()
    installed = (await machine.sh(f"sudo cat {files}")).splitlines()
    assert installed == [line] * 3, "this test stands on keys that are there"
    for user in ("root", "ubuntu", "splitplane"):
        assert not await _gets_in(machine, fleet.plain, user=user), user
    async with fleet.access.connect(machine.target) as session:
        for _ in range(2):
            await close_other_logins(session)
    # cloud-init makes the files anew in its last stage, without a key, when it looks for fingerprints of keys.
    assert (await machine.sh(f"sudo cat {files} 2>/dev/null || true")).strip() == ""


async def test_a_machine_whose_sshd_accepts_other_logins_too_is_not_taken_over(fleet: Fleet) -> None:
    machine, path = fleet.two, "/etc/ssh/sshd_config.d/00-aaa-image.conf"
    for setting, named in (
        ("AuthorizedKeysFile .ssh/authorized_keys", "authorizedkeysfile none"),
        ("PasswordAuthentication yes", "passwordauthentication no"),
        ("TrustedUserCAKeys /etc/ssh/their_ca", "trustedusercakeys /etc/ssh/splitplane/authorities"),
        ("Match User root\n AuthorizedKeysCommand /bin/true", "authorizedkeyscommand none"),
    ):
        await machine.sh(f"printf '%b\\n' '{setting}' | sudo tee {path}".replace("\n", "\\n"))
        try:
            async with fleet.access.connect(machine.target) as session:
                with pytest.raises(StepFailed, match=named):
                    await close_other_logins(session)
        finally:
            await machine.sh(f"sudo rm {path}")


async def test_only_a_certificate_for_this_machine_logs_us_in(fleet: Fleet) -> None:
    strangers = (
        (our_access(new_authority()), fleet.one.target),
        (fleet.access, replace(fleet.one.target, principal=fleet.two.target.principal)),
        (fleet.access, replace(fleet.one.target, principal="ubuntu")),
    )
    for access, target in strangers:
        with pytest.raises(LoginRefused, match="clock"):
            async with access.connect(target):
                pytest.fail(f"logged in as {target.principal}")


async def test_only_a_certificate_for_the_admitted_lease_logs_the_customer_in(fleet: Fleet) -> None:
    machine, authority = fleet.one, fleet.authority
    right = a_login(authority, [LEASE])
    assert not await _gets_in(machine, right), "nobody was admitted yet"
    async with fleet.access.connect(machine.target) as session:
        for _ in range(2):
            await admit_customer(session, LEASE)
    assert await _gets_in(machine, right)
    minutes = timedelta(minutes=1)
    refused: dict[str, Login | asyncssh.SSHKey] = {
        "another lease": a_login(authority, [OTHER_LEASE]),
        "the user's name": a_login(authority, ["ubuntu"]),
        "expired": a_login(authority, [LEASE], starts_in=-10 * minutes, lasts=9 * minutes),
        "not valid yet": a_login(authority, [LEASE], starts_in=2 * minutes),
        "another authority": a_login(new_authority(), [LEASE]),
        "our own principal": a_login(authority, [machine.target.principal]),
        "the key without its certificate": right[0],
    }
    for what, login in refused.items():
        assert not await _gets_in(machine, login), what
    for user in ("splitplane", "root"):
        assert not await _gets_in(machine, right, user=user), f"the customer as {user}"
    assert not await _gets_in(fleet.two, right), "the lease is admitted to the other machine only"
    async with fleet.access.connect(machine.target) as session:
        await admit_customer(session, OTHER_LEASE)
    assert not await _gets_in(machine, right), "another lease was admitted instead"
    assert await _gets_in(machine, refused["another lease"])


async def test_what_our_certificate_permits_is_to_run_commands_and_no_more(fleet: Fleet) -> None:
    machine = fleet.one
    login = a_login(fleet.authority, [machine.target.principal], interactive=False)
    async with _connected(machine, login, user="splitplane") as connection:
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.open_connection("127.0.0.1", 22)
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.run("true", term_type="xterm")


async def test_a_customer_who_was_ended_runs_nothing_and_comes_in_no_more(fleet: Fleet) -> None:
    machine, login = fleet.two, a_login(fleet.authority, [LEASE])
    try:
        async with fleet.access.connect(machine.target) as session:
            await admit_customer(session, LEASE)
            await machine.sh("nohup setsid sleep 1000 >/dev/null 2>&1 &", user="ubuntu", login=login)
            processes = "find /proc -maxdepth 1 -name '[0-9]*' -user ubuntu"
            assert (await machine.sh(processes)).strip()
            for _ in range(2):
                await end_customer(session)
            assert not (await machine.sh(processes)).strip()
            await machine.sh("sudo usermod --expiredate '' ubuntu")
            assert not await _gets_in(machine, login), (
                "the principal is gone, whatever becomes of the account"
            )
            async with fleet.access.connect(machine.target):
                pass  # We are still let in.
    finally:
        await machine.sh("sudo usermod --expiredate '' ubuntu")


async def test_a_rotation_of_the_authority_refuses_no_login_at_any_step(fleet: Fleet) -> None:
    machine, old, new = fleet.two, fleet.authority, new_authority()

    async def accepted(*authorities: Authority) -> list[bool]:
        return [await _gets_in(machine, a_login(authority, [LEASE])) for authority in authorities]

    async with fleet.access.connect(machine.target) as session:
        await admit_customer(session, LEASE)
        assert await accepted(old, new) == [True, False]
        await trust(session, [old.public_key, new.public_key])
        assert await accepted(old, new) == [True, True]
        async with our_access(new).connect(machine.target) as with_the_new_one:
            await trust(with_the_new_one, [new.public_key])
            assert await accepted(old, new) == [False, True]
            await trust(with_the_new_one, [old.public_key])
        for nonsense in ([], ["", old.public_key], [f"{old.public_key}\n{new.public_key}"]):
            with pytest.raises(StepFailed):
                await trust(session, nonsense)
    assert await accepted(old, new) == [True, False]


async def test_a_certificate_that_is_revoked_before_its_authority_is_trusted_is_refused_afterwards(
    fleet: Fleet,
) -> None:
    machine, old, new = fleet.two, fleet.authority, new_authority()
    async with fleet.access.connect(machine.target) as session:
        await admit_customer(session, LEASE)
        await revoke(session, [51])
        await trust(session, [old.public_key, new.public_key])
        try:
            assert not await _gets_in(machine, a_login(new, [LEASE], serial=51))
            assert await _gets_in(machine, a_login(new, [LEASE], serial=52))
        finally:
            await trust(session, [old.public_key])
            await revoke(session, [])


async def test_a_revoked_certificate_is_refused_and_its_sessions_end_while_others_live(fleet: Fleet) -> None:
    machine, authority = fleet.one, fleet.authority
    leaver = a_login(authority, [LEASE], serial=41, key_id="user_a (serial 42) CA on le_1")
    stayer = a_login(authority, [LEASE], serial=42, key_id="user_b on le_1")
    async with fleet.access.connect(machine.target) as session:
        await admit_customer(session, LEASE)
        await revoke(session, [])
        async with (
            _connected(machine, leaver) as leaving,
            _connected(machine, leaver) as forwarding,
            _connected(machine, stayer) as staying,
        ):
            await leaving.run("nohup setsid sleep 1001 >/dev/null 2>&1 &", check=True)
            # Not before the command has begun: a server that is stopped earlier never says that it has.
            frozen = await leaving.create_process("echo began; read line; kill -STOP $PPID; sleep 1002")
            await frozen.stdout.readline()
            frozen.stdin.write("go\n")
            began = asyncio.get_running_loop().time()
            await revoke(session, [41])
            async with asyncio.timeout(10):
                await leaving.wait_closed()
                await forwarding.wait_closed()
            assert asyncio.get_running_loop().time() - began < 10
            frozen.close()
            assert not await _gets_in(machine, leaver)
            assert await _gets_in(machine, stayer)
            assert str((await staying.run("pgrep -f 'sleep 1001'", check=True)).stdout).strip(), "detached"
            await revoke(session, [41], every_session=True)
            async with asyncio.timeout(10):
                await staying.wait_closed()
            assert await _gets_in(machine, stayer), "its session has ended, and its certificate has not"
        await revoke(session, [41, 42])
        assert not await _gets_in(machine, stayer)
        await revoke(session, [])
        assert await _gets_in(machine, stayer), "the list says exactly what is revoked"
        for serial in (0, -1, 2**64):
            with pytest.raises(StepFailed):
                await revoke(session, [serial])
