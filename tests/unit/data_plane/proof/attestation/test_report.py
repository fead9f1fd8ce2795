"""What a report says: its format, the firmware that signed it, what was measured."""

import re
from collections.abc import Callable

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from data_plane.documents.strict import Malformed
from data_plane.proof.attestation import golden, report
from data_plane.proof.attestation.reason import Reason
from data_plane.proof.attestation.verdict import Attested, Rejected, chip_of
from data_plane.proof.protocol.messages import REPORT_BYTES_MAX
from tests.support import attestation as made

RIM = (made.FIXTURES / "vbios-96.00.5E.00.01.rim.xml").read_bytes()


def _blocks(*blocks: bytes) -> made.Report:
    return made.Report(made.NONCE, blocks=blocks)


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(made.Report(made.NONCE, request=b"\x12\xe0\x01\xff"), id="SPDM 1.2"),
        pytest.param(made.Report(made.NONCE, request=b"\x11\xe0\x00\xff"), id="no signature asked for"),
        pytest.param(made.Report(made.NONCE, request=b"\x11\xe0\x01\x01"), id="one measurement asked for"),
        pytest.param(made.Report(made.NONCE, slot=1), id="another slot"),
        pytest.param(made.Report(made.NONCE, response=b"\x11\x7f\x00\x00"), id="an SPDM error"),
        pytest.param(made.Report(made.NONCE, response=b"\x12\x60\x00\x00"), id="response of SPDM 1.2"),
        pytest.param(made.Report(made.NONCE, count=2), id="fewer announced"),
        pytest.param(made.Report(made.NONCE, count=4), id="more announced"),
        pytest.param(made.Report(made.NONCE, blocks=()), id="nothing measured"),
        pytest.param(made.Report(made.NONCE, record_bytes=0xFFFFFF), id="a record without end"),
        pytest.param(made.Report(made.NONCE, record_bytes=0), id="a record of nothing"),
        pytest.param(made.Report(made.NONCE, opaque_bytes=0xFFFF), id="opaque data without end"),
        pytest.param(made.Report(made.NONCE, opaque_bytes=0), id="opaque data of nothing"),
        pytest.param(_blocks(made.block(1, b"a" * 48), made.block(1, b"b" * 48)), id="an index twice"),
        pytest.param(_blocks(made.block(2, b"a" * 48), made.block(1, b"b" * 48)), id="descending"),
        pytest.param(_blocks(made.block(1, b"a" * 48, specification=2)), id="not DMTF"),
        pytest.param(_blocks(b"\x01\x01\x02\x00\x01\x00"), id="a block too short for its value's size"),
        pytest.param(_blocks(b"\x01\x01\x04\x00\x01\xff\xff\x00"), id="a value longer than its block"),
        pytest.param(_blocks(b"\x01\x01\x05\x00\x01\x01\x00ab"), id="a value shorter than its block"),
        pytest.param(_blocks(b"\x01\x01\xff\xff\x01\x00\x00"), id="a block longer than the record"),
        pytest.param(made.Report(made.NONCE, opaque=b""), id="no opaque data"),
        pytest.param(made.Report(made.NONCE, opaque=made.with_opaque() + b"\x63"), id="half a field's type"),
        pytest.param(
            made.Report(made.NONCE, opaque=made.with_opaque() + b"\x63\x00\x01\x00"), id="a field cut off"
        ),
        pytest.param(
            made.Report(made.NONCE, opaque=made.with_opaque() + made.opaque_field(3, b"1\0")),
            id="a field twice",
        ),
        pytest.param(made.Report(made.NONCE, opaque=made.with_opaque(f3=None)), id="no driver"),
        pytest.param(made.Report(made.NONCE, opaque=made.with_opaque(f3=b"")), id="an empty driver"),
        pytest.param(made.Report(made.NONCE, opaque=made.with_opaque(f3=b"550\0.90")), id="a driver in two"),
        pytest.param(
            made.Report(made.NONCE, opaque=made.with_opaque(f3=b"550\n")), id="a driver with a line end"
        ),
        pytest.param(made.Report(made.NONCE, opaque=made.with_opaque(f3=b"5" * 33)), id="a long driver"),
        pytest.param(made.Report(made.NONCE, opaque=made.with_opaque(f6=bytes(7))), id="half a VBIOS"),
        pytest.param(made.Report(made.NONCE, opaque=made.with_opaque(f6=None)), id="no VBIOS"),
        pytest.param(
            made.Report(made.NONCE, opaque=made.with_opaque(f17=b"\xff\0")), id="a project of no text"
        ),
        pytest.param(made.Report(made.NONCE, opaque=made.with_opaque(f18=None)), id="no project SKU"),
        pytest.param(
            made.Report(made.NONCE, opaque=made.with_opaque(f20=bytes(47))), id="a short firmware id"
        ),
    ],
)
def test_a_report_that_contradicts_itself_is_malformed_though_it_is_signed(document: made.Report) -> None:
    assert made.code(made.judge(document)) is Reason.MALFORMED


def test_a_report_is_bounded_before_it_is_read() -> None:
    bare = len(made.Report(made.NONCE).signed_by(made.HONEST)) + len(made.opaque_field(99, b""))
    for more, expected in ((0, None), (1, Reason.MALFORMED)):
        padding = made.opaque_field(99, bytes(REPORT_BYTES_MAX - bare + more))
        document = made.Report(made.NONCE, opaque=made.with_opaque() + padding)
        assert made.code(made.judge(document)) is expected


