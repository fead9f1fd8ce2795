"""Leases: create, list, read, explain and release them. `events.py` follows them."""

from typing import Annotated

from litestar import Controller, Response, get, patch, post, put
from litestar.params import FromPath, JSONBody, QueryParameter

from control_plane.api import idempotency, paging
from control_plane.api.catalogue import requested_by
from control_plane.api.documents import PROBLEMS, made, refusable
from control_plane.api.errors import ApiError, refusal
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id, read_lease_id
from control_plane.api.paging import Cursor, Limit, LongCursor
from control_plane.api.projects import OfProject
from control_plane.api.requests import ApiRequest
from control_plane.api.views.journal import journal_line
from control_plane.api.views.leases import explanation_view, lease_view
from control_plane.api.views.proofs import proof_view
from control_plane.domain.auto_release import AutoRelease
from control_plane.domain.ids import Prefix, QuoteId
from control_plane.domain.lease import LeaseState
from control_plane.domain.money import NOTHING, parse_usd
from control_plane.domain.permission import Permission
from control_plane.domain.power_action import PowerAction
from control_plane.domain.purchase import OnEviction
from control_plane.domain.refusal import Refused
from control_plane.domain.request import LeaseTerms
from control_plane.domain.scope import ScopeKind
from control_plane.services import lease_changes, lease_overviews, leases, powers, proofs
from control_plane.services.idempotency import Connection
from control_plane.services.lease_changes import Changes
from control_plane.services.leases import WantedLease
from control_plane.wire.common import USD_PATTERN
from control_plane.wire.explanations import ExplanationView
from control_plane.wire.journal import JournalPage
from control_plane.wire.leases import (
    AutoReleaseRequest,
    LabelsRequest,
    LeaseBatchRequest,
    LeaseBatchView,
    LeaseChangeRequest,
    LeasePage,
    LeaseRequest,
    LeaseView,
)
from control_plane.wire.problems import FieldError
from control_plane.wire.proofs import ProofPage

States = Annotated[
    list[LeaseState] | None,
    QueryParameter(name="state", max_items=8, description="Only leases in these states; may be repeated."),
]
WithLabels = Annotated[
    list[str] | None,
    QueryParameter(
        name="label",
        max_items=16,
        description="Only leases with this label, `key=value`. It may be repeated with other keys; all must match.",
    ),
]
IsWaiting = Annotated[
    bool | None,
    QueryParameter(
        name="waiting",
        description="With `true` only leases that wait for stock, with `false` only the others.",
    ),
]


AcceptFee = Annotated[
    str | None,
    QueryParameter(
        name="accept_fee_usd",
        pattern=USD_PATTERN,
        max_length=19,
        description="The most that releasing a lease before the end of its term may cost at once, in US dollars."
        " Without it, such a lease is not released.",
    ),
]


