"""Organizations on the screen."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.api_keys import issued_page
from control_plane.cli.render.layout import facts, heading, table
from control_plane.cli.words import ago, both, rounded, short_id, spaced
from control_plane.wire.api_keys import IssuedApiKey
from control_plane.wire.organizations import (
    CreatedOrganization,
    OrganizationChange,
    OrganizationEventView,
    OrganizationView,
)

STATE_STYLES = {"active": "green", "suspended": "red", "closing": "yellow"}
Fact = tuple[str, str | Text | None]


def one_page(organization: OrganizationView, now: datetime) -> RenderableType:
    """Any organization, as operators see it."""
    created: Fact = ("Created", both(organization.created_at, now))
    erased: Fact = ("Erased", both(organization.erased_at, now))
    state: Fact = ("State", organization.state)
    return Group(
        _title(organization),
        facts(("Organization", organization.id), state, *standing(organization), created, erased),
    )


def _title(organization: OrganizationView) -> Text:
    return heading(organization.name, "" if organization.state == "active" else organization.state)


def standing(organization: OrganizationView) -> tuple[Fact, ...]:
    return (
        ("GPUs", f"{organization.gpus_held} of {_quota(organization)} held"),
        ("Balance", f"{rounded(organization.balance)} USD"),
        ("On hold", f"{rounded(organization.held)} USD for running leases"),
        ("Available", f"{rounded(organization.available)} USD"),
    )


def organization_table(organizations: Sequence[OrganizationView]) -> RenderableType:
    if not organizations:
        return Text("No organizations. To create one: splitplane organization create NAME")
    ids = [organization.id for organization in organizations]
    rows = [
        (
            short_id(organization.id, ids),
            Text(organization.name, style="bold"),
            Text(organization.state, style=STATE_STYLES.get(organization.state, "")),
            f"{organization.gpus_held}/{_quota(organization)}",
            rounded(organization.balance),
            rounded(organization.available),
        )
        for organization in organizations
    ]
    columns = ("ORGANIZATION", "NAME", "STATE", "GPUS", "BALANCE USD", "AVAILABLE")
    return table(columns, rows, right=columns[3:], whole=("ORGANIZATION", "STATE"))


def created_page(created: CreatedOrganization, now: datetime) -> RenderableType:
    """A new organization with the secret of its first API key."""
    issued = IssuedApiKey(created.key, created.secret)
    return Group(one_page(created.organization, now), Text(), issued_page(issued, now))


def change_page(change: OrganizationChange, now: datetime) -> RenderableType:
    """An organization after a change, with what that ended."""
    event, ended = change.event, change.event.ended
    counts = {"ready": ended.ready_leases, "starting": ended.starting_leases, "waiting": ended.waiting_leases}
    leases = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    done: tuple[Fact, ...] = (
        ("Reason", event.reason),
        ("At", both(event.at, now)),
        ("Leases", f"{sum(counts.values())} ended: {leases}" if leases else None),
        ("", f"{ended.ending_leases} ending already" if ended.ending_leases else None),
        ("API keys", f"{ended.api_keys} refused from now on" if ended.api_keys else None),
        ("Released", f"{rounded(ended.holds)} USD no longer on hold" if ended.holds.nano else None),
        ("On hold", f"{rounded(event.held)} USD for use not charged yet" if event.held.nano else None),
        ("Balance", f"{rounded(event.balance)} USD"),
    )
    title = heading(change.organization.name, change.organization.state)
    return Group(title, facts(("Organization", change.organization.id), *done))


def history_table(events: Sequence[OrganizationEventView], now: datetime) -> RenderableType:
    rows = [
        (
            ago(event.at, now),
            Text(spaced(event.event), style="bold"),
            Text(event.state_after, style=STATE_STYLES.get(event.state_after, "")),
            rounded(event.balance),
            event.actor,
            event.reason,
        )
        for event in events
    ]
    columns = ("WHEN", "EVENT", "STATE", "BALANCE USD", "BY", "REASON")
    return table(columns, rows, right=("BALANCE USD",), whole=("WHEN", "STATE"))


def _quota(organization: OrganizationView) -> str:
    return "any number" if organization.gpu_quota is None else str(organization.gpu_quota)
