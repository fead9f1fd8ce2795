"""GPU proofs: one of the caller's own with its evidence, and the record of every provider."""

from typing import Annotated

from litestar import Controller, get
from litestar.params import FromPath, QueryParameter

from control_plane.api import paging
from control_plane.api.accounts import OfAccount
from control_plane.api.documents import PROBLEMS
from control_plane.api.errors import refusal
from control_plane.api.identifiers import read_id
from control_plane.api.paging import Cursor, Limit
from control_plane.api.requests import ApiRequest
from control_plane.api.views.proofs import proof_detail, proof_record_view
from control_plane.domain.ids import Prefix
from control_plane.domain.permission import Permission
from control_plane.domain.proof import ProofOutcome
from control_plane.domain.refusal import Refused
from control_plane.domain.scope import ScopeKind
from control_plane.services import proofs
from control_plane.wire.proofs import ProofDetail, ProofRecordPage

Outcome = Annotated[ProofOutcome | None, QueryParameter(description="Only proofs with this outcome.")]


class ProofController(Controller):
    path = "/"
    tags = ("proofs",)

    @get(
        "/proofs/{proof_id:str}",
        operation_id="getProof",
        permission=Permission.PROOFS_READ,
        scope=ScopeKind.LEASE,
        responses=PROBLEMS,
    )
    async def show(self, request: ApiRequest, proof_id: FromPath[str]) -> ProofDetail:
        """What one challenge of a machine's GPUs came to, with its evidence."""
        wanted = read_id(Prefix.PROOF, proof_id)
        found = await proofs.get(
            request.world, request.principal.organization_id, wanted, reach=request.reach
        )
        if isinstance(found, Refused):
            raise refusal(found)
        return proof_detail(found)

    @get(
        "/operator/proofs",
        operation_id="listProofRecords",
        permission=Permission.PROOF_RECORDS_READ,
        scope=ScopeKind.PLATFORM,
        responses=PROBLEMS,
    )
    async def records(
        self,
        request: ApiRequest,
        account: OfAccount = None,
        outcome: Outcome = None,
        limit: Limit = paging.LIMIT_DEFAULT,
        cursor: Cursor = None,
    ) -> ProofRecordPage:
        """How the machines of our providers answered, for all customers and without their names. Newest first."""
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
        return ProofRecordPage(tuple(proof_record_view(row) for row in page), following)
