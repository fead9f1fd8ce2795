"""One GPU proof, with all that is needed to check it again."""

from litestar import Controller, get
from litestar.params import FromPath

from control_plane.api.documents import PROBLEMS
from control_plane.api.errors import refusal
from control_plane.api.identifiers import read_id
from control_plane.api.requests import ApiRequest
from control_plane.api.views.proofs import proof_detail
from control_plane.domain.ids import Prefix
from control_plane.domain.refusal import Refused
from control_plane.services import proofs
from control_plane.wire.proofs import ProofDetail


class ProofController(Controller):
    path = "/proofs"
    tags = ["proofs"]  # noqa: RUF012 - the framework's way

    @get("/{proof_id:str}", responses=PROBLEMS)
    async def show(self, request: ApiRequest, proof_id: FromPath[str]) -> ProofDetail:
        """What one challenge of a machine's GPUs came to, with its evidence."""
        wanted = read_id(Prefix.PROOF, proof_id)
        found = await proofs.get(request.world, request.principal.organization_id, wanted)
        if isinstance(found, Refused):
            raise refusal(found)
        return proof_detail(found)
