"""The address plan of private networks."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain.network import BLOCKS, MEMBERS_MAX, PLAN, range_of
from data_plane.mesh.port import NETWORK_PREFIX, PEERS_MAX, Network

blocks = st.integers(0, BLOCKS - 1)


def test_the_plan_has_thousands_of_ranges_of_a_thousand_machines() -> None:
    assert (BLOCKS, MEMBERS_MAX) == (4_096, 1_020)
    assert str(range_of(0)) == "10.64.0.0/22"
    assert str(range_of(BLOCKS - 1)) == "10.127.252.0/22"
    for block in (-1, BLOCKS):
        with pytest.raises(ValueError, match="outside"):
            range_of(block)


@given(st.sets(blocks, min_size=2, max_size=5))
def test_ranges_lie_in_the_plan_and_share_no_address(some: set[int]) -> None:
    ranges = [range_of(block) for block in some]
    assert all(one.subnet_of(PLAN) for one in ranges)
    assert not any(one.overlaps(other) for one, other in combinations(ranges, 2))


@given(blocks)
def test_the_hub_takes_every_range_and_has_an_address_for_every_member(block: int) -> None:
    network = Network(1, range_of(block))
    assert network.subnet.prefixlen == NETWORK_PREFIX
    assert PEERS_MAX == MEMBERS_MAX
    assert network.holds(network.address_of(MEMBERS_MAX))
