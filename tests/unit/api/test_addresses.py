"""The address that a bound counts for, behind no proxy, one, or several."""

from ipaddress import ip_network
from typing import Any, cast

from litestar.types import Scope

from control_plane.api.addresses import ClientAddresses
from tests.support.cases import case

PROXIES = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))


def _scope(peer: str | None, *forwarded: str) -> Scope:
    found: dict[str, Any] = {
        "client": None if peer is None else (peer, 1),
        "headers": [(b"x-forwarded-for", value.encode("latin-1")) for value in forwarded],
    }
    return cast("Scope", found)


def test_a_forwarded_address_counts_only_when_a_trusted_proxy_wrote_it() -> None:
    for expected, trusted, peer, *forwarded in (
        ("1.2.3.4", (), "1.2.3.4"),
        ("1.2.3.4", (), "1.2.3.4", "9.9.9.9"),
        ("1.2.3.4", PROXIES, "1.2.3.4", "9.9.9.9"),
        ("10.0.0.1", (), "10.0.0.1", "9.9.9.9"),
        ("9.9.9.9", PROXIES, "10.0.0.1", "9.9.9.9"),
        ("9.9.9.9", PROXIES, "10.0.0.1", "7.7.7.7, 9.9.9.9"),
        ("9.9.9.9", PROXIES, "10.0.0.1", "7.7.7.7", "9.9.9.9, 10.2.3.4"),
        ("10.0.0.1", PROXIES, "10.0.0.1"),
        ("10.0.0.1", PROXIES, "10.0.0.1", ""),
        ("10.0.0.1", PROXIES, "10.0.0.1", "9.9.9.9, nonsense"),
        ("10.0.0.1", PROXIES, "10.0.0.1", "\xff"),
        ("9.9.9.9", PROXIES, "fd00::1", "::ffff:9.9.9.9"),
        ("9.9.9.9", PROXIES, "::ffff:10.0.0.1", "9.9.9.9"),
        ("unknown", PROXIES, None, "9.9.9.9"),
        ("unknown", PROXIES, "a socket", "9.9.9.9"),
        ("9.9.9.9", PROXIES, "10.0.0.1", "1.1.1.1, " * 10_000 + "9.9.9.9"),
    ):
        with case(trusted, peer, [value[:40] for value in forwarded]):
            assert ClientAddresses(trusted).of(_scope(peer, *forwarded)) == expected


def test_the_addresses_of_one_ipv6_host_count_as_one() -> None:
    addresses = ClientAddresses(())
    first, second, other = (
        addresses.of(_scope(peer)) for peer in ("2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1")
    )
    assert first == second == "2001:db8::/64"
    assert other != first
