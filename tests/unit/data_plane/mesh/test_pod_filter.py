"""The packet filter of a member: which senders it lets in with which pods."""

import pytest

from data_plane.mesh.pod_filter import ruleset
from data_plane.mesh.port import OverlayPeer, OverlayPlace

SERVER = OverlayPeer("server", ("10.64.16.2/32",))
WITHOUT_PODS = OverlayPeer("new", ("10.64.16.3/32",))
NODE = OverlayPeer("node", ("10.64.16.4/32", "10.48.7.0/24"))
NEXT_KEY = OverlayPeer("next", ())
RELAY = OverlayPeer(
    "relay", ("10.64.16.5/32", "10.48.8.0/24", "10.64.16.6/32", "10.64.16.7/32", "10.48.9.0/24")
)


def rules(peers: list[OverlayPeer], servers: tuple[str, ...]) -> str:
    return ruleset(OverlayPlace("10.64.16.9", "10.64.16.0/20", "10.48.0.0/12", servers), peers)


def senders(peers: list[OverlayPeer], servers: tuple[str, ...]) -> list[str]:
    (line,) = [line for line in rules(peers, servers).splitlines() if "saddr vmap" in line] or [""]
    return (
        sorted(line.strip().removeprefix("ip saddr vmap { ").removesuffix(" }").split(", ")) if line else []
    )


def test_each_sender_may_send_from_its_own_pods_and_servers_from_anywhere() -> None:
    everybody = [SERVER, WITHOUT_PODS, NODE, NEXT_KEY, RELAY]
    assert senders(everybody, ("10.64.16.2",)) == [
        "10.64.16.2 : accept",
        "10.64.16.4 : goto pods_of_171970564",
        "10.64.16.5 : goto pods_of_171970565",
        "10.64.16.7 : goto pods_of_171970567",
    ]
    text = rules(everybody, ("10.64.16.2",))
    for address, first_bytes in ((171970564, 0x0A3007), (171970565, 0x0A3008), (171970567, 0x0A3009)):
        assert f"chain pods_of_{address} {{\n    @th,336,24 {first_bytes} accept\n    drop\n" in text
        assert f"chain for_pods_of_{address} {{\n    @th,368,24 {first_bytes} accept\n    drop\n" in text
    assert senders([WITHOUT_PODS], ()) == [] == senders([], ())
    # A server that runs pods is let in as a server, and not by their range.
    assert senders([NODE], ("10.64.16.4",)) == ["10.64.16.4 : accept"]


def test_ranges_that_tell_no_sender_are_refused() -> None:
    for allowed in (("10.48.7.0/24",), ("10.64.16.4/32", "10.48.0.0/20"), ("drop; accept",)):
        with pytest.raises(ValueError, match=r"10\.48|drop"):
            rules([OverlayPeer("key", allowed)], ())
    with pytest.raises(ValueError, match="drop"):
        rules([], ("drop; accept",))
