"""What holds for every implementation of `Members` and `Agents`, simulated or over SSH: the tests of both call these."""

import re
from collections.abc import Sequence

import pytest

from data_plane.access.port import StepFailed, Target
from data_plane.cluster.agents import AgentOrder, Agents
from data_plane.mesh.members import Members
from data_plane.mesh.port import OverlayPeer, OverlayPlace

DIGEST = re.compile(r"[0-9a-f]{64}")


async def makes_one_key(members: Members, member: Target) -> str:
    """Its key stays the same, whoever asks how often."""
    key = await members.make_key(member)
    assert await members.make_key(member) == key
    return key


async def tunnels_are_what_was_applied(
    members: Members, member: Target, place: OverlayPlace, peers: Sequence[OverlayPeer]
) -> None:
    """Applying the same again changes nothing, and reading lists the same."""
    applied = await members.apply(member, place, peers)
    again = await members.apply(member, place, peers)
    listed = {(tunnel.public_key, tunnel.allowed) for tunnel in again.tunnels}
    assert listed == {(peer.public_key, frozenset(peer.allowed)) for peer in peers}
    assert applied.public_key == again.public_key == (await members.read(member)).public_key
    assert applied.keys == (await members.read(member)).keys


async def changes_to_its_next_key_only(members: Members, member: Target, stranger: str) -> str:
    """The next key is one key until it is used, and no other key can be used."""
    before = await members.make_key(member)
    following = await members.make_next_key(member)
    assert following == await members.make_next_key(member) != before
    with pytest.raises(StepFailed, match="another next key"):
        await members.switch_key(member, stranger)
    await members.switch_key(member, following)
    await members.switch_key(member, following)
    assert (await members.read(member)).public_key == following == await members.make_key(member)
    return following


async def preparing_has_the_same_evidence_twice(agents: Agents, machine: Target) -> None:
    prepared = await agents.prepare(machine)
    assert prepared == await agents.prepare(machine)
    assert {"k3s", "install.sh"} <= set(prepared.files)
    assert all(DIGEST.fullmatch(digest) for digest in prepared.files.values())
    assert prepared.kernel
    assert prepared.settings["vm.overcommit_memory"] == "1"


async def only_a_prepared_machine_with_its_address_starts(
    agents: Agents, order: AgentOrder, not_prepared: AgentOrder, elsewhere: AgentOrder
) -> None:
    """`elsewhere` names an address that the machine does not have."""
    with pytest.raises(StepFailed, match="not prepared"):
        await agents.start(not_prepared)
    with pytest.raises(StepFailed, match="does not have the address"):
        await agents.start(elsewhere)
    started = await agents.start(order)
    assert started == await agents.start(order)
    assert started.version.startswith("v1.")


async def a_clean_machine_has_nothing_left(agents: Agents, machine: Target) -> None:
    """Cleaning works from any state, and again."""
    cleaned = await agents.clean(machine)
    assert cleaned.nothing_left, cleaned.left
    assert cleaned.looked_for
    assert cleaned == await agents.clean(machine)
