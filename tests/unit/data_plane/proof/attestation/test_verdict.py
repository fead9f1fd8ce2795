"""Reports that real GPUs signed, under NVIDIA's own root, and every way to spoil a signature."""

from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.serialization import Encoding

from data_plane.documents.strict import Malformed
from data_plane.proof.attestation import chain, golden, report
from data_plane.proof.attestation.reason import NotTrusted, Reason
from data_plane.proof.attestation.verdict import Attested, Rejected, verify
from tests.support import attestation as made

RIM = (made.FIXTURES / "vbios-96.00.5E.00.01.rim.xml").read_bytes()


def judge_real(
    content: bytes, pem: bytes, nonce: bytes, model: str = "h100-pcie-80gb"
) -> Attested | Rejected:
    return verify(content, pem, nonce=nonce, roots=chain.NVIDIA_ROOTS, now=made.NOW, model=model)


# ---- real devices -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "model", "expected"),
    [
        (
            "hopper-535",
            "h100-pcie-80gb",
            Attested(
                chip="GH100",
                architecture="hopper",
                device="416A5FAFCBD9FA5CA3",
                board="1010-0200",
                driver="535.86.09",
                vbios="96.00.5E.00.01",
                measured=26,
                compared=0,
                unchecked=("revocation", "driver_measurements", "vbios_measurements", "firmware_id"),
            ),
        ),
        (
            "hopper-580",
            "h200-sxm-141gb",
            Attested(
                chip="GH100",
                architecture="hopper",
                device="41E23D711E1C4FBFAC",
                board="1010-0205",
                driver="580.159.03",
                vbios="96.00.74.00.20",
                measured=27,
                compared=0,
                unchecked=("revocation", "driver_measurements", "vbios_measurements"),
            ),
        ),
        (
            "blackwell-575",
            "b200-sxm-180gb",
            Attested(
                chip="GB100",
                architecture="blackwell",
                device="41E6DE55C3BDC14277",
                board="G525-0220",
                driver="575.32",
                vbios="97.00.88.00.0F",
                measured=31,
                compared=0,
                unchecked=("revocation", "driver_measurements", "vbios_measurements"),
            ),
        ),
    ],
)
def test_a_real_gpu_is_verified_against_nvidias_own_root(name: str, model: str, expected: Attested) -> None:
    assert judge_real(*made.real(name), model) == expected


def test_what_a_real_gpu_measured_is_what_nvidia_published_for_its_vbios() -> None:
    content, pem, nonce = made.real("hopper-535")
    known = golden.read(RIM)
    verdict = verify(
        content,
        pem,
        nonce=nonce,
        roots=chain.NVIDIA_ROOTS,
        now=made.NOW,
        model="h100-pcie-80gb",
        golden=[known],
    )
    assert isinstance(verdict, Attested)
    assert verdict.compared == len(known.values) == 12
    assert verdict.unchecked == ("revocation", "driver_measurements", "firmware_id")


def test_a_real_switch_shares_the_root_and_is_no_gpu() -> None:
    """Its chain even runs through `NVIDIA GH100 Identity`: an architecture read there would be a Hopper's."""
    content, pem, nonce = made.real("nvswitch")
    with pytest.raises(NotTrusted) as refused:
        chain.verify(pem, chain.NVIDIA_ROOTS, made.NOW)
    assert refused.value.reason is Reason.DEVICE
    assert isinstance(judge_real(content, pem, nonce), Rejected)


def test_the_real_root_is_the_only_one_we_ship() -> None:
    _, pem, _ = made.real("hopper-580")
    root = x509.load_pem_x509_certificates(pem)[-1]
    assert {root.fingerprint(SHA256())} == chain.NVIDIA_ROOTS


def test_a_real_report_answers_one_nonce_only() -> None:
    content, pem, nonce = made.real("hopper-580")
    assert made.code(judge_real(content, pem, nonce[:-1] + b"\x00")) is Reason.NONCE


def test_a_real_report_does_not_fit_the_chain_of_another_real_gpu() -> None:
    content, _, nonce = made.real("hopper-580")
    _, other, _ = made.real("hopper-535")
    assert made.code(judge_real(content, other, nonce)) is Reason.SIGNATURE


@pytest.mark.parametrize("model", ["b200-sxm-180gb", "l40s-48gb", "no-such-model"])
def test_a_real_hopper_is_not_accepted_for_another_chip(model: str) -> None:
    assert made.code(judge_real(*made.real("hopper-580"), model)) is Reason.MODEL


