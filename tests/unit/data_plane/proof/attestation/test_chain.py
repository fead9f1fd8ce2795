"""The certificates behind a report: order, time, use, root, and what the device is."""

from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from data_plane.documents.strict import Malformed
from data_plane.proof.attestation import chain
from data_plane.proof.attestation.reason import NotTrusted, Reason
from data_plane.proof.attestation.verdict import Attested, verify
from data_plane.proof.protocol.messages import CHAIN_BYTES_MAX
from tests.support import attestation as made


@pytest.mark.parametrize("chip", ["GH100", "GB100"])
def test_a_gpu_of_ours_is_believed_under_our_root(chip: str) -> None:
    gpu = made.make(made.line(chip))
    verdict = verify(
        made.Report(made.NONCE).signed_by(gpu),
        gpu.pem,
        nonce=made.NONCE,
        roots={gpu.root},
        now=made.NOW,
        model="b200-sxm-180gb" if chip == "GB100" else "h100-sxm-80gb",
    )
    assert isinstance(verdict, Attested)
    assert (verdict.chip, verdict.device, verdict.measured) == (chip, "41431D480FE5E87274", 2)


def test_the_right_names_under_another_root_are_worth_nothing() -> None:
    content = made.Report(made.NONCE).signed_by(made.HONEST)
    verdict = verify(
        content,
        made.HONEST.pem,
        nonce=made.NONCE,
        roots=chain.NVIDIA_ROOTS,
        now=made.NOW,
        model="h100-sxm-80gb",
    )
    assert made.code(verdict) is Reason.ROOT


def test_a_foreign_chain_with_the_real_root_at_its_end_is_not_under_it() -> None:
    _, pem, _ = made.real("hopper-580")
    root = x509.load_pem_x509_certificates(pem)[-1]
    forged = made.pem([*made.HONEST.chain[:-1], root])
    content = made.Report(made.NONCE).signed_by(made.HONEST)
    verdict = verify(
        content, forged, nonce=made.NONCE, roots=chain.NVIDIA_ROOTS, now=made.NOW, model="h100-sxm-80gb"
    )
    assert made.code(verdict) is Reason.CHAIN


@pytest.mark.parametrize("depth", range(5))
def test_every_certificate_has_its_time(depth: int) -> None:
    late = made.make(made.spoilt(depth, ends=made.NOW - timedelta(seconds=1)))
    early = made.make(made.spoilt(depth, begins=made.NOW + timedelta(seconds=1)))
    assert made.code(made.judge(gpu=late)) is made.code(made.judge(gpu=early)) is Reason.EXPIRED
    assert made.code(made.judge(gpu=late, now=made.NOW - timedelta(seconds=1))) is None
    assert made.code(made.judge(gpu=early, now=made.NOW + timedelta(seconds=1))) is None


UNKNOWN = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00")


@pytest.mark.parametrize(
    ("depth", "changes"),
    [
        (0, {"authority": True}),
        (0, {"signs": False}),
        (0, {"signs": None}),
        (0, {"certifies": True}),
        (0, {"curve": ec.SECP256R1()}),
        (0, {"hashed": SHA256()}),
        (0, {"extension": UNKNOWN, "critical": True}),
        (0, {"forged": True}),
        (1, {"authority": False}),
        (1, {"authority": None}),
        (1, {"certifies": False}),
        (1, {"signs": None}),
        (1, {"forged": True}),
        (2, {"authority": False}),
        (2, {"path_length": 0}),
        (2, {"forged": True}),
        (2, {"curve": ec.SECP256R1()}),
        (3, {"path_length": 1}),
        (3, {"hashed": SHA256()}),
        (3, {"forged": True}),
        (4, {"path_length": 2}),
        (4, {"certifies": False}),
        (4, {"extension": UNKNOWN, "critical": True}),
    ],
)
def test_a_certificate_that_may_not_stand_where_it_stands_breaks_the_chain(
    depth: int, changes: dict[str, object]
) -> None:
    assert made.code(made.judge(gpu=made.make(made.spoilt(depth, **changes)))) is Reason.CHAIN


