"""Loop reports over HTTP: which loops are late, which have stopped in one replica, and which nobody runs."""

import pytest

from control_plane.db import loops
from control_plane.db.loops import RosterLine, Turn
from reconciler import registry
from reconciler.loop import Loop
from reconciler.roster import Roster
from reconciler.world import World
from tests.integration.api.conftest import Api, Tenant

pytestmark = pytest.mark.database


async def _report(
    api: Api, loop: str, *, account: str = "", replica: str = "one", looked_at: int = 0, error: str = ""
) -> None:
    now = api.clock.now()
    async with api.owner.db.transaction() as connection:
        await loops.record(
            connection,
            loop=loop,
            account=account,
            replica=replica,
            started_at=now,
            finished_at=now,
            every_seconds=1,
            late_after_seconds=30,
            looked_at=looked_at,
            acted_on=1,
            errors=[error] if error else [],
            notes=[],
        )


async def _roster(api: Api, *lines: RosterLine) -> None:
    async with api.owner.db.transaction() as connection:
        await loops.store_roster(connection, lines, now=api.clock.now())


async def test_an_operator_sees_the_last_report_of_every_loop_and_which_are_late(
    api: Api, operator: Tenant
) -> None:
    await _roster(api, RosterLine("place_leases", "", "leases"))
    for looked_at in (1, 2):
        await _report(api, "place_leases", looked_at=looked_at, error="it failed")

    async def shown() -> dict[str, object]:
        [report] = (await operator.http.get("/v1/operator/loops")).json()["items"]
        names = ("loop", "wing", "looked_at", "activations", "errors", "late", "stopped")
        return {name: report[name] for name in names}

    report = {
        "loop": "place_leases",
        "wing": "leases",
        "looked_at": 2,
        "activations": 2,
        "errors": ["it failed"],
        "stopped": False,
    }
    assert await shown() == report | {"late": False}
    api.clock.advance(32)
    assert await shown() == report | {"late": True}


async def test_a_silent_replica_has_stopped_where_another_one_runs_the_loop_and_is_late_where_none_does(
    api: Api, operator: Tenant
) -> None:
    for account in ("a", "b"):
        await _report(api, "observe_machines", account=account, replica="old")
    api.clock.advance(32)
    await _report(api, "observe_machines", account="a", replica="new")
    items = (await operator.http.get("/v1/operator/loops")).json()["items"]
    shown = {(item["account"], item["replica"]): (item["late"], item["stopped"]) for item in items}
    assert shown == {("a", "old"): (False, True), ("a", "new"): (False, False), ("b", "old"): (True, False)}


async def test_a_loop_that_no_process_runs_is_listed_as_missing(api: Api, operator: Tenant) -> None:
    async def missing() -> list[tuple[str, str, str]]:
        page = (await operator.http.get("/v1/operator/loops")).json()
        return [(line["wing"], line["loop"], line["account"]) for line in page["missing"]]

    await _roster(api, RosterLine("observe_machines", "", "machines"), RosterLine("rate_usage", "", "money"))
    assert await missing() == [("machines", "observe_machines", ""), ("money", "rate_usage", "")]
    await _report(api, "rate_usage")
    assert await missing() == [("machines", "observe_machines", "")]
    # Another process knows the accounts, so the line without one says nothing more.
    await _roster(api, *(RosterLine("observe_machines", account, "machines") for account in ("a", "b")))
    assert await missing() == [("machines", "observe_machines", "a"), ("machines", "observe_machines", "b")]
    await _report(api, "observe_machines", account="a")
    assert await missing() == [("machines", "observe_machines", "b")]


async def test_lines_of_the_roster_that_nobody_stores_any_more_are_erased(api: Api) -> None:
    await _roster(api, RosterLine("old_loop", "", "money"), RosterLine("rate_usage", "", "money"))
    api.clock.advance(60)
    before = api.clock.now()
    await _roster(api, RosterLine("rate_usage", "", "money"))
    async with api.owner.db.transaction() as connection:
        await loops.forget(connection, before=before)
        assert [line.loop for line in await loops.missing(connection)] == ["rate_usage"]


async def test_a_process_of_one_wing_names_the_loops_of_all_wings_and_takes_back_its_own_reports(
    api: Api,
) -> None:
    world = World(db=api.owner.db, now=api.clock.now, new_id=api.owner.new_id, replica="one")
    turns = [Turn(name, "") for name, loop in registry.of_wing("money").items() if isinstance(loop, Loop)]
    roster = Roster(world, turns)
    assert {(line.loop, line.wing) for line in roster.lines()} == set(registry.names().items())
    assert set(registry.names()) == set(registry.discovered())
    for replica in ("one", "two"):
        await _report(api, "rate_usage", replica=replica)
    await _report(api, "observe_machines", account="a")
    await roster.withdraw()
    async with api.owner.db.reading() as connection:
        left = {(report.loop, report.replica) for report in await loops.reports(connection)}
    assert left == {("rate_usage", "two"), ("observe_machines", "one")}, "only its own, and only of its loops"
