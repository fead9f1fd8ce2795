"""SSH certificates for tests: our own access, and logins of customers, past our own access."""

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import asyncssh

from control_plane.world import utc_now
from data_plane.access.authority import Authority
from data_plane.access.ssh import SshAccess
from reconciler.ssh_authorities import FixedAuthority, certifier

Login = tuple[asyncssh.SSHKey, asyncssh.SSHCertificate]
"""A key and its certificate, as asyncssh takes them."""


def our_access(
    authority: Authority,
    *,
    now: Callable[[], datetime] = utc_now,
    login_user: str = "splitplane",
    clock: Callable[[], float] = time.monotonic,
) -> SshAccess:
    certify = certifier(FixedAuthority(authority), now, "tests")
    return SshAccess(certify, login_user=login_user, clock=clock)


def a_login(
    authority: Authority,
    principals: Sequence[str],
    *,
    serial: int = 1,
    key_id: str = "a test",
    starts_in: timedelta = timedelta(minutes=-1),
    lasts: timedelta = timedelta(minutes=6),
    interactive: bool = True,
) -> Login:
    """A new key with a certificate for these principals."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    starts = utc_now() + starts_in
    line = authority.sign(
        key.export_public_key().decode(),
        serial=serial,
        key_id=key_id,
        principals=principals,
        valid_after=starts,
        valid_before=starts + lasts,
        interactive=interactive,
    )
    return key, asyncssh.import_certificate(line)
