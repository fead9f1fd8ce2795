"""Which URLs of others are trusted with secrets."""

import ipaddress
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_trusted_url(url: str) -> bool:
    """Whether a URL of an issuer may be used: https, or http on this machine, for tests and development."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    if not host or parts.username or parts.password or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