class LeaseController(Controller):
    path = "/leases"
    tags = ("leases",)

    @post(
        "/",
        operation_id="createLease",
        permission=Permission.LEASES_CREATE,
        scope=ScopeKind.ENVIRONMENT,
        status_code=202,
        responses=made(LeaseView, 202),
    )
    async def create(self, request: ApiRequest, data: JSONBody[LeaseRequest]) -> Response[bytes]:
        """Create a lease. 202: it is admitted, and the price of its first hour is held; a machine follows."""
        world, principal, wanted = request.world, request.principal, _wanted(data)

        async def effect(connection: Connection) -> Made | Refused:
            lease = await leases.create(
                connection,
                world,
                principal.organization_id,
                wanted,
                actor=request.actor,
                reach=request.reach,
            )
            if isinstance(lease, Refused):
                return lease
            return Made(lease_view(lease_overviews.shown_new(lease, world.now())))

        return await idempotency.once(request, effect, status=202, collection="/v1/leases")

    @post(
        "/batch",
        operation_id="createLeaseBatch",
        permission=Permission.LEASES_CREATE,
        scope=ScopeKind.ENVIRONMENT,
        status_code=202,
        responses=made(LeaseBatchView, 202),
    )
    async def create_batch(self, request: ApiRequest, data: JSONBody[LeaseBatchRequest]) -> Response[bytes]:
        """Create several equal leases, all or none. 202: all are admitted; each is then a lease like any other."""
        world, principal, wanted = request.world, request.principal, _wanted(data)

        async def effect(connection: Connection) -> Made | Refused:
            created = await leases.create_batch(
                connection,
                world,
                principal.organization_id,
                wanted,
                data.count,
                actor=request.actor,
                reach=request.reach,
            )
            if isinstance(created, Refused):
                return created
            now = world.now()
            return Made(
                LeaseBatchView(tuple(lease_view(lease_overviews.shown_new(lease, now)) for lease in created))
            )

        return await idempotency.once(request, effect, status=202)

    @get(
        "/",
        operation_id="listLeases",
        permission=Permission.LEASES_READ,
        scope=ScopeKind.LEASE,
        responses=refusable(422),
    )
    async def index(
        self,
        request: ApiRequest,
        *,
        states: States = None,
        project: OfProject = None,
        labels: WithLabels = None,
        waiting: IsWaiting = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> LeasePage:
        """Your leases, newest first."""
        found = await lease_overviews.page(
            request.world,
            request.principal.organization_id,
            before=paging.moment("leases", cursor),
            states=states,
            project=project,
            labels=_labels_of(labels or []),
            waiting=waiting,
            limit=limit + 1,
            reach=request.reach,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        page, following = paging.cut(
            found,
            limit,
            lambda shown: paging.after_moment(
                "leases", shown.overview.lease.created_at, shown.overview.lease.id
            ),
        )
        return LeasePage(tuple(lease_view(shown) for shown in page), following)

    @get(
        "/{lease_id:str}",
        operation_id="getLease",
        permission=Permission.LEASES_READ,
        scope=ScopeKind.LEASE,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest, lease_id: FromPath[str]) -> LeaseView:
        """One lease with its status, machine and proof."""
        shown = await lease_overviews.get(
            request.world, request.principal.organization_id, read_lease_id(lease_id), reach=request.reach
        )
        if isinstance(shown, Refused):
            raise refusal(shown)
        return lease_view(shown)

    @post(
        "/{lease_id:str}/release",
        operation_id="releaseLease",
        permission=Permission.LEASES_RELEASE,
        scope=ScopeKind.LEASE,
        status_code=202,
        responses=made(LeaseView, 202),
    )
    async def release(
        self, request: ApiRequest, lease_id: FromPath[str], accept_fee: AcceptFee = None
    ) -> Response[bytes]:
        """Release a lease. Billing stops now; the machine is terminated after that. Repeating it changes nothing.

        Of a lease that is committed to for a term, the rest of the term is charged at once: `release_fee` of the lease.
        """
        await idempotency.no_body(request)
        accepted = NOTHING if accept_fee is None else parse_usd(accept_fee)
        world, principal, wanted = request.world, request.principal, read_lease_id(lease_id)

        async def effect(connection: Connection) -> Made | Refused:
            released = await leases.release(
                connection,
                world,
                principal.organization_id,
                wanted,
                accept_fee_nano=accepted,
                actor=request.actor,
                reach=request.reach,
            )
            if isinstance(released, Refused):
                return released
            return Made(lease_view(lease_overviews.shown(released, world.now())))

        return await idempotency.once(request, effect, status=202, collection="/v1/leases")

    @post(
        "/{lease_id:str}/reboot",
        operation_id="rebootLease",
        permission=Permission.LEASES_POWER,
        scope=ScopeKind.LEASE,
        status_code=202,
        responses=made(LeaseView, 202),
    )
    async def reboot(self, request: ApiRequest, lease_id: FromPath[str]) -> Response[bytes]:
        """Reboot the machine of a lease. `power` shows when it answers again, or why it does not within ten minutes."""
        return await _power(request, lease_id, PowerAction.REBOOT)

    @post(
        "/{lease_id:str}/stop",
        operation_id="stopLease",
        permission=Permission.LEASES_POWER,
        scope=ScopeKind.LEASE,
        status_code=202,
        responses=made(LeaseView, 202),
    )
    async def stop(self, request: ApiRequest, lease_id: FromPath[str]) -> Response[bytes]:
        """Stop the machine of a lease. It keeps its root disk.

        Once the provider lists it as stopped, it costs `power.price_per_hour_stopped`, until it is listed as running.
        """
        return await _power(request, lease_id, PowerAction.STOP)

    @post(
        "/{lease_id:str}/start",
        operation_id="startLease",
        permission=Permission.LEASES_POWER,
        scope=ScopeKind.LEASE,
        status_code=202,
        responses=made(LeaseView, 202),
    )
    async def start(self, request: ApiRequest, lease_id: FromPath[str]) -> Response[bytes]:
        """Start the stopped machine of a lease. Its address may be another one; its host key is the same."""
        return await _power(request, lease_id, PowerAction.START)

    @patch(
        "/{lease_id:str}",
        operation_id="updateLease",
        permission=Permission.LEASES_UPDATE,
        scope=ScopeKind.LEASE,
        responses=made(LeaseView, 200),
    )
    async def update(
        self, request: ApiRequest, lease_id: FromPath[str], data: JSONBody[LeaseChangeRequest]
    ) -> Response[bytes]:
        """Change when a lease is released by itself or, while it waits for a machine, what it asks for."""
        world, principal, wanted = request.world, request.principal, read_lease_id(lease_id)
        changes = _changes(data)

        async def effect(connection: Connection) -> Made | Refused:
            changed = await lease_changes.change(
                connection,
                world,
                principal.organization_id,
                wanted,
                changes,
                actor=request.actor,
                reach=request.reach,
            )
            if isinstance(changed, Refused):
                return changed
            return Made(lease_view(lease_overviews.shown(changed, world.now())))

        return await idempotency.once(request, effect, status=200)

    @put(
        "/{lease_id:str}/labels",
        operation_id="replaceLeaseLabels",
        permission=Permission.LEASES_LABEL,
        scope=ScopeKind.LEASE,
        responses=refusable(408, 413, 415, 422),
    )
    async def label(
        self, request: ApiRequest, lease_id: FromPath[str], data: JSONBody[LabelsRequest]
    ) -> LeaseView:
        """Replace the labels of a lease, live or ended. Repeating it changes nothing."""
        labelled = await leases.label(
            request.world,
            request.principal.organization_id,
            read_lease_id(lease_id),
            data.labels,
            actor=request.actor,
            reach=request.reach,
        )
        if isinstance(labelled, Refused):
            raise refusal(labelled)
        return lease_view(labelled)

    @get(
        "/{lease_id:str}/journal",
        operation_id="listLeaseJournal",
        permission=Permission.LEASES_READ,
        scope=ScopeKind.LEASE,
        responses=PROBLEMS,
    )
    async def journal(
        self,
        request: ApiRequest,
        lease_id: FromPath[str],
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: LongCursor = None,
    ) -> JournalPage:
        """Everything that happened to the lease, oldest first."""
        found = await lease_overviews.journal_page(
            request.world,
            request.principal.organization_id,
            read_lease_id(lease_id),
            position=paging.position("journal", cursor),
            limit=limit + 1,
            reach=request.reach,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        page, following = paging.cut(found, limit, lambda row: paging.after_position("journal", row[1]))
        return JournalPage(tuple(journal_line(line) for line, _ in page), following)

    @get(
        "/{lease_id:str}/proofs",
        operation_id="listLeaseProofs",
        permission=Permission.PROOFS_READ,
        scope=ScopeKind.LEASE,
        responses=PROBLEMS,
    )
    async def proofs(
        self,
        request: ApiRequest,
        lease_id: FromPath[str],
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> ProofPage:
        """How the GPUs of the lease's machines answered our challenges, newest first."""
        found = await proofs.page(
            request.world,
            request.principal.organization_id,
            read_lease_id(lease_id),
            before=paging.moment("proofs", cursor),
            limit=limit + 1,
            reach=request.reach,
        )
        if isinstance(found, Refused):
            raise refusal(found)
        page, following = paging.cut(found, limit, lambda row: paging.after_moment("proofs", row.at, row.id))
        return ProofPage(tuple(proof_view(row) for row in page), following)

    @get(
        "/{lease_id:str}/explanation",
        operation_id="explainLease",
        permission=Permission.LEASES_READ,
        scope=ScopeKind.LEASE,
        responses=PROBLEMS,
    )
    async def explanation(self, request: ApiRequest, lease_id: FromPath[str]) -> ExplanationView:
        """Why the lease is where it is: admission, placements with every rejected offer, attempts and proofs."""
        principal = request.principal
        found = await lease_overviews.explain(
            request.world, principal.organization_id, read_lease_id(lease_id), reach=request.reach
        )
        if isinstance(found, Refused):
            raise refusal(found)
        return explanation_view(found, request.disclosure)


async def _power(request: ApiRequest, lease_id: str, action: PowerAction) -> Response[bytes]:
    await idempotency.no_body(request)
    world, principal, wanted = request.world, request.principal, read_lease_id(lease_id)

    async def effect(connection: Connection) -> Made | Refused:
        changed = await powers.change(
            connection,
            world,
            principal.organization_id,
            wanted,
            action,
            actor=request.actor,
            reach=request.reach,
        )
        if isinstance(changed, Refused):
            return changed
        return Made(lease_view(lease_overviews.shown(changed, world.now())))

    return await idempotency.once(request, effect, status=202)


def _changes(data: LeaseChangeRequest) -> Changes:
    ceiling = data.price_usd_per_hour_max
    return Changes(
        sku=data.sku,
        regions=data.regions,
        providers=data.providers,
        price_nano_per_hour_max=None if ceiling is None else parse_usd(ceiling),
        network_gbps_min=data.network_gbps_min,
        priority=data.priority,
        wait_timeout_seconds=data.wait_timeout_seconds,
        auto_release=None if data.auto_release is None else _limits(data.auto_release),
    )


def _limits(limits: AutoReleaseRequest) -> AutoRelease:
    spend = None if limits.spend_usd is None else parse_usd(limits.spend_usd)
    return AutoRelease(limits.after_seconds, spend)


def _wanted(data: LeaseRequest) -> WantedLease:
    keys, auto_release = data.ssh_key_ids, data.auto_release or AutoReleaseRequest()
    quote = data.quote_id
    return WantedLease(
        requested_by(data),
        name=data.name,
        project=data.project,
        environment=data.environment,
        network=data.network,
        ssh_key_ids=None if keys is None else [read_id(Prefix.SSH_KEY, key) for key in keys],
        terms=LeaseTerms(
            data.labels, data.wait_timeout_seconds, _limits(auto_release), OnEviction(data.on_eviction)
        ),
        quote_id=None if quote is None else QuoteId(read_id(Prefix.QUOTE, quote)),
    )


def _labels_of(texts: list[str]) -> dict[str, str]:
    """The labels of a filter, each given as `key=value`."""
    wanted: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not (sign and key) or "\0" in text or wanted.setdefault(key, value) != value:
            why = "must be key=value, with each key once: a lease has one value for it"
            raise ApiError("invalid_parameter", f"`label` {why}.", errors=[FieldError("label", why)])
    return wanted
