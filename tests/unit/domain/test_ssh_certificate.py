"""What an SSH certificate says, how long it is valid, and who gets none."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from control_plane.domain.ids import (
    LeaseId,
    OrganizationId,
    ProjectId,
    ServiceAccountId,
    SshCertificateId,
    SshKeyId,
)
from control_plane.domain.lease import AdmittedKey, LeaseState
from control_plane.domain.refusal import RefusalCode
from control_plane.domain.ssh_certificate import (
    BACKDATED,
    LASTS,
    RECENT_MAX,
    WAITS_MAX,
    Admission,
    Revocation,
    SigningRefusal,
    SshCertificate,
    SshCertificateState,
    Validity,
    refusal,
    serial_of,
    validity,
)
from control_plane.domain.ssh_public_key import SshPublicKey
from control_plane.domain.subject import Subject, SubjectKind
from data_plane.access.authority import CERTIFICATE_LASTS_MAX
from tests.support.cases import case
from tests.support.clock import START

KEY = SshPublicKey("ssh-ed25519 AAAA", "SHA256:a")
ADMITTED = AdmittedKey(SshKeyId(UUID(int=7)), "laptop", KEY.line, KEY.fingerprint)
SECOND = timedelta(seconds=1)


def a_certificate(**other: object) -> SshCertificate:
    certificate = SshCertificate(
        id=SshCertificateId(UUID(int=1)),
        organization_id=OrganizationId(UUID(int=2)),
        project_id=ProjectId(UUID(int=3)),
        lease_id=LeaseId(UUID(int=0xABC)),
        serial=4,
        public_key=KEY.line,
        fingerprint=KEY.fingerprint,
        subject=Subject(SubjectKind.SERVICE_ACCOUNT, ServiceAccountId(UUID(int=5))),
        credential="key_5",
        credential_ends_at=None,
        requested_at=START,
    )
    return replace(certificate, **other)  # type: ignore[arg-type]  # mypy sees one type for all fields.


def an_admission(**other: object) -> Admission:
    admission = Admission(LeaseState.READY, None, frozenset(), 0)
    return replace(admission, **other)  # type: ignore[arg-type]  # mypy sees one type for all fields.


def test_a_certificate_names_its_lease_and_who_asked() -> None:
    certificate = a_certificate()
    assert certificate.principal == f"le_{0xABC:032x}"
    assert certificate.key_id == f"sa_{5:032x} on le_{0xABC:032x}"


def test_it_is_valid_for_minutes_and_no_longer_than_the_credential_that_asked() -> None:
    later = START + 30 * SECOND
    assert validity(a_certificate(), later) == Validity(later - BACKDATED, later + LASTS)
    assert LASTS + BACKDATED <= CERTIFICATE_LASTS_MAX, "the authority signs it"
    for ends_at, expected in (
        (later + LASTS + SECOND, Validity(later - BACKDATED, later + LASTS)),
        (later + SECOND, Validity(later - BACKDATED, later + SECOND)),
        (later, SigningRefusal.CREDENTIAL_ENDED),
    ):
        with case(ends_at):
            assert validity(a_certificate(credential_ends_at=ends_at), later) == expected


def test_a_request_that_waited_too_long_is_not_signed() -> None:
    assert isinstance(validity(a_certificate(), START + WAITS_MAX - SECOND), Validity)
    assert validity(a_certificate(), START + WAITS_MAX) is SigningRefusal.WAITED_TOO_LONG


def test_its_state_follows_from_its_times() -> None:
    signed = {"signed_at": START, "valid_after": START - BACKDATED, "valid_before": START + LASTS}
    refused = {"refused_at": START, "refused_why": SigningRefusal.WAITED_TOO_LONG}
    revoked = {"revoked_at": START, "revoked_why": Revocation.REQUESTED}
    for values, now, state in (
        ({}, START, SshCertificateState.WANTED),
        (signed, START, SshCertificateState.SIGNED),
        (signed, START + LASTS, SshCertificateState.EXPIRED),
        (refused, START, SshCertificateState.REFUSED),
        (revoked, START, SshCertificateState.REVOKED),
        (signed | revoked, START + LASTS, SshCertificateState.REVOKED),
    ):
        with case(values, now):
            assert a_certificate(**values).state(now) is state


def test_only_a_ready_lease_has_something_to_log_in_to() -> None:
    for state in LeaseState:
        with case(state):
            found = refusal(an_admission(state=state), KEY)
            assert (found is None) is (state is LeaseState.READY)
            assert found is None or found.code is RefusalCode.LEASE_NOT_READY


def test_a_lease_that_is_limited_to_keys_admits_these_while_they_are_stored() -> None:
    other = SshPublicKey("ssh-ed25519 BBBB", "SHA256:b")
    stored = frozenset({ADMITTED.id})
    for keys, known, key, admitted in (
        (None, frozenset(), other, True),
        ((), frozenset(), KEY, False),
        ((ADMITTED,), stored, KEY, True),
        ((ADMITTED,), stored, other, False),
        ((ADMITTED,), frozenset(), KEY, False),
    ):
        with case(keys, known, key):
            found = refusal(an_admission(ssh_keys=keys, stored=known), key)
            assert (found is None) is admitted
            assert found is None or found.code is RefusalCode.SSH_KEY_NOT_ADMITTED


def test_a_lease_has_a_bounded_number_of_live_certificates() -> None:
    assert refusal(an_admission(recent=RECENT_MAX - 1), KEY) is None
    found = refusal(an_admission(recent=RECENT_MAX), KEY)
    assert found is not None
    assert found.code is RefusalCode.SSH_CERTIFICATES_TOO_MANY


def test_a_serial_is_the_random_part_of_the_id_and_fits_a_signed_number_of_64_bits() -> None:
    for value, serial in ((0, 1), (5, 5), ((1 << 128) - 1, (1 << 62) - 1)):
        assert serial_of(SshCertificateId(UUID(int=value))) == serial
