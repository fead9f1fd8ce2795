"""The audit log as clients read it."""

from control_plane.domain.audit_chain import EMPTY, Head, SealedLine, chain_name
from control_plane.domain.ids import OrganizationId, Prefix, on_wire
from control_plane.wire.audit import AuditChainView, AuditEventView


def audit_event_view(sealed: SealedLine) -> AuditEventView:
    line = sealed.line
    return AuditEventView(
        id=on_wire(Prefix.AUDIT_EVENT, line.id),
        chain=chain_name(line.organization_id),
        sequence=sealed.sequence,
        at=line.at,
        event=line.event,
        outcome=line.outcome.value,
        code=line.code,
        subject=line.subject,
        subject_kind=line.subject_kind.value,
        credential=line.credential,
        subject_organization=line.subject_organization,
        project=line.project,
        targets=tuple(line.targets),
        address=line.address,
        client=line.client,
        region=line.region,
        rule=line.rule,
        request_id=line.request_id,
        links=dict(line.links),
        details=dict(line.details),
        previous=sealed.previous,
        hash=sealed.hash,
    )


def audit_chain_view(organization_id: OrganizationId | None, head: Head | None) -> AuditChainView:
    head = head or EMPTY
    return AuditChainView(chain_name(organization_id), head.sequence, head.hash)
