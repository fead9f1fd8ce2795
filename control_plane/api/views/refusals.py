"""All refusals of a decision on the wire."""

from control_plane.domain.decision import NotAdmitted
from control_plane.domain.refusal import Refused
from control_plane.wire.problems import RefusalView


def refusals_of(refused: Refused | None) -> tuple[RefusalView, ...]:
    if not isinstance(refused, NotAdmitted):
        return ()
    return tuple(
        RefusalView(spoken.stage.value, spoken.code, spoken.why, spoken.level.value if spoken.level else None)
        for spoken in refused.decision.refusals
        if spoken.code is not None and spoken.why is not None
    )
