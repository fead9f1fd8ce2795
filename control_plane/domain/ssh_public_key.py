"""Which SSH public keys are accepted, read by hand from OpenSSH's wire format: RFC 4251, 4253, 5656, 8709.

A key is checked completely when it is stored, because a key that only a machine refuses costs a machine for each
attempt. The rule is stricter than OpenSSH's (`sshkey.c`): everything that is accepted here is accepted by every sshd
that is younger than OpenSSH 8.2, and by what writes `authorized_keys` on our machines.
"""

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

LINE_LENGTH_MAX = 8_192
"""Characters of a whole line: an RSA key of 16,384 bits takes about 2,800."""
COMMENT_LENGTH_MAX = 512
RSA_BITS_MIN, RSA_BITS_MAX = 2_048, 16_384
RSA_EXPONENT_BITS_MAX = 64
"""OpenSSL refuses larger exponents with long moduli."""
_APPLICATION_BYTES_MAX = 255
_ED25519_BYTES = 32


@dataclass(frozen=True, slots=True)
class SshPublicKey:
    line: str
    """`TYPE BASE64`, without a comment."""
    fingerprint: str
    """As `ssh-keygen -l` prints it: `SHA256:` and 43 characters."""


class InvalidSshKeyError(ValueError):
    """The text is no key that is accepted. The message is a sentence that says what is wrong, without the text."""


def parse(text: str) -> SshPublicKey:
    """Read one line of an OpenSSH public key file. Raises InvalidSshKeyError.

    >>> parse("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl you@host").fingerprint
    'SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU'
    """
    kind, encoded = _words(text)
    blob = _decoded(encoded)
    reader = _Reader(blob)
    if reader.string() != kind.encode():
        raise InvalidSshKeyError(f"The key's data is not of the type {kind} that it is given as.")
    _TYPES[kind](reader)
    reader.end()
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    return SshPublicKey(f"{kind} {encoded}", f"SHA256:{digest}")


def _words(text: str) -> tuple[str, str]:
    line = text.strip(" \t\r\n")
    if "PRIVATE KEY" in line:
        raise InvalidSshKeyError(
            "This is a private key; keep it to yourself, and send the .pub file beside it."
        )
    if "\n" in line or "\r" in line:
        raise InvalidSshKeyError("A key is one line; send each key by itself.")
    if len(line) > LINE_LENGTH_MAX:
        raise InvalidSshKeyError(f"The line is longer than {LINE_LENGTH_MAX:,} characters.")
    kind, _, rest = line.partition(" ")
    if kind not in _TYPES:
        allowed = ", ".join(_TYPES)
        raise InvalidSshKeyError(
            "The line has to begin with a key type that is accepted, without options before it: one of"
            f" {allowed}. An example is 'ssh-ed25519 AAAA... you@host'."
        )
    encoded, _, comment = rest.strip(" ").partition(" ")
    if len(comment) > COMMENT_LENGTH_MAX or not comment.isprintable():
        raise InvalidSshKeyError(
            f"The comment behind the key has to be at most {COMMENT_LENGTH_MAX} printable characters."
        )
    return kind, encoded


def _decoded(encoded: str) -> bytes:
    try:
        blob = base64.b64decode(encoded, validate=True)
    except ValueError:  # Both binascii.Error and the error for text beyond ASCII are ValueErrors.
        blob = b""
    if not blob or base64.b64encode(blob).decode() != encoded:
        raise InvalidSshKeyError("The second word of the key is not valid base64; copy the whole line.")
    return blob


class _Reader:
    """Reads the fields of a key's data, each with its length before it."""

    def __init__(self, blob: bytes) -> None:
        self._rest = blob

    def string(self) -> bytes:
        length = int.from_bytes(self._rest[:4], "big")
        if len(self._rest) < 4 + length or len(self._rest) < 4:
            raise InvalidSshKeyError("The key's data ends too early; copy the whole line.")
        value, self._rest = self._rest[4 : 4 + length], self._rest[4 + length :]
        return value

    def number(self) -> int:
        """A positive number in its only spelling: no sign bit, and no leading zero that is not needed for that."""
        value = self.string()
        number = int.from_bytes(value, "big")
        if number == 0 or len(value) != number.bit_length() // 8 + 1:
            raise InvalidSshKeyError("A number in the key's data is not written as SSH writes it.")
        return number

    def end(self) -> None:
        if self._rest:
            raise InvalidSshKeyError("The key's data goes on behind the key; copy the line again.")


