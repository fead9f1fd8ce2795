"""Organizations and their credits on the screen."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.api_keys import issued_page
from control_plane.cli.render.layout import facts, heading, table
from control_plane.cli.words import both, price, rounded, short_id
from control_plane.wire.api_keys import IssuedApiKey
from control_plane.wire.organizations import (
    CreatedOrganization,
    CreditView,
    OrganizationView,
    OwnOrganizationView,
)

STATE_STYLES = {"active": "green", "suspended": "red", "closing": "yellow"}
Fact = tuple[str, str | Text | None]


def organization_page(organization: OwnOrganizationView, *, url: str, source: str) -> RenderableType:
    """The caller's own. `url` is the API's; `source` says where the API key comes from."""
    id_and_login: tuple[Fact, ...] = (
        ("Organization", organization.id),
        ("API", url),
        ("Key", source),
        ("Role", organization.role),
    )
    return Group(_title(organization), facts(*id_and_login, *_standing(organization)))


def one_page(organization: OrganizationView, now: datetime) -> RenderableType:
    """Any organization, as operators see it."""
    created: Fact = ("Created", both(organization.created_at, now))
    return Group(
        _title(organization), facts(("Organization", organization.id), *_standing(organization), created)
    )


def _title(organization: OrganizationView) -> Text:
    return heading(organization.name, "" if organization.state == "active" else organization.state)


def _standing(organization: OrganizationView) -> tuple[Fact, ...]:
    return (
        ("GPUs", f"{organization.gpus_held} of {organization.gpu_quota} held"),
        ("Balance", f"{rounded(organization.balance)} USD"),
        ("On hold", f"{rounded(organization.held)} USD for running leases"),
        ("Available", f"{rounded(organization.available)} USD"),
    )


def organization_table(organizations: Sequence[OrganizationView]) -> RenderableType:
    ids = [organization.id for organization in organizations]
    rows = [
        (
            short_id(organization.id, ids),
            Text(organization.name, style="bold"),
            Text(organization.state, style=STATE_STYLES.get(organization.state, "")),
            f"{organization.gpus_held}/{organization.gpu_quota}",
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


def credit_page(posted: CreditView, name: str) -> RenderableType:
    return facts(
        ("Organization", name),
        ("Credited", f"{price(posted.amount)} USD"),
        ("Balance", f"{price(posted.balance)} USD"),
    )