@pytest.mark.parametrize(("depth", "length"), [(1, 0), (2, 1), (3, 2), (4, 3)])
def test_a_path_length_that_is_just_enough_is_enough(depth: int, length: int) -> None:
    assert made.code(made.judge(gpu=made.make(made.spoilt(depth, path_length=length)))) is None


def test_a_condition_that_is_not_critical_may_be_unknown() -> None:
    assert made.code(made.judge(gpu=made.make(made.spoilt(2, extension=UNKNOWN)))) is None


@pytest.mark.parametrize(
    "order",
    [
        (1, 0, 2, 3, 4),
        (0, 2, 1, 3, 4),
        (0, 1, 3, 2, 4),
        (0, 1, 2, 4),
        (1, 2, 3, 4),
        (0, 0, 1, 2, 3, 4),
        (0, 1, 2, 3, 4, 4),
        (0, 0, 2, 3, 4),
        (4, 4, 4, 4, 4),
    ],
)
def test_certificates_stand_in_their_order_and_none_is_missing(order: tuple[int, ...]) -> None:
    spoilt = made.pem([made.HONEST.chain[depth] for depth in order])
    assert made.code(made.judge(chain=spoilt)) is Reason.CHAIN


def test_a_chain_the_wrong_way_round_ends_in_no_root() -> None:
    assert made.code(made.judge(chain=made.pem(made.HONEST.chain[::-1]))) is Reason.ROOT


@pytest.mark.parametrize(
    "names",
    [
        ("LS_10 A01 FSP BROM",),
        ("GH100 A01 GSP BROM and more",),
        ("GH100 A01 FSP BROM",),
        ("AD102 A01 GSP BROM",),
        ("GH100 A01 GSP BROM", "GB100 A01 GSP BROM"),
        (),
    ],
)
def test_what_is_no_gpu_by_its_identity_is_none(names: tuple[str, ...]) -> None:
    assert made.code(made.judge(gpu=made.make(made.spoilt(1, names=names)))) is Reason.DEVICE


@pytest.mark.parametrize("pem", [b"", b"nonsense", b"\xff" * 100, b"-----BEGIN CERTIFICATE-----\n"])
def test_an_invalid_chain_is_malformed(pem: bytes) -> None:
    assert made.code(made.judge(chain=pem)) is Reason.MALFORMED


def test_a_serial_number_below_one_is_malformed() -> None:
    """The library only warns of one, so far; here warnings are errors, and none may leave."""
    ders = [one.public_bytes(Encoding.DER) for one in made.HONEST.chain]
    position = ders[0].index(b"\x02\x01\x05")
    ders[0] = ders[0][: position + 2] + b"\x85" + ders[0][position + 3 :]
    assert made.code(made.judge(chain=made.armoured(ders))) is Reason.MALFORMED


def test_a_chain_is_bounded_before_it_is_read() -> None:
    padded = made.HONEST.pem + b"\n" * (CHAIN_BYTES_MAX - len(made.HONEST.pem))
    assert made.code(made.judge(chain=padded)) is None
    assert made.code(made.judge(chain=padded + b"\n")) is Reason.MALFORMED


@given(st.binary(max_size=400), st.integers(0, 4), st.integers(0, 600))
def test_no_bytes_bring_the_reader_of_chains_down_or_pass(content: bytes, depth: int, position: int) -> None:
    honest = [one.public_bytes(Encoding.DER) for one in made.HONEST.chain]
    spoilt = list(honest)
    spoilt[depth] = honest[depth][:position] + content + honest[depth][position + len(content) :]
    for pem in (content, made.armoured([content]), made.armoured(spoilt)):
        try:
            chain.verify(pem, {made.HONEST.root}, made.NOW)
        except (Malformed, NotTrusted):
            continue
        assert spoilt == honest
