"""How a machine is a member of its cluster's overlay: a server of ours, or a rented node.

Every function can be repeated. No secret is sent to a machine: its WireGuard keys are made there and never
leave it. What a node says about its interface is believed as far as it concerns the node; who may reach whom is
enforced at the other ends.
"""

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, ip_address
from itertools import pairwise

from data_plane.access.port import Session, StepFailed, must
from data_plane.access.step import Answer, Step
from data_plane.mesh import node_scripts
from data_plane.mesh.pod_filter import ruleset
from data_plane.mesh.port import ENDPOINT, OverlayPeer, OverlayPlace
from data_plane.mesh.tunnels import Interface, interface
from data_plane.mesh.wireguard import public_key, wireguard_key

KEEPALIVE_SECONDS = 25
"""NAT forgets UDP mappings after 30 s or more."""
PROBED_BYTES = (84, 1_280, 1_340, 1_380, node_scripts.MTU)
"""Sizes of packets inside a tunnel: a small one, then what paths of 1,360, 1,420, 1,460 and 1,500 bytes carry."""

_TOKEN = re.compile(r"[0-9a-f]{32}")


async def make_node_key(session: Session) -> str:
    """The member's WireGuard public key, base64. Made at the first call; survives a reboot.

    Raises Unreachable and StepFailed.
    """
    return public_key(node_scripts.MAKE_NODE_KEY, await must(session, node_scripts.MAKE_NODE_KEY))


async def make_next_key(session: Session, *, fresh: bool = False) -> str:
    """The public key that the member will change to: always the same until `switch_key`.

    With `fresh` it is another one than before, so that it cannot have leaked yet. Raises Unreachable and StepFailed.
    """
    step = node_scripts.MAKE_NEXT_KEY
    return public_key(step, await must(session, step, ["fresh" if fresh else "same"]))


async def switch_key(session: Session, key: str) -> None:
    """Use the key that `make_next_key` made. Does nothing if it is in use already.

    The other ends have to list it before, or the member is cut off. Until they move the member's ranges to it,
    they drop its packets. Raises Unreachable, and StepFailed if the member's next key is another one.
    """
    await must(session, node_scripts.SWITCH_KEY, [key])


async def apply_peers(
    session: Session, place: OverlayPlace, peers: Sequence[OverlayPeer], *, fence: int | None = None
) -> Interface:
    """Make the member's tunnels exactly these, and return what its interface lists afterwards.

    Brings the interface up if needed. Tunnels that stay are not disturbed, unless the member's place has changed. A
    member that has seen a higher `fence` fails the step and stays as it is; without one, it does not compare.
    Raises Unreachable, and StepFailed for a malformed value or if the machine lists anything else afterwards.
    """
    step = node_scripts.APPLY_PEERS
    try:
        arguments = [*_arguments(place), "-" if fence is None else str(fence)]
        lines = f"{peers_text(peers)}\n{ruleset(place, peers)}"
    except ValueError as error:
        raise StepFailed(step.name, None, str(error)) from None
    found = interface(step, await must(session, step, arguments, stdin=lines.encode()))
    if differs(found, peers):
        raise StepFailed(step.name, None, "the machine lists other peers than it was given")
    return found


async def read_peers(session: Session) -> Interface:
    """What the member's interface lists now. Raises Unreachable, and StepFailed if it has no interface."""
    return interface(node_scripts.READ_PEERS, await must(session, node_scripts.READ_PEERS))


async def leave_overlay(session: Session) -> None:
    """Take the interface down and delete the member's keys. Does nothing if it has left. Raises AccessError.

    The other ends have to be told before: a machine that is not trusted may keep a copy of its keys.
    """
    await must(session, node_scripts.LEAVE_OVERLAY)


async def largest_packet(session: Session, address: str) -> int | None:
    """The largest of `PROBED_BYTES` that passes the tunnel to the member with this address, there and back.

    None when nothing passes. Less than 1,420 means that a path between the two carries less than 1,500 bytes
    and drops what is larger without a word: connections then open and stall. Takes up to 15 s. Raises
    Unreachable and StepFailed.
    """
    step = node_scripts.PROBE_PATH
    sizes = [str(size) for size in PROBED_BYTES]
    answer = await must(session, step, [node_scripts.PROBE, str(IPv4Address(address)), *sizes])
    return max(_sizes(step, answer), default=None)


def _sizes(step: Step, answer: Answer) -> list[int]:
    words = answer.output.decode("ascii", "replace").split()
    if not set(words) <= {str(size) for size in PROBED_BYTES}:
        raise StepFailed(step.name, None, "the machine did not answer with packet sizes")
    return [int(word) for word in words]


async def heard(session: Session) -> frozenset[str]:
    """What arrives at the UDP port of the member's tunnels from `knock` within 4 s: the tokens. Raises AccessError."""
    step = node_scripts.HEAR
    arguments = [node_scripts.HEARING, str(node_scripts.PORT), str(node_scripts.HEARING_SECONDS)]
    answer = await must(session, step, arguments)
    found = frozenset(answer.output.decode("ascii", "replace").split())
    if not all(_TOKEN.fullmatch(token) for token in found):
        raise StepFailed(step.name, None, "the machine did not answer with tokens")
    return found


async def knock(session: Session, address: str, token: str) -> None:
    """Send a token of 32 hexadecimal digits to the UDP port of tunnels at this address for 3 s. Raises AccessError."""
    if not _TOKEN.fullmatch(token):
        raise ValueError("a token has 32 hexadecimal digits")
    arguments = [node_scripts.KNOCKING, str(ip_address(address)), str(node_scripts.PORT), token]
    await must(session, node_scripts.KNOCK, arguments)


def differs(found: Interface, peers: Sequence[OverlayPeer]) -> bool:
    """Whether an interface lists anything but these peers. Endpoints do not count: they follow the other end."""
    listed = {(tunnel.public_key, tunnel.allowed, tunnel.keepalive) for tunnel in found.tunnels}
    return listed != {(peer.public_key, frozenset(peer.allowed), peer.keepalive) for peer in peers}


def _arguments(place: OverlayPlace) -> list[str]:
    members = IPv4Network(place.range)
    if IPv4Address(place.address) not in members:
        raise ValueError("the address is outside its range")
    return [place.address, str(place.port), str(members), str(IPv4Network(place.pods))]


def peers_text(peers: Sequence[OverlayPeer]) -> str:
    """The input of the script. Raises ValueError for a malformed value, and for a range or key that two peers have.

    The values are checked although they come from us: a line break inside one could add a command that wg-quick runs as
    root.
    """
    keys = [wireguard_key(peer.public_key) for peer in peers]
    if len(set(keys)) != len(keys):
        raise ValueError("two peers share a key")
    ranges = sorted(IPv4Network(text) for peer in peers for text in peer.allowed)
    if any(one.overlaps(other) for one, other in pairwise(ranges)):
        raise ValueError("two peers share addresses")
    return "".join(_line(key, peer) for key, peer in zip(keys, peers, strict=True))


def _line(key: str, peer: OverlayPeer) -> str:
    if peer.endpoint is not None and not ENDPOINT.fullmatch(peer.endpoint):
        raise ValueError("an endpoint is not host:port")
    keepalive = str(KEEPALIVE_SECONDS) if peer.keepalive else "off"
    return "\t".join((key, peer.endpoint or "-", keepalive, ",".join(peer.allowed) or "-")) + "\n"
