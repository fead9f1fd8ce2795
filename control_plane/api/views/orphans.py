"""Orphans on the wire."""

from control_plane.services.orphans import ListedOrphan
from control_plane.wire.orphans import OrphanView


def orphan_view(orphan: ListedOrphan) -> OrphanView:
    return OrphanView(
        account=orphan.account,
        provider_ref=orphan.provider_ref,
        launch_key=orphan.launch_key,
        native_status=orphan.native_status,
        first_seen_at=orphan.first_seen_at,
        last_seen_at=orphan.last_seen_at,
        lists_seen=orphan.lists_seen,
        terminate_asked_at=orphan.terminate_asked_at,
        note=orphan.note,
    )
