"""Exports on the wire."""

from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.period import month_text
from control_plane.services.exports import DeliveredFile, Exported
from control_plane.wire.exports import ExportFileView, ExportView


def export_view(exported: Exported) -> ExportView:
    run = exported.run
    return ExportView(
        id=on_wire(Prefix.EXPORT_RUN, run.id),
        period=month_text(run.period_start),
        coverage="all" if run.covers_all else "organization",
        status="final" if run.final else "provisional",
        cut_at=run.cut_at,
        created_at=run.created_at,
        created_by=run.created_by,
        previous_id=None if run.previous_id is None else on_wire(Prefix.EXPORT_RUN, run.previous_id),
        files=tuple(map(_file_view, exported.files)),
    )


def _file_view(file: DeliveredFile) -> ExportFileView:
    return ExportFileView(
        name=file.name.value,
        size=file.size,
        sha256=file.sha256.hex(),
        rows=file.rows,
        sums=dict(file.sums),
        delivered_at=file.delivered_at,
    )
