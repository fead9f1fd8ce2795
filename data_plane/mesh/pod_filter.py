"""The packet filter of a member of an overlay: what may arrive out of tunnels, and in VXLAN.

Flannel carries pods' packets in VXLAN. The kernel unpacks it from every interface and from every sender, and forwards
what is inside wherever routes lead. WireGuard, which carries it, sees outer addresses only. So a table of nftables of
ours, beside those of K3s, lets in:

  - VXLAN out of tunnels, where WireGuard has checked which member the outer address belongs to, and from nowhere else;
  - inside it IPv4, from the pods of that member. A server may send from any address: it is ours;
  - everything else out of tunnels from one member's own address to another's. A tunnel lets the addresses of a node's
    pods through as well, 256 of them, but outside VXLAN only an attacker uses these: flannel gives packets of pods for
    addresses that are no pods' the address of their node.

What was unpacked is for the member itself or for its pods. A server carries nothing from node to node, to the internet,
or to a provider's metadata service. Nothing but a member's own pods is sent on into the overlay: a neighbour in the
provider's network cannot use a member as its router.

Each Node says itself which VXLAN device is its own, and could name another one's. So a member sends to each other one
nothing in VXLAN but what is for its pods, whatever flannel believes.

Pods have no IPv6, but the kernel gives each a link-local address, and the bridge of its node one, too. K3s enforces
network policies of a cluster with IPv4 in IPv4 alone, so what pods send in IPv6 is dropped here.
"""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network

from data_plane.mesh.port import OverlayPeer, OverlayPlace

TABLE = "inet splitplane_overlay"
INTERFACE = "spoverlay"
"""Of the tunnels."""
PODS = "cni0"
"""The bridge of a member's pods, as K3s names it."""
VXLAN = "flannel.1"
"""The device that unpacks VXLAN, as K3s names it."""
VXLAN_PORT = 8_472

_POD_PREFIX_LENGTH = 24
# Offsets in bits from the UDP header: 8 bytes of UDP, 8 of VXLAN and 12 of the Ethernet header are before the type of
# what is inside; its source address is 12 bytes into the IPv4 header, which follows the type, and its target 16 bytes.
_INNER_TYPE, _INNER_SOURCE = "@th,224,16", f"@th,336,{_POD_PREFIX_LENGTH}"
_INNER_TARGET = f"@th,368,{_POD_PREFIX_LENGTH}"


def ruleset(place: OverlayPlace, peers: Sequence[OverlayPeer]) -> str:
    """The file for `nft -f` on the member at this place with these peers.

    Its first lines make the table unless it exists and delete it, so that what follows replaces it. Raises ValueError
    for a malformed address. Each sender has a chain, because nftables 1.0.6 knows no sets of parts of a packet.
    """
    own, members = IPv4Address(place.address), IPv4Network(place.range)
    trusted = [IPv4Address(server) for server in place.servers]
    pods = {address: network for address, network in _senders(peers) if address not in trusted}
    chains = [
        f"  chain {name}_{int(address)} {{\n    {end} {_first_bytes(network)} accept\n    drop\n  }}\n"
        for address, network in pods.items()
        for name, end in (("pods_of", _INNER_SOURCE), ("for_pods_of", _INNER_TARGET))
    ]
    return (
        f"# Written by Splitplane; changes are lost.\ntable {TABLE}\ndelete table {TABLE}\ntable {TABLE} {{\n"
        f"{''.join(chains)}"
        f'  chain vxlan {{\n    iifname != "{INTERFACE}" drop\n    {_INNER_TYPE} != 0x0800 drop\n'
        f"{_known('saddr', 'pods_of', trusted, pods)}    drop\n  }}\n"
        f"  chain vxlan_out {{\n{_known('daddr', 'for_pods_of', trusted, pods)}    drop\n  }}\n"
        # Before connections are tracked, which would cost a record for each forged packet.
        "  chain arriving {\n    type filter hook prerouting priority -300; policy accept;\n"
        f"    udp dport {VXLAN_PORT} goto vxlan\n"
        f'    iifname "{INTERFACE}" ip saddr != {members} drop\n'
        f'    iifname "{INTERFACE}" ip daddr != {own} drop\n'
        f'    iifname "{PODS}" meta nfproto ipv6 drop\n  }}\n'
        "  chain leaving {\n    type filter hook output priority -300; policy accept;\n"
        f'    oifname "{INTERFACE}" udp dport {VXLAN_PORT} goto vxlan_out\n  }}\n'
        "  chain forwarded {\n    type filter hook forward priority -10; policy accept;\n"
        f'    iifname "{VXLAN}" oifname != "{PODS}" drop\n'
        f'    oifname {{ "{VXLAN}", "{INTERFACE}" }} iifname != "{PODS}" drop\n  }}\n}}\n'
    )


def _known(
    end: str, chain: str, trusted: Sequence[IPv4Address], pods: Mapping[IPv4Address, IPv4Network]
) -> str:
    """The rule that leads to the chain of each member that has pods, and accepts servers."""
    verdicts = [f"{server} : accept" for server in trusted]
    verdicts += [f"{address} : goto {chain}_{int(address)}" for address in pods]
    return f"    ip {end} vmap {{ {', '.join(verdicts)} }}\n" if verdicts else ""


def _senders(peers: Sequence[OverlayPeer]) -> Iterator[tuple[IPv4Address, IPv4Network]]:
    """The members that have pods, with the ranges of these. A member's address comes right before its pods.

    A relay lists those of several members.
    """
    for peer in peers:
        address: IPv4Address | None = None
        for network in map(IPv4Network, peer.allowed):
            if network.prefixlen == network.max_prefixlen:
                address = network.network_address
            elif address is None or network.prefixlen != _POD_PREFIX_LENGTH:
                raise ValueError(f"{network} is not the range of a member's pods")
            else:
                yield address, network


def _first_bytes(network: IPv4Network) -> int:
    return int(network.network_address) >> (network.max_prefixlen - network.prefixlen)
