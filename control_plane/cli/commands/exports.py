"""Exports of a month of charges in FOCUS: making one, and checking and comparing those that one has."""

import re
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from control_plane.cli import export_files
from control_plane.cli.destinations import destination
from control_plane.cli.errors import CliError, usage
from control_plane.cli.export_files import CSV, MANIFEST, PARQUET, Change, Changes
from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.exports import SHOWN_MAX, checked_lines, difference_lines, export_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.exports import PERIOD_PATTERN, ExportPage, ExportRequest, ExportView

PATH = "/v1/exports"
PATH_OF_ALL = "/v1/finance/exports"
_MEGABYTE = 1_000_000


def add(to: Commands) -> None:
    """The exports of one's own organization."""
    _add(
        noun(to, "export", "Export a month of charges in FOCUS, and check and compare exports."),
        called="splitplane export",
        path=PATH,
        summary="Write the charges of a month as CSV and Parquet, with a manifest.",
        bucket="acme-billing/gpus",
    )


def add_of_all(to: Commands) -> None:
    """The exports of all organizations, for finance."""
    _add(
        noun(to, "export", "Export a month of all organizations' charges, and check and compare exports."),
        called="splitplane finance export",
        path=PATH_OF_ALL,
        summary="Write the charges of all organizations as CSV and Parquet, with a manifest.",
        bucket="finance/splitplane",
    )


def _add(exports: Commands, *, called: str, path: str, summary: str, bucket: str) -> None:
    parser = command(
        exports,
        "create",
        create,
        summary,
        more=(
            "The files are written to PERIOD/EXPORT below --to, the manifest last. Without\n"
            "--final, the export of a month whose books are open is provisional."
        ),
        examples=f"""
        {called} create 2026-10 --to exports
        {called} create 2026-10 --to s3://{bucket} --final
        """,
    )
    parser.add_argument("period", metavar="PERIOD", help="a month such as 2026-10")
    parser.add_argument("--to", required=True, metavar="DIR", help="a folder, or s3://BUCKET/PREFIX")
    parser.add_argument("--final", action="store_true", help="refuse a month whose books are open")
    parser.set_defaults(path=path)
    parser = command(exports, "list", list_exports, "List exports, newest first.", examples=f"{called} list")
    parser.set_defaults(path=path)
    parser = command(
        exports,
        "verify",
        verify,
        "Check that the files of an export are what its manifest says.",
        more="It works without the API, and exits with 1 when they are not.",
        examples=f"{called} verify exports/2026-10/exp_0190...",
    )
    parser.add_argument("folder", metavar="DIR", help="the folder of an export")
    parser = command(
        exports,
        "diff",
        diff,
        "Show the rows in which two exports differ.",
        more="It works without the API, and exits with 1 when they differ.",
        examples=f"{called} diff 2026-10/exp_0190... 2026-10/exp_0191...",
    )
    parser.add_argument("before", metavar="DIR", help="the folder of an export")
    parser.add_argument("after", metavar="DIR", help="the folder of another one")


def create(terminal: Terminal, args: Namespace) -> None:
    """Begin an export, fetch its files, check them, and put them where they belong."""
    if not re.match(PERIOD_PATTERN, args.period):
        raise usage(f"{args.period!r} is not a month such as 2026-10.")
    target = destination(args.to)
    request = ExportRequest(period=args.period, final=args.final)
    made = terminal.client().post(args.path, ExportView, request)
    with TemporaryDirectory(prefix="splitplane-export-") as work:
        files = [Path(work) / name for name in (CSV, PARQUET, MANIFEST)]
        for file in files:
            _fetch(terminal, f"{args.path}/{made.value.id}/files/{file.name}", file)
        with terminal.moving() as tell:
            checked = export_files.check(Path(work), tell)
        where = target.put(f"{made.value.period}/{made.value.id}", files)
    if args.json:
        terminal.json({"id": made.value.id, "to": where, "manifest": dict(checked.manifest)})
        return
    terminal.show(checked_lines(checked))
    terminal.note(f"Wrote {where}.")


def _fetch(terminal: Terminal, path: str, file: Path) -> None:
    size = 0
    with terminal.moving() as tell, file.open("wb") as target:
        for part in terminal.client().chunks(path):
            target.write(part)
            size += len(part)
            tell(f"{file.name}: {size / _MEGABYTE:,.1f} MB")


def list_exports(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().every(args.path, ExportPage)
    terminal.present(args.json, answer, lambda page: export_table(page.items))


def verify(terminal: Terminal, args: Namespace) -> None:
    with terminal.moving() as tell:
        checked = export_files.check(Path(args.folder), tell)
    if args.json:
        terminal.json(dict(checked.manifest))
        return
    terminal.show(checked_lines(checked))


def diff(terminal: Terminal, args: Namespace) -> None:
    """Compare both files side by side. Rows that differ are counted, shown or written as they come, and not kept."""
    found = Changes(kept=SHOWN_MAX)
    before, after = Path(args.before), Path(args.after)
    if args.json:
        with terminal.moving(beside_output=True) as tell:
            terminal.json_list(_counted(export_files.changes(before, after, tell), found))
    else:
        with terminal.moving() as tell:
            for change in export_files.changes(before, after, tell):
                found.add(change)
        terminal.show(difference_lines(found))
    if found.count:
        raise CliError(f"{found.count:,} rows differ.", code="exports_differ")


def _counted(changes: Iterable[Change], found: Changes) -> Iterator[Mapping[str, Any]]:
    """Each change for machines, once it is counted."""
    for change in changes:
        found.add(change)
        yield {"charge": change.charge, "before": change.before, "after": change.after}
