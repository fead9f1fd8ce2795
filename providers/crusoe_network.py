"""Networks of a Crusoe project: what its API lists of them, the rules that open ports, and the place of a machine."""

from typing import Any

import msgspec

OPEN = {"splitplane-ssh": ("tcp", 22), "splitplane-wireguard": ("udp", 51_820)}
"""The rules that every machine needs, by name."""


class Network(msgspec.Struct):
    id: str
    name: str
    cidr: str


class Networks(msgspec.Struct):
    items: list[Network]


class Subnet(msgspec.Struct):
    id: str
    location: str
    vpc_network_id: str


class Subnets(msgspec.Struct):
    items: list[Subnet]


class FirewallRule(msgspec.Struct):
    name: str
    vpc_network_id: str


class FirewallRules(msgspec.Struct):
    items: list[FirewallRule]


def by_location(listed: Subnets, network: Network) -> dict[str, str]:
    """A subnet of the network in each location that has one."""
    found = sorted(
        (each for each in listed.items if each.vpc_network_id == network.id), key=lambda each: each.id
    )
    return {each.location: each.id for each in reversed(found)}


def rule_names(listed: FirewallRules, network: Network) -> frozenset[str]:
    """Those of the network."""
    return frozenset(each.name for each in listed.items if each.vpc_network_id == network.id)


def rule(name: str, network: Network) -> dict[str, Any]:
    """One of OPEN as Crusoe takes it."""
    protocol, port = OPEN[name]
    return {
        "name": name,
        "vpc_network_id": network.id,
        "action": "allow",
        "direction": "ingress",
        "protocols": [protocol],
        "sources": [{"cidr": "0.0.0.0/0"}],
        "source_ports": ["1-65535"],
        "destinations": [{"cidr": network.cidr}],
        "destination_ports": [str(port)],
    }


def interface(subnet: str) -> dict[str, Any]:
    """An interface with a public address in a subnet, as Crusoe's Terraform provider sends it."""
    empty = dict.fromkeys(("id", "name", "network", "interface_type", "mac_address", "external_dns_name"), "")
    public = {"id": "", "address": "", "type": "dynamic"}
    return {**empty, "subnet": subnet, "ips": [{"public_ipv4": public, "private_ipv4": None}]}
