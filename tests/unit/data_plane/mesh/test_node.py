"""What a member of an overlay is given, and what it answers."""

import base64
from dataclasses import replace
from typing import NoReturn

import pytest

from data_plane.access.port import StepFailed
from data_plane.access.step import Answer, Step
from data_plane.mesh.node import apply_peers, differs, largest_packet, peers_text
from data_plane.mesh.port import OverlayPeer, OverlayPlace
from data_plane.mesh.tunnels import Interface, Tunnel, interface

STEP = Step("read", "", 1, "root")
PLACE = OverlayPlace("10.64.16.3", "10.64.16.0/20", "10.48.0.0/12")


def a_key(seed: int) -> str:
    return base64.b64encode(seed.to_bytes(32, "big")).decode()


SERVER = OverlayPeer(a_key(1), ("10.64.16.2/32",), "198.51.100.2:51820", keepalive=True)
NODE = OverlayPeer(a_key(2), ("10.64.16.4/32", "10.48.8.0/24"))
NEXT = OverlayPeer(a_key(3), ())
LISTING = (
    f"{a_key(9)} 51820 1000\n"
    f"{a_key(1)}\t198.51.100.2:51820\t10.64.16.2/32\t940\t25\n"
    f"{a_key(2)}\t(none)\t10.48.8.0/24,10.64.16.4/32\t0\toff\n"
    f"{a_key(3)}\t203.0.113.9:7\t(none)\t819\toff\n"
)


class OneAnswer:
    """A session in which every step has the same answer."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.inputs: list[bytes] = []

    async def run(
        self, step: Step, arguments: object = (), *, stdin: bytes = b"", private: object = ()
    ) -> Answer:
        self.inputs.append(stdin)
        return Answer(0, self.text.encode(), "")

    def converse(self, step: Step, arguments: object = ()) -> NoReturn:
        raise NotImplementedError


def read(text: str) -> Interface:
    return interface(STEP, Answer(0, text.encode(), ""))


def test_peers_are_lines() -> None:
    assert peers_text([SERVER, NODE, NEXT]).splitlines() == [
        f"{a_key(1)}\t198.51.100.2:51820\t25\t10.64.16.2/32",
        f"{a_key(2)}\t-\toff\t10.64.16.4/32,10.48.8.0/24",
        f"{a_key(3)}\t-\toff\t-",
    ]


def test_no_peer_smuggles_a_line_or_takes_what_is_anothers() -> None:
    cases = (
        [replace(SERVER, endpoint="198.51.100.2:1\nPostUp = sh")],
        [replace(SERVER, endpoint="198.51.100.2")],
        [replace(SERVER, public_key=f"{a_key(1)}\n\n")],
        [replace(SERVER, allowed=("10.64.16.2/32\tx",))],
        [replace(SERVER, allowed=("10.64.16.2/31", "10.64.16.3/32"))],
        [SERVER, replace(NODE, public_key=SERVER.public_key)],
        [SERVER, replace(NODE, allowed=SERVER.allowed)],
        [SERVER, replace(NODE, allowed=("10.64.16.0/20",))],
    )
    for peers in cases:
        with pytest.raises(ValueError, match=r"."):
            peers_text(peers)


async def test_a_place_whose_addresses_do_not_belong_together_is_refused_before_anything_is_sent() -> None:
    cases = (
        replace(PLACE, address="10.64.32.3"),
        replace(PLACE, range="10.64.16.0/20\n"),
        replace(PLACE, pods="$(reboot)"),
    )
    for place in cases:
        session = OneAnswer(LISTING)
        with pytest.raises(StepFailed):
            await apply_peers(session, place, [SERVER])
        assert session.inputs == []


def test_a_listing_says_who_is_silent() -> None:
    found = read(LISTING)
    assert (found.public_key, found.port, found.keys) == (a_key(9), 51_820, frozenset(map(a_key, (1, 2, 3))))
    server, node, following = found.tunnels
    assert server == Tunnel(a_key(1), frozenset({"10.64.16.2/32"}), "198.51.100.2:51820", True, 60)
    assert node == Tunnel(a_key(2), frozenset({"10.48.8.0/24", "10.64.16.4/32"}), None, False, None)
    assert following == Tunnel(a_key(3), frozenset(), "203.0.113.9:7", False, 181)
    assert [tunnel.silent for tunnel in found.tunnels] == [False, True, True]
    assert not replace(following, handshake_seconds=180).silent


def test_a_machine_that_answers_anything_else_is_not_believed() -> None:
    first, line, *_ = LISTING.splitlines()
    for text in (
        "",
        "hello\n",
        f"{first} x\n",
        f"{first}\n{line}\tx\n",
        f"{first}\n{line[1:]}\n",
        f"{first}\n\u2028\n",
    ):
        with pytest.raises(StepFailed, match="state of an interface"):
            read(text)


def test_an_interface_differs_by_keys_ranges_and_keepalive_and_not_by_endpoints() -> None:
    peers = [SERVER, NODE, NEXT]
    assert not differs(read(LISTING), peers)
    assert not differs(read(LISTING), [replace(SERVER, endpoint="203.0.113.1:1"), NODE, NEXT])
    for other in (
        [SERVER, NODE],
        [*peers, replace(NEXT, public_key=a_key(4))],
        [replace(SERVER, keepalive=False), NODE, NEXT],
    ):
        assert differs(read(LISTING), other)
    assert differs(read(LISTING), [SERVER, replace(NODE, allowed=("10.64.16.4/32",)), NEXT])


async def test_a_machine_that_lists_other_peers_than_it_was_given_has_failed() -> None:
    found = await apply_peers(OneAnswer(LISTING), PLACE, [SERVER, NODE, NEXT])
    assert found == read(LISTING)
    with pytest.raises(StepFailed, match="other peers than it was given"):
        await apply_peers(OneAnswer(LISTING), PLACE, [SERVER])


async def test_the_largest_packet_is_one_that_was_sent() -> None:
    assert await largest_packet(OneAnswer("84\n1280\n1340\n"), "10.64.16.2") == 1_340
    assert await largest_packet(OneAnswer(""), "10.64.16.2") is None
    with pytest.raises(StepFailed, match="packet sizes"):
        await largest_packet(OneAnswer("9000\n"), "10.64.16.2")
