"""Whether a password belongs to what PostgreSQL keeps of one."""

import base64
import hashlib
import hmac


def opens(verifier: str, password: str) -> bool:
    """As a server finds out (RFC 5802, 3)."""
    _, salting, kept = verifier.split("$")
    iterations, salt = salting.split(":")
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(salt), int(iterations))
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    return base64.b64encode(stored).decode() == kept.split(":")[0]
