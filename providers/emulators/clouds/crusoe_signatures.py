"""How the emulated Crusoe checks that a request was signed, by version 1.0 of Crusoe's scheme.

It is written after the Terraform provider and on its own, so that it cannot agree with our adapter alone. How old a
signature may be is ours.
"""

import base64
import binascii
import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from urllib.parse import quote_plus, unquote_plus

AGE_MAX = timedelta(minutes=5)


def is_signed(
    *,
    method: str,
    path: str,
    query: str,
    timestamp: str,
    authorization: str,
    key_id: str,
    secret: str,
    now: datetime,
) -> bool:
    """Whether the headers hold a fresh signature of this request by the key."""
    scheme, _, credentials = authorization.partition(" ")
    version, _, rest = credentials.partition(":")
    given_id, _, signature = rest.partition(":")
    canonical = _canonical(query)
    if (scheme, version, given_id) != ("Bearer", "1.0", key_id) or canonical is None:
        return False
    if not _fresh(timestamp, now):
        return False
    message = "".join(f"{line}\n" for line in (path, canonical, method, timestamp))
    key = base64.urlsafe_b64decode(secret + "=" * (-len(secret) % 4))
    expected = hmac.new(key, message.encode(), hashlib.sha256).digest()
    try:
        given = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
    except binascii.Error:
        return False
    return "=" not in signature and hmac.compare_digest(given, expected)


def _canonical(query: str) -> str | None:
    """The parameters in the order of their names, escaped anew; None for a query with a semicolon."""
    values: dict[str, list[str]] = {}
    for pair in filter(None, query.split("&")):
        if ";" in pair:
            return None
        name, _, value = pair.partition("=")
        values.setdefault(unquote_plus(name), []).append(unquote_plus(value))
    return "&".join(
        f"{quote_plus(name)}={quote_plus(value)}" for name in sorted(values) for value in values[name]
    )


def _fresh(timestamp: str, now: datetime) -> bool:
    try:
        signed_at = datetime.strptime(timestamp, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return False
    return abs(now - signed_at) <= AGE_MAX
