"""Orphans on the wire."""

from typing import Any

from control_plane.wire.orphans import OrphanView


def orphan_view(row: dict[str, Any]) -> OrphanView:
    return OrphanView(**row)
