"""Which loops would find nothing on a stage now, so that it need not run them.

Most activations in hours of virtual time look at nothing. A stage leaves those out, and runs all loops at the end of
each `play`: one that finds work then, which this file does not know of, fails the scenario.
"""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import text

from control_plane.db.connection import Connection
from control_plane.db.tables.marks import among
from control_plane.domain.lease import LIVE, LeaseState
from control_plane.domain.machine import MachineState
from control_plane.domain.organization import OrganizationState
from reconciler import registry
from tests.support.rows import rows

OF_CLUSTERS = frozenset(registry.of_wing("clusters"))
READ_ONLY = frozenset({"audit_ledger", "read_figures"})
"""Loops that only read for the metrics, as `test_crashes.py` shows."""
_LIVE = among("state", LIVE)
_UNFINISHED = """reconciliations r WHERE NOT EXISTS (
  SELECT FROM reconciliation_batches b WHERE b.reconciliation_id = r.id AND b.remaining = 0)"""
_WORK_LIES_IN = {
    "admit_customers": ("claims WHERE admitted_at IS NULL AND ended_at IS NULL",),
    "answer_account_requests": ("account_requests",),
    "apply_firewalls": ("firewalls WHERE due_at <= :now",),
    "apply_provider_firewalls": ("provider_firewalls",),
    "bootstrap_machines": (f"machines WHERE state = '{MachineState.BOOTSTRAPPING}'",),
    "challenge_machines": ("machines WHERE proof_due_at <= :now",),
    "change_power": ("powers",),
    "close_leases": (f"leases WHERE state = '{LeaseState.ENDING}'",),
    "close_organizations": (f"organizations WHERE state = '{OrganizationState.CLOSING}'",),
    "collect_orphans": ("provider_accounts WHERE coalesce(orphans_due_at <= :now, true)",),
    "credit_breaches": ("sla_uncredited", "sla_undecided"),
    "end_actions": ("enforcement_actions", "findings", "throughput_hours"),
    "erase_machines": ("machines WHERE erasing_until > :now",),
    "erase_organizations": (
        f"organizations WHERE state = '{OrganizationState.DELETED}' AND erased_at IS NULL",
    ),
    "expire_machines": (
        "machines WHERE deadline_at <= :now",
        "claims WHERE deadline_at <= :now AND admitted_at IS NULL AND ended_at IS NULL",
    ),
    "judge_promises": ("sla_clocks",),
    "keep_pools": ("pools", "machines WHERE reserved_for IS NOT NULL"),
    "launch_machines": (f"machines WHERE state = '{MachineState.INTENDED}'",),
    "look_at_machines": ("machine_health",),
    "order_spares": ("repairs",),
    "place_leases": (f"leases WHERE state = '{LeaseState.PLACING}' AND due_at <= :now",),
    "preempt_leases": (
        "preemptions WHERE closed_at IS NULL",
        f"leases WHERE state = '{LeaseState.PLACING}' AND waiting_since IS NOT NULL",
    ),
    "rate_usage": ("unrated",),
    "read_consoles": ("consoles",),
    "reconcile_periods": (_UNFINISHED,),
    "release_leases": (
        f"leases WHERE {_LIVE} AND release_at <= :now",
        f"leases WHERE {_LIVE} AND committed_days IS NOT NULL",
    ),
    "revoke_ssh_certificates": ("ssh_certificates",),
    "rotate_keys": ("data_keys",),
    "sign_ssh_certificates": ("ssh_certificates",),
    "terminate_machines": (f"machines WHERE state = '{MachineState.TERMINATING}'",),
} | dict.fromkeys(OF_CLUSTERS, ("clusters", "server_hosts"))
"""Where the rows are that a loop may have to work on: it finds nothing while there are none."""
_PLACES = sorted({place for places in _WORK_LIES_IN.values() for place in places})
_FILLED = text(
    " UNION ALL ".join(
        f"SELECT {number} AS place WHERE EXISTS (SELECT FROM {place})" for number, place in enumerate(_PLACES)
    )
)


async def idle_loops(connection: Connection, now: datetime) -> Collection[str]:
    """The loops that would find nothing."""
    filled = {_PLACES[row.place] for row in await rows(connection, _FILLED, now=now)}
    return {name for name, places in _WORK_LIES_IN.items() if filled.isdisjoint(places)}
