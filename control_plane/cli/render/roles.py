"""Who one is, and who has which role, on the screen."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import facts, heading, table
from control_plane.cli.render.organizations import Fact, standing
from control_plane.cli.words import coarse, short_id
from control_plane.wire.organizations import OrganizationView
from control_plane.wire.roles import HeldRoleView, MeView, RoleBindingView, ScopeView


def me_page(me: MeView, organization: OrganizationView | None, *, url: str, source: str) -> RenderableType:
    """The caller; `url` is of the API, `source` says where the key is from, `organization` if the caller may see it."""
    known: tuple[Fact, ...] = (
        ("Subject", me.subject),
        ("Email", me.email),
        ("Organization", f"{me.organization}  {me.organization_id}"),
        ("API", url),
        ("Key", source),
        ("Roles", "\n".join(map(_held, me.roles)) or "none"),
    )
    seen = () if organization is None else standing(organization)
    return Group(heading(me.name, me.kind.replace("_", " ")), facts(*known, *seen))


def _held(role: HeldRoleView) -> str:
    return f"{role.role} of {scope_words(role.scope)}"


def scope_words(scope: ScopeView) -> str:
    """Where a role applies, such as `the organization` or `project prj_...`."""
    found = scope.lease_id or scope.environment_id or scope.project_id
    return f"the {scope.kind}" if found is None else f"{scope.kind} {found}"


def role_table(bindings: Sequence[RoleBindingView], now: datetime) -> RenderableType:
    if not bindings:
        return Text("No roles.")
    ids = [binding.id for binding in bindings]
    subjects = [binding.subject for binding in bindings]
    rows = [
        (
            short_id(binding.id, ids),
            short_id(binding.subject, subjects),
            Text(binding.role, style="bold"),
            scope_words(binding.scope),
            coarse(now - binding.created_at),
        )
        for binding in bindings
    ]
    columns = ("ROLE BINDING", "SUBJECT", "ROLE", "SCOPE", "AGE")
    return table(columns, rows, right=("AGE",), whole=("ROLE BINDING", "SUBJECT", "ROLE"))
