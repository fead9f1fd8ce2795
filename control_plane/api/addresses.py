"""Whose connection a request comes from, also behind a reverse proxy.

A proxy that is trusted names its client in `X-Forwarded-For`. Every proxy appends the address that it saw, so the list
is read from its end, and the first address that is not a trusted proxy is the client's: what stands before it was
written by the client and may be invented.
"""

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

from litestar.types import Scope

from control_plane.settings import Network

UNKNOWN = "unknown"
"""The client of a connection without an address, such as one over a Unix socket."""
_IPV6_PREFIX = 64
"""One host has at least so much of the IPv6 address space to itself, and changes its address in it at will."""
_FORWARDED_LENGTH_MAX = 1_000


class ClientAddresses:
    """Finds the address that a bound of requests counts for."""

    def __init__(self, trusted: Sequence[Network]) -> None:
        self._trusted = tuple(trusted)
        self._read = lru_cache(maxsize=10_000)(self._uncached)

    def of(self, scope: Scope) -> str:
        """The client's address; for IPv6 its network of 64 bits."""
        client = scope.get("client")
        if client is None:
            return UNKNOWN
        # Without trusted proxies the header is the client's own invention.
        return self._read(client[0], _forwarded(scope) if self._trusted else "")

    def _uncached(self, peer: str, forwarded: str) -> str:
        found = _parsed(peer)
        if found is None:
            return UNKNOWN
        for text in reversed(forwarded.split(",") if forwarded else ()):
            if not self._is_trusted(found):
                break
            before = _parsed(text.strip())
            if before is None:
                break  # What a trusted proxy could not have written is passed over with all that stands before it.
            found = before
        return _counted(found)

    def _is_trusted(self, address: IPv4Address | IPv6Address) -> bool:
        return any(address in network for network in self._trusted)


def _forwarded(scope: Scope) -> str:
    values = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
    return b",".join(values).decode("latin-1")[-_FORWARDED_LENGTH_MAX:]


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _counted(address: IPv4Address | IPv6Address) -> str:
    if isinstance(address, IPv4Address):
        return str(address)
    return str(IPv6Network((int(address), _IPV6_PREFIX), strict=False))
