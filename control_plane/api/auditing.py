"""What a request leaves in the audit log: who asked for what, from where, and what decided.

A request that may change something works with a world whose transactions write its line before they commit, so that no
change is committed without it. A refusal rolls back, so its line is written apart (`refusals.py`).
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from litestar.types import Scope

from control_plane.api import observe
from control_plane.domain.access import Allowed, decide
from control_plane.domain.audit import Act, SubjectKind, cleaned, ids_among
from control_plane.domain.ids import Prefix, on_wire
from control_plane.services import audit
from control_plane.services.idempotency import Connection
from control_plane.world import World

if TYPE_CHECKING:  # requests.py needs this module.
    from control_plane.api.requests import ApiRequest

READS = frozenset({"GET", "HEAD", "OPTIONS"})
_MADE = "splitplane.audit_made"


def note_made(scope: Scope, made: object) -> None:
    """Keep what an effect made, for the line: it took effect, also where it changed no row."""
    observe.notes(scope)[_MADE] = made


def recorded(request: "ApiRequest", world: World) -> World:
    """The world in which this request may change something."""
    if request.method in READS:
        return world
    return replace(world, db=world.db.recording(partial(_record, request, world)))


async def _record(request: "ApiRequest", world: World, connection: Connection) -> None:
    took_effect = _MADE in observe.notes(request.scope)
    await audit.record(connection, world, act_of(request), surely=took_effect)


def act_of(request: "ApiRequest") -> Act:
    """What this request does, as the audit log names it."""
    principal, made = request.principal, observe.notes(request.scope).get(_MADE)
    named = [str(value) for value in request.path_params.values()]
    targets = ids_among([str(getattr(made, "id", "")), *named])
    project = getattr(made, "project_id", None)
    return Act(
        organization_id=principal.organization_id,
        event=request.route_handler.opt["permission"].value,
        subject=principal.subject.on_wire,
        subject_kind=SubjectKind(principal.subject.kind.value),
        credential=principal.credential_name,
        project=project if isinstance(project, str) else next(iter(_projects(targets)), None),
        targets=targets,
        address=request.context.door.address(request.scope),
        client=cleaned(request.headers.get("user-agent")),
        region=request.context.settings.region or None,
        rule=_rule(request),
        request_id=observe.request_id(request.scope),
        operation=str(getattr(request.route_handler, "operation_id", "")),
    )


def _rule(request: "ApiRequest") -> str:
    """The role that allowed it, and its binding."""
    opt = request.route_handler.opt
    decided = decide(request.principal, opt["permission"], opt["scope"])
    by = decided.by if isinstance(decided, Allowed) else None
    return "none" if by is None else f"role:{by.role}:{on_wire(Prefix.ROLE_BINDING, by.binding_id)}"


def _projects(targets: tuple[str, ...]) -> list[str]:
    return [target for target in targets if target.startswith("prj_")]
