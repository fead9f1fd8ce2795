"""The address plan of clusters."""

from ipaddress import IPv4Address, IPv4Network
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain import network
from control_plane.domain.overlay import (
    BLOCKS,
    MEMBERS_MAX,
    POD_BLOCKS,
    PODS,
    SERVICES,
    address_of,
    pod_block_of,
    pods_of,
    range_of,
)


def test_the_plan_has_room_for_a_thousand_clusters_of_four_thousand_members() -> None:
    assert (BLOCKS, MEMBERS_MAX, POD_BLOCKS) == (1_024, 4_092, 4_096)
    assert (str(range_of(0)), str(range_of(BLOCKS - 1))) == ("10.64.0.0/20", "10.127.240.0/20")
    assert (address_of(1, 1), address_of(1, MEMBERS_MAX)) == ("10.64.16.2", "10.64.31.253")
    assert (pods_of(0), pods_of(POD_BLOCKS - 1)) == ("10.48.0.0/24", "10.63.255.0/24")


def test_overlays_pods_and_services_share_no_address() -> None:
    assert not any(one.overlaps(other) for one, other in combinations((network.PLAN, PODS, SERVICES), 2))


def test_nothing_outside_the_plan_has_an_address() -> None:
    for wrong in (-1, BLOCKS):
        with pytest.raises(ValueError, match=r"block -?[0-9]+ is outside"):
            range_of(wrong)
    for wrong in (0, MEMBERS_MAX + 1):
        with pytest.raises(ValueError, match=r"member [0-9]+ is outside"):
            address_of(0, wrong)
    for wrong in (-1, POD_BLOCKS):
        with pytest.raises(ValueError, match=r"pod block -?[0-9]+ is outside"):
            pods_of(wrong)


@given(st.integers(0, BLOCKS - 1), st.integers(1, MEMBERS_MAX))
def test_an_address_belongs_to_one_member_of_one_overlay(block: int, number: int) -> None:
    address = IPv4Address(address_of(block, number))
    assert address in range_of(block)
    assert int(address) - int(range_of(block).network_address) == number + 1
    assert address not in IPv4Network((int(range_of(block).network_address), 31)), "the relays' address"
    assert address != range_of(block).broadcast_address


def test_the_range_of_a_members_pods_gives_its_number_and_nothing_else_does() -> None:
    for block in (0, 7, POD_BLOCKS - 1):
        assert pod_block_of(pods_of(block)) == block
    for other in ("fd00::/64", "10.48.0.0/25", "10.48.0.0/12", "10.47.255.0/24", "10.48.0.1/24", "pods", ""):
        with pytest.raises(ValueError):  # noqa: PT011 - some of the texts are those of the library
            pod_block_of(other)