def test_no_byte_of_a_real_report_can_be_changed() -> None:
    content, pem, nonce = made.real("hopper-580")
    for position in [*range(0, len(content), 97), 4, 36, 41, 42, len(content) - 96, len(content) - 1]:
        flipped = content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]
        expected = {Reason.MALFORMED, Reason.NONCE, Reason.SIGNATURE, Reason.FIRMWARE}
        assert made.code(judge_real(flipped, pem, nonce)) in expected, position


def test_no_byte_of_a_real_chain_can_be_changed() -> None:
    content, pem, nonce = made.real("blackwell-575")
    ders = [one.public_bytes(Encoding.DER) for one in x509.load_pem_x509_certificates(pem)]
    for depth, der in enumerate(ders):
        for position in [*range(0, len(der), 53), len(der) - 1]:
            flipped = der[:position] + bytes([der[position] ^ 1]) + der[position + 1 :]
            spoilt = made.armoured([*ders[:depth], flipped, *ders[depth + 1 :]])
            assert isinstance(judge_real(content, spoilt, nonce, "b200-sxm-180gb"), Rejected), (
                depth,
                position,
            )


@pytest.mark.parametrize("name", ["hopper-535", "hopper-580", "blackwell-575"])
def test_a_real_report_cut_anywhere_is_no_report(name: str) -> None:
    content, _, _ = made.real(name)
    for size in range(len(content)):
        with pytest.raises(Malformed):
            report.read(content[:size])


def test_a_real_report_with_something_behind_it_is_no_report() -> None:
    content, pem, nonce = made.real("hopper-580")
    assert made.code(judge_real(content + b"\0", pem, nonce)) is Reason.MALFORMED


def test_a_real_chain_cut_anywhere_is_no_chain() -> None:
    content, pem, nonce = made.real("hopper-580")
    for size in range(0, len(pem.rstrip()), 16):
        assert isinstance(judge_real(content, pem[:size], nonce), Rejected), size


def test_our_generator_writes_what_a_real_driver_writes() -> None:
    """Else all tests below could pass on a format of our own."""
    content, _, nonce = made.real("hopper-580")
    parsed = report.read(content)
    record = b"".join(made.block(index, value) for index, value in parsed.measurements.items())
    behind = 45 + len(record)
    again = made.Report(
        nonce,
        blocks=tuple(made.block(index, value) for index, value in parsed.measurements.items()),
        gpu_nonce=content[behind : behind + 32],
        opaque=content[behind + 34 : -96],
    )
    assert again.unsigned() == parsed.signed


# ---- the signature ------------------------------------------------------------------------------------------


def test_a_replay_is_detected_by_its_nonce() -> None:
    assert made.code(made.judge(made.Report(bytes(32)))) is Reason.NONCE


def test_a_nonce_put_in_afterwards_is_detected_by_the_signature() -> None:
    content = made.Report(bytes(32)).signed_by(made.HONEST)
    assert made.code(made.judge(content[:4] + made.NONCE + content[36:])) is Reason.SIGNATURE


def test_another_gpus_report_does_not_pass_for_this_one() -> None:
    """Same firmware, same line, same nonce: another device."""
    other = made.Gpu(made.HONEST.chain, ec.generate_private_key(ec.SECP384R1()))
    assert made.code(made.judge(made.Report(made.NONCE).signed_by(other))) is Reason.SIGNATURE


def _spoilt_signature(change: Callable[[int, int], tuple[int, int]]) -> bytes:
    content = made.Report(made.NONCE).unsigned()
    r, s = decode_dss_signature(made.HONEST.key.sign(content, ec.ECDSA(SHA384())))
    return content + made.signature(*change(r, s))


@pytest.mark.parametrize(
    "change",
    [
        lambda r, s: (0, s),
        lambda r, s: (r, 0),
        lambda r, s: (0, 0),
        lambda r, s: (made.ORDER, s),
        lambda r, s: (r, made.ORDER),
        lambda r, s: (2**384 - 1, 2**384 - 1),
        lambda r, s: (s, r),
        lambda r, s: (made.ORDER - r, s),
        lambda r, s: (r, s ^ 1),
        lambda r, s: (1, 1),
    ],
)
def test_a_signature_of_other_numbers_is_none(change: Callable[[int, int], tuple[int, int]]) -> None:
    assert made.code(made.judge(_spoilt_signature(change))) is Reason.SIGNATURE


def test_a_mirrored_signature_says_the_same_so_its_bytes_name_nothing() -> None:
    """ECDSA takes s and n - s alike, and devices write both: a report's own bytes are no identity."""
    assert made.judge(_spoilt_signature(lambda r, s: (r, made.ORDER - s))) == made.judge()
