"""The forms of K3s' tokens, from values alone.

Short: the secret. Full: `K10<SHA-256 of the cluster's authority>::<credential>`, where the credential is `server:SECRET`,
`node:SECRET`, or a bootstrap token `ID.SECRET`. The full form lets an agent check the server before it sends anything.
"""

import hashlib
import re
from dataclasses import dataclass

PREFIX = "K10"
FULL = re.compile(r"K10([0-9a-f]{64})::(.+)")
BOOTSTRAP = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")


class TokenError(Exception):
    """A token has no form that K3s knows, or is for another cluster."""


@dataclass(frozen=True, slots=True)
class Token:
    authority_hash: str | None
    """None in the short form: the server is then believed."""
    secret: str
    is_bootstrap: bool


def parse(text: str) -> Token:
    text = text.strip()
    full = FULL.fullmatch(text)
    if text.startswith(PREFIX) and full is None:
        raise TokenError("failed to validate token: invalid token format")
    digest, credential = (full[1], full[2]) if full else (None, text)
    if BOOTSTRAP.fullmatch(credential):
        return Token(digest, credential, is_bootstrap=True)
    _, colon, secret = credential.partition(":")
    return Token(digest, secret if colon else credential, is_bootstrap=False)


def hash_of(authority: bytes) -> str:
    return hashlib.sha256(authority).hexdigest()


def full(authority: bytes, credential: str) -> str:
    return f"{PREFIX}{hash_of(authority)}::{credential}"


def check(token: Token, authority: bytes) -> None:
    """Raises TokenError when the server has another authority than the token says."""
    actual = hash_of(authority)
    if token.authority_hash not in (None, actual):
        raise TokenError(
            f"token CA hash does not match the Cluster CA certificate hash: {token.authority_hash} != {actual}"
        )