def _ed25519(reader: _Reader) -> None:
    if len(reader.string()) != _ED25519_BYTES:
        raise InvalidSshKeyError(f"An ed25519 key has {_ED25519_BYTES} bytes; this one has another length.")


def _rsa(reader: _Reader) -> None:
    exponent, modulus = reader.number(), reader.number()
    if not RSA_BITS_MIN <= modulus.bit_length() <= RSA_BITS_MAX:
        raise InvalidSshKeyError(
            f"An RSA key has to have {RSA_BITS_MIN:,} to {RSA_BITS_MAX:,} bits; this one has"
            f" {modulus.bit_length():,}."
        )
    if exponent < 3 or exponent % 2 == 0 or exponent.bit_length() > RSA_EXPONENT_BITS_MAX:
        raise InvalidSshKeyError("The exponent of the RSA key is not one that is in use; 65537 is usual.")
    if modulus % 2 == 0:
        raise InvalidSshKeyError("The modulus of the RSA key is not the product of two primes.")


@dataclass(frozen=True, slots=True)
class _Curve:
    """A curve of NIST: y^2 = x^3 - 3x + b over the numbers below the prime (FIPS 186-5, SP 800-186)."""

    name: str
    prime: int
    b: int
    order: int

    def check(self, reader: _Reader) -> None:
        """Read a point of the curve, as OpenSSH does: uncompressed, and with no coordinate that is short."""
        if reader.string() != self.name.encode():
            raise InvalidSshKeyError("The curve in the key's data is not that of its type.")
        point = reader.string()
        size = (self.prime.bit_length() + 7) // 8
        x, y = int.from_bytes(point[1 : 1 + size], "big"), int.from_bytes(point[1 + size :], "big")
        if len(point) != 1 + 2 * size or point[0] != 4 or not self._contains(x, y):
            raise InvalidSshKeyError(f"The key is not a point of its curve {self.name}.")

    def _contains(self, x: int, y: int) -> bool:
        short = self.order.bit_length() // 2
        sane = all(value.bit_length() > short and value < self.order - 1 for value in (x, y))
        return sane and (y * y - (x * x * x - 3 * x + self.b)) % self.prime == 0


_P256 = _Curve(
    "nistp256",
    prime=2**256 - 2**224 + 2**192 + 2**96 - 1,
    b=0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B,
    order=0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
)
_P384 = _Curve(
    "nistp384",
    prime=2**384 - 2**128 - 2**96 + 2**32 - 1,
    b=0xB3312FA7E23EE7E4988E056BE3F82D19181D9C6EFE8141120314088F5013875AC656398D8A2ED19D2A85C8EDD3EC2AEF,
    order=0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFC7634D81F4372DDF581A0DB248B0A77AECEC196ACCC52973,
)
_P521 = _Curve(
    "nistp521",
    prime=2**521 - 1,
    b=int(
        "0051953EB9618E1C9A1F929A21A0B68540EEA2DA725B99B315F3B8B489918EF109E156193951EC7E937B1652C0BD3BB1BF07"
        "3573DF883D2C34F1EF451FD46B503F00",
        16,
    ),
    order=2**521 - 2**260 + 0xA51868783BF2F966B7FCC0148F709A5D03BB5C9B8899C47AEBB6FB71E91386409,
)


def _application(reader: _Reader) -> None:
    """The application of a key on a security token, such as `ssh:`."""
    text = reader.string()
    if not 1 <= len(text) <= _APPLICATION_BYTES_MAX or not (text.isascii() and text.decode().isprintable()):
        raise InvalidSshKeyError("The application in the key's data has to be 1 to 255 printable characters.")


def _on_token(key: Callable[[_Reader], None]) -> Callable[[_Reader], None]:
    """A key on a security token: the key, and the application behind it."""

    def read(reader: _Reader) -> None:
        key(reader)
        _application(reader)

    return read


_TYPES: dict[str, Callable[[_Reader], None]] = {
    "ssh-ed25519": _ed25519,
    "ecdsa-sha2-nistp256": _P256.check,
    "ecdsa-sha2-nistp384": _P384.check,
    "ecdsa-sha2-nistp521": _P521.check,
    "sk-ssh-ed25519@openssh.com": _on_token(_ed25519),
    "sk-ecdsa-sha2-nistp256@openssh.com": _on_token(_P256.check),
    "ssh-rsa": _rsa,
}
