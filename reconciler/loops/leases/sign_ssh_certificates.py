"""Signs the SSH certificates that customers request.

The API stores requests, because it holds no key of an authority. A signature has no effect outside of this process
until its row is committed, so requests are locked, signed and stored in one transaction: after a crash, another
activation signs them anew, with the same serials. A request that was revoked meanwhile is not signed, and an authority
that was replaced meanwhile signs nothing. Somebody waits for each certificate, so PostgreSQL's notification of a
request wakes this loop.
"""

from datetime import datetime, timedelta

from control_plane.db import ssh_authorities, ssh_certificates
from control_plane.db.ssh_certificates import REQUESTS, NotSigned, Signed
from control_plane.domain.ssh_certificate import SigningRefusal, SshCertificate, Validity, validity
from data_plane.access.authority import Authority
from reconciler.loop import Loop, Report
from reconciler.worlds.leases import LeaseWorld

NAME = "sign_ssh_certificates"
CERTIFICATES_PER_ACTIVATION_MAX = 50


async def activate(world: LeaseWorld) -> Report:
    async with world.db.reading() as connection:
        if not await ssh_certificates.any_wanted(connection):
            return Report()
    # No transaction is open while a key manager is asked.
    authority = await world.ssh_authorities.signing()
    async with world.db.transaction() as connection:
        if not await ssh_authorities.may_sign(connection, authority.public_key):
            return Report()
        wanted = await ssh_certificates.lock_wanted(connection, limit=CERTIFICATES_PER_ACTIVATION_MAX)
        now = world.now()
        results = [_result(authority, certificate, now) for certificate in wanted]
        signed = [result for result in results if isinstance(result, Signed)]
        refused = [result for result in results if isinstance(result, NotSigned)]
        await ssh_certificates.sign(connection, signed, now=now)
        await ssh_certificates.refuse(connection, refused, now=now)
    return Report(
        looked_at=len(wanted), acted_on=len(wanted), more=len(wanted) == CERTIFICATES_PER_ACTIVATION_MAX
    )


def _result(authority: Authority, certificate: SshCertificate, now: datetime) -> Signed | NotSigned:
    times = validity(certificate, now)
    if not isinstance(times, Validity):
        return NotSigned(certificate.id, times)
    try:
        line = authority.sign(
            certificate.public_key,
            serial=certificate.serial,
            key_id=certificate.key_id,
            principals=[certificate.principal],
            valid_after=times.after,
            valid_before=times.before,
            interactive=True,
        )
    except ValueError:  # Only this one is refused: it must not hold up the others for ever.
        return NotSigned(certificate.id, SigningRefusal.KEY_UNUSABLE)
    return Signed(certificate.id, line, times.after, times.before)


LOOP = Loop(NAME, timedelta(seconds=2), activate, hears=(REQUESTS,))
