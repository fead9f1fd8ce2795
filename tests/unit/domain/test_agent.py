"""What the silence of an agent means, and what it is asked to do."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from control_plane.domain.agent import SILENT_AFTER, Agent, AgentState, AgentTask, state, task_due
from control_plane.domain.ids import ClaimId, LeaseId, MachineId

NOW = datetime(2026, 11, 23, tzinfo=UTC)


def _agent(*, reported_at: datetime | None = None, ended_at: datetime | None = None) -> Agent:
    ids = ClaimId(UUID(int=1)), MachineId(UUID(int=2)), LeaseId(UUID(int=3))
    return Agent(*ids, None, None, None, reported_at, None, 0, {}, ended_at)


def test_an_agent_is_silent_after_five_minutes_and_never_before_it_reported() -> None:
    assert state(_agent(), NOW) is AgentState.WAITING
    assert state(_agent(reported_at=NOW - SILENT_AFTER), NOW) is AgentState.REPORTING
    assert state(_agent(reported_at=NOW - SILENT_AFTER - timedelta(seconds=1)), NOW) is AgentState.SILENT
    assert state(_agent(reported_at=NOW, ended_at=NOW), NOW) is AgentState.ENDED


def test_every_task_comes_to_its_turn_at_its_period_and_the_longest_due_first() -> None:
    done: dict[str, datetime] = {}
    asked: list[AgentTask] = []
    at = NOW
    for _ in range(24 * 60):
        due = task_due(done, at)
        if due is not None:
            asked.append(due)
            done[due] = at
        at += timedelta(minutes=1)
    assert set(asked[:4]) == set(AgentTask), "each at first"
    assert asked.count(AgentTask.CLEAN) == 1
    assert asked.count(AgentTask.TOPOLOGY) == asked.count(AgentTask.VERIFY) == 24
    assert 280 <= asked.count(AgentTask.REPORT) <= 288
