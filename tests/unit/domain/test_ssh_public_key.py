"""Which SSH keys are accepted, and that a machine accepts each of them."""

import base64
import random
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.ssh_public_key import (
    COMMENT_LENGTH_MAX,
    LINE_LENGTH_MAX,
    InvalidSshKeyError,
    parse,
)
from control_plane.services.ssh_keys import KEYS_MAX
from control_plane.wire.leases import SSH_KEYS_MAX
from control_plane.wire.ssh_keys import SshKeyRequest
from data_plane.access.authority import new_authority
from tests.support.cases import case, check_every

AUTHORITY = new_authority()
ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"
P256_POINT = bytes.fromhex(
    "046b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"
    "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"
)
"""The generator of the curve."""


def field(value: bytes) -> bytes:
    return len(value).to_bytes(4, "big") + value


def number(value: int) -> bytes:
    return field(value.to_bytes(value.bit_length() // 8 + 1, "big"))


def a_line(kind: str, *fields: bytes, said: str | None = None) -> str:
    blob = b"".join([field((said or kind).encode()), *fields])
    return f"{kind} {base64.b64encode(blob).decode()}"


def rsa(bits: int, *, exponent: int = 65_537, odd: int = 1) -> str:
    return a_line("ssh-rsa", number(exponent), number(2 ** (bits - 1) + odd))


TOKEN = "sk-ssh-ed25519@openssh.com"
ECDSA = "ecdsa-sha2-nistp256"
ACCEPTED = {
    "ed25519": ED25519,
    "ed25519 on a token": a_line(TOKEN, field(b"\xff" * 32), field(b"ssh:")),
    "ecdsa": a_line(ECDSA, field(b"nistp256"), field(P256_POINT)),
    "ecdsa on a token": a_line(
        "sk-ecdsa-sha2-nistp256@openssh.com", field(b"nistp256"), field(P256_POINT), field(b"ssh:work")
    ),
    "the smallest rsa": rsa(2_048),
    "the largest rsa": rsa(16_384),
}
REFUSED = {
    "nothing": ("", "begin with a key type"),
    "a word": ("ssh-ed25519", "base64"),
    "an unknown type": (a_line("ssh-dss", b"x" * 40), "begin with a key type"),
    "an option": (f'command="id" {ED25519}', "without options"),
    "two lines": (f"{ED25519}\n{ED25519}", "one line"),
    "a private key": ("-----BEGIN OPENSSH PRIVATE KEY-----", "private key"),
    "too long a line": (ED25519 + " " + "x" * LINE_LENGTH_MAX, "longer than"),
    "too long a comment": (ED25519 + " " + "x" * (COMMENT_LENGTH_MAX + 1), "comment"),
    "a comment that moves the cursor": (ED25519 + " \x1b[2J", "comment"),
    "a comment that turns the text": (ED25519 + " \u202egnp", "comment"),
    "another type inside": (a_line("ssh-ed25519", field(b"k" * 32), said="ssh-rsa"), "not of the type"),
    "an ed25519 key of 20 bytes": (a_line("ssh-ed25519", field(b"k" * 20)), "32 bytes"),
    "an ed25519 key of 12 KB": (a_line("ssh-ed25519", field(b"k" * 12_000)), "longer than"),
    "an ed25519 key with more behind it": (a_line("ssh-ed25519", field(b"k" * 32), field(b"k")), "goes on"),
    "a length beyond the end": (a_line("ssh-ed25519", b"\xff\xff\xff\xffkey"), "ends too early"),
    "half a length": (a_line("ssh-ed25519", b"\x00"), "ends too early"),
    "padding that is wrong": (ED25519 + "=", "base64"),
    "unused bits that are set": (ACCEPTED["ecdsa"].rstrip("=")[:-1] + "H=", "base64"),
    "rsa of 1,024 bits": (rsa(1_024), "2,048"),
    "rsa of one bit too few": (rsa(2_047), "2,048"),
    "rsa of one bit too many": (rsa(16_385), "16,384"),
    "an even modulus": (rsa(2_048, odd=0), "modulus"),
    "an even exponent": (rsa(2_048, exponent=4), "exponent"),
    "an exponent of 1": (rsa(2_048, exponent=1), "exponent"),
    "a huge exponent": (rsa(2_048, exponent=2**65 + 1), "exponent"),
    "a negative number": (a_line("ssh-rsa", number(3), field(b"\xff" * 256)), "number"),
    "a number with a zero too many": (a_line("ssh-rsa", field(b"\0\0\3"), number(2**2_047 + 1)), "number"),
    "a point off the curve": (
        a_line(ECDSA, field(b"nistp256"), field(P256_POINT[:-1] + b"\x00")),
        "not a point",
    ),
    "a compressed point": (
        a_line(ECDSA, field(b"nistp256"), field(b"\x02" + P256_POINT[1:33])),
        "not a point",
    ),
    "a point at infinity": (a_line(ECDSA, field(b"nistp256"), field(b"\x00")), "not a point"),
    "another curve": (a_line(ECDSA, field(b"nistp384"), field(P256_POINT)), "curve"),
    "a token without an application": (a_line(TOKEN, field(b"k" * 32)), "ends too early"),
    "an application that breaks lines": (a_line(TOKEN, field(b"k" * 32), field(b"ssh:\n")), "application"),
}


def test_keys_of_every_type_are_accepted_with_or_without_a_comment() -> None:
    def check(name: str) -> None:
        for line in (ACCEPTED[name], ACCEPTED[name] + " you@host, at home", f"  {ACCEPTED[name]}\r\n"):
            assert parse(line).line == ACCEPTED[name]

    check_every(ACCEPTED, check)


def test_what_is_refused_says_what_is_wrong_and_repeats_nothing_of_it() -> None:
    def check(name: str) -> None:
        line, why = REFUSED[name]
        with pytest.raises(InvalidSshKeyError) as raised:
            parse(line)
        assert why in str(raised.value)
        assert str(raised.value).endswith((".", "'."))
        assert len(str(raised.value)) < 400

    check_every(REFUSED, check)


def spoilt(line: str, chance: random.Random) -> str:
    """The line with a byte or two of its key changed."""
    kind, encoded = line.split()
    blob = bytearray(base64.b64decode(encoded))
    for _ in range(chance.randint(1, 2)):
        blob[chance.randrange(len(blob))] = chance.randrange(256)
    return f"{kind} {base64.b64encode(bytes(blob)).decode()}"


def _accepts(line: str) -> bool:
    try:
        parse(line)
    except InvalidSshKeyError:
        return False
    return True


def _certified(line: str) -> str:
    now = datetime(2026, 11, 22, tzinfo=UTC)
    return AUTHORITY.sign(
        line,
        serial=1,
        key_id="a test",
        principals=["le_1"],
        valid_after=now,
        valid_before=now + timedelta(minutes=1),
        interactive=True,
    )


def test_every_kind_of_key_that_is_accepted_can_have_a_certificate() -> None:
    for name, line in ACCEPTED.items():
        with case(name):
            kind, _, _ = _certified(parse(line).line).partition(" ")
            assert kind.endswith("-cert-v01@openssh.com")


@given(st.sampled_from(sorted(ACCEPTED)), st.data())
def test_a_key_that_is_accepted_has_a_certificate_or_is_refused_with_a_value_error(
    name: str, data: st.DataObject
) -> None:
    kind, encoded = ACCEPTED[name].split()
    blob = bytearray(base64.b64decode(encoded))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(blob) - 1))
        blob[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([None, -1, 8]))
    line = f"{kind} {base64.b64encode(bytes(blob[:cut])).decode()}" + data.draw(st.text(max_size=20))
    if _accepts(line):
        with suppress(ValueError):  # A key with impossible numbers is refused in no other way.
            assert _certified(parse(line).line)


@given(st.text())
def test_any_text_is_a_key_or_refused_with_a_sentence(text: str) -> None:
    for line in (text, f"ssh-ed25519 {text}", f"{ED25519} {text}"):
        with case(line):
            assert _accepts(line) in (True, False)


def test_the_bounds_of_the_wire_the_service_and_the_machine_agree() -> None:
    assert KEYS_MAX == SSH_KEYS_MAX
    assert max(len(line) for line in ACCEPTED.values()) < LINE_LENGTH_MAX
    (length,) = [
        meta.max_length
        for meta in SshKeyRequest.__annotations__["public_key"].__metadata__
        if meta.max_length is not None
    ]
    assert length == LINE_LENGTH_MAX
