"""What a request leaves in the audit log: who asked for what, from where, and what decided.

A request that may change something works with a world whose transactions write its line before they commit, so that no
change is committed without it. A refusal rolls back, so its line is written apart (`refusals.py`).
"""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from litestar.types import Scope

from control_plane.api import observe
from control_plane.api.auth import SECRET_LENGTH_MAX, unauthenticated
from control_plane.domain.access import Allowed, Holder, decide
from control_plane.domain.audit import Act, AuditOutcome, Detail, Happening, SubjectKind, cleaned, ids_among
from control_plane.domain.ids import Prefix, on_wire
from control_plane.services import audit, principals
from control_plane.services.api_keys import KEY_PREFIX
from control_plane.services.idempotency import Connection
from control_plane.wire.firewalls import FirewallRuleView
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
    begin = None if request.method == "POST" else partial(_begin, request)
    return replace(world, db=world.db.recording(partial(_record, request, world), begin=begin))


async def _begin(request: "ApiRequest", connection: Connection) -> None:
    """Hold the caller's organization open, as `idempotency.once` does for a POST, and count what changes.

    Otherwise a request that stood still since its key was accepted would write into an organization that was closed,
    or even erased, meanwhile.
    """
    if not await principals.hold_open(connection, request.principal):
        raise unauthenticated()
    await audit.begin(connection)


async def _record(request: "ApiRequest", world: World, connection: Connection) -> None:
    took_effect = _MADE in observe.notes(request.scope)
    if took_effect or request.method != "POST":  # A POST that took effect has noted what it made.
        await audit.record(connection, world, act_of(request), surely=took_effect)


def act_of(request: "ApiRequest") -> Act:
    """What this request does, as the audit log names it."""
    principal, made = request.principal, observe.notes(request.scope).get(_MADE)
    named = [str(value) for value in request.path_params.values()]
    targets = ids_among([*_ids_in(made), *named, *_other_organization(request, made)])
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
        details=_details(made),
    )


def _rule(request: "ApiRequest") -> str:
    """The role that allowed it, and its binding."""
    opt = request.route_handler.opt
    decided = decide(request.principal, opt["permission"], opt["scope"])
    by = decided.by if isinstance(decided, Allowed) else None
    return "none" if by is None else f"role:{by.role}:{on_wire(Prefix.ROLE_BINDING, by.binding_id)}"


NOT_AUDITED = frozenset(
    {
        *(
            "malformed_json",
            "invalid_parameter",
            "unknown_parameter",
            "invalid_cursor",
            "invalid_idempotency_key",
        ),
        *("bad_request", "route_not_found", "method_not_allowed", "request_timeout", "body_too_large"),
        *(
            "unsupported_media_type",
            "invalid_request",
            "idempotency_key_missing",
            "idempotency_key_reused",
            "rate_limited",
        ),
        *("too_many_in_progress", "overloaded", "not_ready", "clock_differs", "streams_exhausted"),
    }
)
"""Codes of requests that could not be understood, or were not heard: nothing was decided about what they ask for."""
FAILURES = frozenset({"internal", "database_unavailable"})


def note_refusal(request: "ApiRequest") -> None:
    """Note the line of a request that was refused, or failed; called when it ends."""
    code = observe.refusal_of(request.scope)
    if code is None or code in NOT_AUDITED:
        return
    refusals = request.context.refusals
    if request.scope.get("auth") is None:
        _note_secret(request)
    elif code not in FAILURES:
        refusals.note(act_of(request), code)
    elif request.method not in READS:
        refusals.note(act_of(request), code, AuditOutcome.FAILED)


def note_refused_sign_in(request: "ApiRequest", code: str) -> None:
    """Note that a person was not signed in. No organization is known, so it is a line of the platform's chain."""
    act = Act(
        organization_id=None,
        event=Happening.SIGN_INS_REFUSE.value,
        subject="api",
        subject_kind=SubjectKind.SYSTEM,
        address=request.context.door.address(request.scope),
        client=cleaned(request.headers.get("user-agent")),
        region=request.context.settings.region or None,
        request_id=observe.request_id(request.scope),
    )
    request.context.refusals.note(act, code)


def _note_secret(request: "ApiRequest") -> None:
    secret = request.headers.get("authorization", "").partition(" ")[2].strip()
    event = request.route_handler.opt["permission"].value
    holder = request.context.authenticator.holder(secret)
    if holder is None:
        note_refused_key(request, secret, event)
    else:
        note_refused_holder(request, holder, event, "unauthenticated")


def note_refused_holder(request: "ApiRequest", holder: Holder, event: str, code: str) -> None:
    """Note that somebody was refused who is no principal: by whose credential, or as which user."""
    act = Act(
        organization_id=holder.organization_id,
        event=event,
        subject=holder.subject.on_wire,
        subject_kind=SubjectKind(holder.subject.kind.value),
        credential=holder.credential_name,
        address=request.context.door.address(request.scope),
        client=cleaned(request.headers.get("user-agent")),
        region=request.context.settings.region or None,
        request_id=observe.request_id(request.scope),
    )
    request.context.refusals.note(act, code)


def note_refused_key(request: "ApiRequest", secret: str, event: str) -> None:
    """Note that an API key was refused. If it was somebody's, that is a line."""
    if not secret.startswith(KEY_PREFIX) or len(secret) > SECRET_LENGTH_MAX or not secret.isascii():
        return
    request.context.refusals.note_secret(
        audit.RefusedSecret(
            digest=principals.digest(secret),
            event=event,
            address=request.context.door.address(request.scope),
            client=cleaned(request.headers.get("user-agent")),
            region=request.context.settings.region or None,
            request_id=observe.request_id(request.scope),
        )
    )


def _ids_in(made: object) -> list[str]:
    """The ids of what an effect made, some of which are in a part of its answer, beside a secret."""
    parts = (made, getattr(made, "organization", None), getattr(made, "key", None))
    found = (getattr(part, "id", None) for part in parts)
    return [wire_id for wire_id in found if isinstance(wire_id, str)]


def _other_organization(request: "ApiRequest", made: object) -> list[str]:
    """The organization whose money an effect moved, where that is not the caller's own."""
    found = getattr(made, "organization_id", None)
    own = on_wire(Prefix.ORGANIZATION, request.principal.organization_id)
    return [found] if isinstance(found, str) and found != own else []


def _details(made: object) -> dict[str, Detail]:
    """What a rule of a firewall opens, or opened: it is gone once it is deleted."""
    if not isinstance(made, FirewallRuleView):
        return {}
    return {"protocol": made.protocol, "ports": made.ports, "sources": ", ".join(made.sources)}


def _projects(targets: tuple[str, ...]) -> list[str]:
    return [target for target in targets if target.startswith("prj_")]