@pytest.mark.parametrize(
    ("size", "where"),
    [
        (3, "the request's header"),
        (35, "the nonce"),
        (44, "the measurements' size"),
        (60, "the measurements"),
    ],
)
def test_a_report_that_breaks_off_says_where(size: int, where: str) -> None:
    verdict = made.judge(made.Report(made.NONCE).unsigned()[:size])
    assert verdict == Rejected(Reason.MALFORMED, f"ends within {where}")


def test_fields_that_nobody_knows_yet_are_no_fault() -> None:
    opaque = made.with_opaque() + made.opaque_field(0xABCD, b"new")
    assert made.code(made.judge(made.Report(made.NONCE, opaque=opaque))) is None


def test_a_refusal_never_quotes_the_report() -> None:
    verdict = made.judge(made.Report(made.NONCE, opaque=made.with_opaque(f3=b"<script>\0")))
    assert isinstance(verdict, Rejected)
    assert "script" not in verdict.why


@given(st.binary(max_size=400))
def test_no_bytes_bring_the_reader_of_reports_down(content: bytes) -> None:
    for whole in (content, made.Report(made.NONCE).unsigned()[:45] + content):
        try:
            document = report.read(whole)
        except Malformed:
            continue
        assert document.signed + document.signature == whole


# ---- firmware and measurements ------------------------------------------------------------------------------


def test_the_firmware_that_signed_is_the_firmware_that_is_reported() -> None:
    assert (
        made.code(made.judge(made.Report(made.NONCE, opaque=made.with_opaque(f20=bytes(48)))))
        is Reason.FIRMWARE
    )


@pytest.mark.parametrize(
    "extension", [None, made.hopper_extension(b"short"), made.blackwell_extension(bytes(48))]
)
def test_a_reported_firmware_needs_a_certificate_that_names_it(
    extension: x509.UnrecognizedExtension | None,
) -> None:
    assert made.code(made.judge(gpu=made.make(made.spoilt(0, extension=extension)))) is Reason.FIRMWARE


def test_a_driver_too_old_to_report_the_firmware_leaves_that_open() -> None:
    verdict = made.judge(made.Report(made.NONCE, opaque=made.with_opaque(f20=None)))
    assert isinstance(verdict, Attested)
    assert "firmware_id" in verdict.unchecked


def _golden(values: dict[int, bytes], version: str = "550.90.07", chip: str = "GH100") -> golden.Golden:
    return golden.Golden(chip, version, {index: frozenset({value}) for index, value in values.items()})


def test_measurements_are_counted_as_compared_only_where_they_were() -> None:
    verdict = made.judge(
        golden=(_golden({2: made.MEASURED[1]}), _golden({3: made.MEASURED[2]}, "96.00.5E.00.01"))
    )
    assert isinstance(verdict, Attested)
    assert (verdict.measured, verdict.compared, verdict.unchecked) == (2, 2, ("revocation",))


@pytest.mark.parametrize("values", [{2: made.MEASURED[2]}, {4: bytes(48)}])
def test_a_measurement_that_nvidia_did_not_publish_is_refused(values: dict[int, bytes]) -> None:
    assert made.code(made.judge(golden=(_golden(values),))) is Reason.MEASUREMENT


def test_a_manifest_of_another_version_or_chip_is_left_alone() -> None:
    wrong = made.MEASURED[2]
    verdict = made.judge(golden=(_golden({2: wrong}, "550.90.08"), _golden({2: wrong}, chip="GB100")))
    assert isinstance(verdict, Attested)
    assert verdict.compared == 0
    assert {"driver_measurements", "vbios_measurements"} < set(verdict.unchecked)


def test_a_decoder_that_is_off_is_not_measured() -> None:
    known = (_golden({2: made.MEASURED[1], 36: b"\x09" * 48}),)
    off = made.judge(made.Report(made.NONCE, opaque=made.with_opaque(f11=b"\x55")), golden=known)
    assert isinstance(off, Attested)
    assert off.compared == 1
    assert made.code(made.judge(golden=known)) is Reason.MEASUREMENT


def test_a_real_manifest_is_read_with_its_alternatives() -> None:
    known = golden.read(RIM)
    assert (known.chip, known.version) == ("GH100", "96.00.5E.00.01")
    assert min(known.values) == 1
    assert 36 not in known.values
    assert max(len(values) for values in known.values.values()) > 1


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[:-20],
        lambda text: b"<!DOCTYPE x [<!ENTITY a 'aaaa'>]>" + text,
        lambda text: text + b" " * golden.BYTES_MAX,
        lambda text: re.sub(rb'index="1"', b'index="0"', text),
        lambda text: text.replace(b'active="True"', b'active="False"'),
        lambda text: text.replace(b'alternatives="1"', b'alternatives="0"'),
        lambda text: text.replace(b'alternatives="1"', b'alternatives="65"'),
        lambda text: text.replace(b'Hash0="', b'Hash0="00'),
        lambda text: text.replace(b'Hash0="', b'Hash0="zz'),
        lambda text: text.replace(b"Hash0=", b"Hash9="),
        lambda text: text.replace(b"colloquialVersion", b"version"),
        lambda text: text.replace(b"Payload", b"Other"),
        lambda text: b"",
    ],
)
def test_an_invalid_manifest_is_malformed(spoil: Callable[[bytes], bytes]) -> None:
    with pytest.raises(Malformed):
        golden.read(spoil(RIM))


@pytest.mark.parametrize(
    ("model", "chip"),
    [
        ("h100-sxm-80gb", "GH100"),
        ("gh200-96gb", "GH100"),
        ("b200-sxm-180gb", "GB100"),
        ("a100-sxm-80gb", None),
    ],
)
def test_only_models_whose_chip_can_sign_have_one(model: str, chip: str | None) -> None:
    assert chip_of(model) == chip
