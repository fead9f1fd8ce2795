"""Who one is, and who has which role, on the screen."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.names import Names
from control_plane.cli.render.layout import facts, heading, table
from control_plane.cli.render.organizations import Fact, standing
from control_plane.cli.words import coarse, short_id
from control_plane.wire.organizations import OrganizationView
from control_plane.wire.roles import HeldRoleView, MeView, RoleBindingView


def me_page(
    me: MeView, organization: OrganizationView | None, names: Names, *, url: str, source: str
) -> RenderableType:
    """The caller; `url` is of the API, `source` says where the key is from, `organization` if the caller may see it."""
    known: tuple[Fact, ...] = (
        ("Subject", me.subject),
        ("Email", me.email),
        ("Organization", f"{me.organization}  {me.organization_id}"),
        ("API", url),
        ("Key", source),
        ("Roles", "\n".join(_held(role, names) for role in me.roles) or "none"),
    )
    seen = () if organization is None else standing(organization)
    return Group(heading(me.name, me.kind.replace("_", " ")), facts(*known, *seen))


def _held(role: HeldRoleView, names: Names) -> str:
    where = names.scope(role.scope)
    return f"{role.role} of {'the ' if ' ' not in where else ''}{where}"


def role_table(bindings: Sequence[RoleBindingView], names: Names, now: datetime) -> RenderableType:
    if not bindings:
        return Text("No roles.")
    ids = [binding.id for binding in bindings]
    rows = [
        (
            short_id(binding.id, ids),
            names.subject(binding.subject) or binding.subject,
            Text(binding.role, style="bold"),
            names.scope(binding.scope),
            coarse(now - binding.created_at),
        )
        for binding in bindings
    ]
    columns = ("ROLE BINDING", "SUBJECT", "ROLE", "SCOPE", "AGE")
    return table(columns, rows, right=("AGE",), whole=("ROLE BINDING", "ROLE"))
