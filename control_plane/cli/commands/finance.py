"""What finance of the installation does: exports of the charges of all organizations."""

from argparse import Namespace

from control_plane.cli.commands import exports
from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.terminal import Terminal


def add(to: Commands) -> None:
    finance = noun(to, "finance", "Export the charges of all organizations (finance of the installation).")
    parser = command(
        finance,
        "export",
        export,
        "Write the charges of all organizations as CSV and Parquet, with a manifest.",
        more=(
            "As splitplane export create, which has the charges of one organization.\n"
            "splitplane export verify and diff check and compare the files."
        ),
        examples="""
        splitplane finance export 2026-10 --to exports
        splitplane finance export 2026-10 --to s3://finance/splitplane --final
        """,
    )
    exports.add_arguments(parser)


def export(terminal: Terminal, args: Namespace) -> None:
    exports.export(terminal, args, exports.PATH_OF_ALL)
