"""The firewall of a lease over HTTP: opened, listed, closed, refused, and in the audit log."""

from uuid import UUID

import pytest
from sqlalchemy import text

from control_plane.domain.firewall import RULES_MAX
from tests.integration.api.conftest import Api, Tenant
from tests.integration.api.problems import hold
from tests.support.cases import case
from tests.support.stage import Stage

pytestmark = pytest.mark.database

_FILL = text("""
UPDATE firewalls SET rules = (
  SELECT jsonb_agg(jsonb_set(rules->0, '{first_port}', to_jsonb(n))) FROM generate_series(CAST(:first AS int), 8080) n)
""")
_END = text("UPDATE leases SET state = 'ended', ended_at = created_at WHERE id = :id")
RULE = {"protocol": "tcp", "ports": "8080", "sources": ["203.0.113.7"]}


def path_of(lease: str) -> str:
    return f"/v1/leases/{lease}/firewall-rules"


async def test_a_rule_is_listed_until_it_is_deleted(acme: Tenant) -> None:
    lease = await acme.lease()
    empty = (await acme.http.get(path_of(lease))).json()
    assert empty == {
        "lease_id": lease,
        "state": "waiting",
        "problem": None,
        "provider": None,
        "provider_applied_at": None,
        "applied_at": None,
        "looked_at": None,
        "rules": [],
    }
    made = await acme.http.post(path_of(lease), json=RULE)
    assert made.status_code == 202
    rule = made.json()
    assert (rule["ports"], rule["sources"], rule["lease_id"]) == ("8080", ["203.0.113.7/32"], lease)
    second = (await acme.http.post(path_of(lease), json=RULE | {"ports": "90-99"})).json()
    assert (await acme.http.get(path_of(lease))).json()["rules"] == [rule, second]
    hold(await acme.http.post(path_of(lease), json=RULE), "firewall_rule_duplicate")
    assert (await acme.http.delete(f"{path_of(lease)}/{rule['id']}")).status_code == 204
    hold(await acme.http.delete(f"{path_of(lease)}/{rule['id']}"), "not_found")
    assert (await acme.http.get(path_of(lease))).json()["rules"] == [second]


async def test_what_cannot_be_opened_is_refused_and_changes_nothing(acme: Tenant) -> None:
    lease = await acme.lease()
    for field, value, code in (
        ("ports", "1-65535", "ports_kept_open"),
        ("ports", "99999", "ports_invalid"),
        ("sources", ["203.0.113.7/24"], "source_invalid"),
        ("sources", [], "invalid_request"),
        ("sources", ["203.0.113.7"] * 5, "invalid_request"),
        ("protocol", "icmp", "invalid_request"),
    ):
        with case(field, value):
            hold(await acme.http.post(path_of(lease), json=RULE | {field: value}), code)
    assert (await acme.http.get(path_of(lease))).json()["rules"] == []


async def test_the_rules_of_a_lease_are_bounded(api: Api, acme: Tenant) -> None:
    lease = await acme.lease()
    first = (await acme.http.post(path_of(lease), json=RULE)).json()
    async with api.owner.db.transaction() as connection:
        await connection.execute(_FILL, {"first": 8081 - RULES_MAX})
    assert len((await acme.http.get(path_of(lease))).json()["rules"]) == RULES_MAX
    hold(await acme.http.post(path_of(lease), json=RULE | {"ports": "9000"}), "firewall_rules_too_many")
    assert (await acme.http.delete(f"{path_of(lease)}/{first['id']}")).status_code == 204


async def test_a_lease_that_has_ended_has_no_firewall_to_change(api: Api, acme: Tenant) -> None:
    lease = await acme.lease()
    rule = (await acme.http.post(path_of(lease), json=RULE)).json()
    async with api.owner.db.transaction() as connection:
        await connection.execute(_END, {"id": UUID(hex=lease[3:])})
    shown = (await acme.http.get(path_of(lease))).json()
    assert (shown["state"], shown["rules"]) == ("ended", [rule])
    hold(await acme.http.post(path_of(lease), json=RULE | {"ports": "90"}), "state_conflict")
    hold(await acme.http.delete(f"{path_of(lease)}/{rule['id']}"), "state_conflict")


async def test_the_audit_log_says_what_was_opened_and_closed_and_by_whom(
    api: Api, stage: Stage, acme: Tenant
) -> None:
    lease = await acme.lease()
    rule = (await acme.http.post(path_of(lease), json=RULE)).json()
    await acme.http.delete(f"{path_of(lease)}/{rule['id']}")
    await stage.run("seal_audit")
    opened = {"protocol": "tcp", "ports": "8080", "sources": "203.0.113.7/32"}
    for event, operation in (
        ("firewall_rules.create", "createFirewallRule"),
        ("firewall_rules.delete", "deleteFirewallRule"),
    ):
        (line,) = (await acme.http.get("/v1/audit-events", params={"event": event})).json()["items"]
        assert line["details"] == {"operation": operation, **opened}, event
        assert line["targets"] == [rule["id"], lease]
        assert line["address"]
        assert line["credential"]
