"""A rule of a firewall is removed by its id, or by ports that only one rule has."""

from pathlib import Path

import httpx

from tests.unit.cli import answers
from tests.unit.cli.answers import LEASE_ID
from tests.unit.cli.stand import Stand

PATH = f"/v1/leases/{LEASE_ID}"
RULES = answers.a_firewall()["rules"]


def _stand(home: Path, *rules: answers.Json) -> Stand:
    deletions = {f"DELETE {PATH}/firewall-rules/{rule['id']}": httpx.Response(204) for rule in rules}
    firewall = answers.a_firewall() | {"rules": list(rules)}
    return Stand(
        home, {f"GET {PATH}": answers.a_lease(), f"GET {PATH}/firewall-rules": firewall, **deletions}
    )


def test_a_rule_is_removed_by_its_id_or_by_its_ports(tmp_path: Path) -> None:
    first, second = RULES
    ports = f"{first['protocol']}/{first['ports']}"
    stand = _stand(tmp_path, first, second)
    result = stand.run("firewall", "remove", LEASE_ID, ports, first["id"], second["id"])
    assert (result.code, result.out) == (0, "Removed 2 rules.\n"), result.err
    deleted = [each.url.path.rpartition("/")[2] for each in stand.requests if each.method == "DELETE"]
    assert deleted == [first["id"], second["id"]]


def test_ports_of_several_rules_or_of_none_remove_nothing(tmp_path: Path) -> None:
    first, second = RULES
    alike = second | {"protocol": first["protocol"], "ports": first["ports"]}
    for word, code in ((f"{first['protocol']}/{first['ports']}", "ambiguous"), ("tcp/1", "not_found")):
        stand = _stand(tmp_path, first, alike)
        result = stand.run("firewall", "remove", LEASE_ID, first["id"], word)
        assert (result.code, f"error: {code}: " in result.err) == (1, True), result.err
        assert not [each for each in stand.requests if each.method == "DELETE"]
