"""What a machine is told to open, as text; `tests/integration/data_plane/mesh/test_firewall.py` tries it in a kernel."""

import pytest

from data_plane.mesh.firewall import Opening, ruleset
from tests.support.cases import case

FROM = ("203.0.113.0/24", "2001:db8::/32")


def test_networks_that_overlap_are_joined_and_everybody_needs_no_set() -> None:
    text = ruleset(
        [Opening("tcp", 8000, 8010, ("203.0.113.0/24", "203.0.113.7/32", "::/0", "2001:db8::/32"))]
    )
    assert "ip saddr { 203.0.113.0/24 } tcp dport 8000-8010 accept" in text
    assert "meta nfproto ipv6 tcp dport 8000-8010 accept" in text
    assert "203.0.113.7" not in text


def test_ssh_is_open_at_its_own_port_and_at_22() -> None:
    assert "tcp dport { 22 } accept" in ruleset([])
    assert "tcp dport { 22, 2222 } accept" in ruleset([], 2222)
    assert "udp dport 51820 accept" in ruleset([], 2222)


def test_what_opens_no_port_never_becomes_text() -> None:
    """It comes from our own database; still, a line break in it would be a rule."""
    for opening in (
        Opening("tcp", 0, 5, FROM),
        Opening("tcp", 5, 65_536, FROM),
        Opening("tcp", 9, 8, FROM),
        Opening("tcp", 8, 9, ("203.0.113.0/24 accept\n",)),
    ):
        with case(opening), pytest.raises(ValueError, match=r"."):
            ruleset([opening])
    with pytest.raises(ValueError, match="no port"):
        ruleset([], 0)
