"""What operators see and do: loops, orphans, provider accounts, new organizations, credits."""

from typing import Annotated

from litestar import Controller, Response, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from control_plane.api import idempotency, paging, views
from control_plane.api.documents import OPERATOR_PROBLEMS, made
from control_plane.api.idempotency import Made
from control_plane.api.identifiers import read_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.schemas import (
    AccountList,
    CreatedOrganization,
    CreditRequest,
    CreditView,
    LoopList,
    OrganizationRequest,
    OrphanList,
    OrphanView,
    PermitRequest,
    PermitView,
    ProofRecordPage,
)
from control_plane.domain.ids import AccountName, OrganizationId, Prefix
from control_plane.domain.money import parse_usd
from control_plane.domain.proof import ProofOutcome
from control_plane.domain.refusal import Refused
from control_plane.services import operators, organizations, proofs
from control_plane.services.idempotency import Connection


class OperatorController(Controller):
    path = "/"
    tags = ["operator"]  # noqa: RUF012 - the framework's way

    @get("/loops", responses=OPERATOR_PROBLEMS)
    async def loops(self, request: ApiRequest) -> LoopList:
        """The last report of every loop."""
        now = request.world.now()
        return LoopList(tuple(views.loop(row, now) for row in await operators.loop_reports(request.world)))

    @get("/orphans", responses=OPERATOR_PROBLEMS)
    async def orphans(self, request: ApiRequest) -> OrphanList:
        """Machines that no open record claims, as the last lists showed them."""
        return OrphanList(tuple(OrphanView(**row) for row in await operators.orphans(request.world)))

    @get("/accounts", responses=OPERATOR_PROBLEMS)
    async def accounts(self, request: ApiRequest) -> AccountList:
        """Provider accounts: their last list, whether they are frozen or failing, and why."""
        found = await operators.provider_accounts(request.world)
        return AccountList(tuple(views.account(one, permit) for one, permit in found))

    @get("/proofs", responses=OPERATOR_PROBLEMS)
    async def proofs(
        self,
        request: ApiRequest,
        account: Annotated[
            str | None,
            QueryParameter(
                pattern=r"^[a-z][a-z0-9_]*(/[a-z][a-z0-9-]*)?$(?!\n)",
                max_length=100,
                description="Only of this provider account, such as `lambda_cloud/research`.",
            ),
        ] = None,
        outcome: Annotated[
            ProofOutcome | None, QueryParameter(description="Only those that came to this.")
        ] = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> ProofRecordPage:
        """How the GPUs of our providers' machines answered, over all customers and naming none. Newest first."""
        found = await proofs.records(
            request.world,
            account=account,
            outcome=outcome,
            before=paging.moment("records", cursor),
            limit=limit + 1,
        )
        page, following = paging.cut(
            found, limit, lambda row: paging.after_moment("records", row.at, row.proof_id)
        )
        return ProofRecordPage(tuple(views.proof_record(row) for row in page), following)

    @post("/ending-permits", responses=made(PermitView, 201))
    async def permit_endings(self, request: ApiRequest, data: JSONBody[PermitRequest]) -> Response[bytes]:
        """Let machines of an account that fail their GPU proof be ended for a while, however many fail."""

        async def effect(connection: Connection) -> Made | Refused:
            permitted = await operators.permit_endings(
                connection,
                request.world,
                AccountName(data.account),
                minutes=data.minutes,
                why=data.why,
                actor=request.principal.actor,
            )
            return permitted if isinstance(permitted, Refused) else Made(views.permit(permitted))

        return await idempotency.once(request, effect, status=201)

    @post("/organizations", responses=made(CreatedOrganization, 201))
    async def create_organization(
        self, request: ApiRequest, data: JSONBody[OrganizationRequest]
    ) -> Response[bytes]:
        """Make an organization and its first key."""

        async def effect(connection: Connection) -> Made | Refused:
            created = await organizations.create_with_key(
                connection,
                request.world,
                by=request.principal.organization_id,
                name=data.name,
                gpu_quota=data.gpu_quota,
                key_name=data.key_name,
            )
            if isinstance(created, Refused):
                return created
            organization, key = views.organization(created.organization), views.api_key(created.issued.key)
            return Made(
                CreatedOrganization(organization, key, created.issued.secret),
                stored=CreatedOrganization(organization, key, None),
            )

        return await idempotency.once(request, effect, status=201)

    @post("/organizations/{organization_id:str}/credits", responses=made(CreditView, 201))
    async def credit(
        self, request: ApiRequest, organization_id: FromPath[str], data: JSONBody[CreditRequest]
    ) -> Response[bytes]:
        """Post a top-up. Without an Idempotency-Key every request is another one."""
        world, amount = request.world, parse_usd(data.amount_usd)
        target = OrganizationId(read_id(Prefix.ORGANIZATION, organization_id))
        posting = world.new_id().hex

        async def effect(connection: Connection) -> Made | Refused:
            credited = await operators.credit_organization(
                connection,
                world,
                request.principal.organization_id,
                target,
                amount,
                key=f"{request.principal.actor}:{posting}",
            )
            if isinstance(credited, Refused):
                return credited
            return Made(CreditView(organization_id, views.money(amount), views.money(credited.posted_nano)))

        return await idempotency.once(request, effect, status=201)
