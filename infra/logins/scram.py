"""What PostgreSQL keeps of a password, so that a login can be made by somebody who does not know it."""

import base64
import hashlib
import hmac
import secrets

_ITERATIONS = 4096


def verifier(password: str) -> str:
    """SCRAM-SHA-256 (RFC 7677), as PostgreSQL's manual lays it out for pg_authid. `password` is ASCII.

    Nobody logs in with it, and nobody finds a password of 256 random bits by it.
    """
    salt = secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, _ITERATIONS)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    kept, keys = base64.b64encode(salt), (base64.b64encode(stored), base64.b64encode(server))
    return f"SCRAM-SHA-256${_ITERATIONS}:{kept.decode()}${keys[0].decode()}:{keys[1].decode()}"
