"""Rules of the stand-in for K3s that need no cluster: forms of tokens, durations, and whom the API server believes."""

import pytest

from tests.support.kubernetes.k3s import bootstrap_tokens, tokens
from tests.support.kubernetes.k3s.bootstrap_tokens import DurationError
from tests.support.kubernetes.k3s.http import Head
from tests.support.kubernetes.k3s.supervisor import IDENTITY_HEADERS
from tests.support.kubernetes.k3s.tokens import Token, TokenError


def test_a_caller_cannot_say_who_it_is_in_headers() -> None:
    forged = (
        ("X-Remote-User", "system:admin"),
        ("x-remote-group", "system:masters"),
        ("X-REMOTE-EXTRA-a", "b"),
    )
    head = Head("GET", "/api/v1/nodes", (*forged, ("Accept", "*/*")))
    sent = head.rendered(
        {"X-Remote-User": "system:node:a", "X-Remote-Group": ["system:nodes"]}, IDENTITY_HEADERS
    )
    lines = sent.decode().splitlines()
    assert lines[1:-1] == ["Accept: */*", "X-Remote-User: system:node:a", "X-Remote-Group: system:nodes"]


def test_a_token_is_read_in_every_form_and_checked_against_the_authority() -> None:
    authority = b"an authority"
    digest = tokens.hash_of(authority)
    for text, token in (
        ("secret", Token(None, "secret", is_bootstrap=False)),
        ("abcdef.0123456789abcdef", Token(None, "abcdef.0123456789abcdef", is_bootstrap=True)),
        (f"K10{digest}::server:secret\n", Token(digest, "secret", is_bootstrap=False)),
        (
            f"K10{digest}::abcdef.0123456789abcdef",
            Token(digest, "abcdef.0123456789abcdef", is_bootstrap=True),
        ),
    ):
        assert tokens.parse(text) == token, text
        tokens.check(tokens.parse(text), authority)
    with pytest.raises(TokenError, match="does not match"):
        tokens.check(tokens.parse(f"K10{digest}::secret"), b"another authority")
    with pytest.raises(TokenError, match="invalid token format"):
        tokens.parse("K10abc::secret")


def test_durations_are_read_as_go_writes_them() -> None:
    for text, seconds in (("15m", 900), ("1h30m", 5400), ("2s", 2), ("0", 0)):
        assert bootstrap_tokens.seconds(text) == seconds, text
    for text in ("", "15", "m", "15m!", "-1h"):
        with pytest.raises(DurationError):
            bootstrap_tokens.seconds(text)
