"""The ingest process: `python -m control_plane.ingest`. It runs until a signal stops it.

Exit codes: 0 stopped, 2 wrong usage, a setting that cannot be used, or a database login with too many rights.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping

from control_plane.db.privileges import LoginRefused
from control_plane.ingest import process
from control_plane.ingest import settings as configuration
from control_plane.ingest.settings import Settings
from control_plane.server_process import Bounds, check_free, serve
from environment.reading import SettingsError, described

HEAD_SECONDS_MAX = 75
"""How long the head of a request may take, with the idle time before it: agents keep their connection for a while."""
HEAD_BYTES_MAX = 65_536
BACKLOG = 4_096
"""Machines whose connection waits to be accepted: after a pause all of them come at once."""
STOP_SECONDS = 15


def main(arguments: list[str], environ: Mapping[str, str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m control_plane.ingest",
        description="Takes samples of machines, and adds them to the database.",
        epilog=f"settings, read from the environment:\n\n{described(Settings)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(arguments)
    try:
        _serve(configuration.read(environ))
    except (SettingsError, LoginRefused) as error:
        print(f"ingest: {error}", file=sys.stderr)
        return 2
    return 0


def _serve(settings: Settings) -> None:
    asyncio.run(process.check_login(settings.database_url))
    check_free("SPLITPLANE_INGEST_LISTEN", settings.listen)
    check_free("SPLITPLANE_INGEST_METRICS_LISTEN", settings.metrics_listen)
    bounds = Bounds(
        head_seconds=HEAD_SECONDS_MAX,
        head_bytes=HEAD_BYTES_MAX,
        backlog=BACKLOG,
        connections=settings.connections_max,
        stop_seconds=STOP_SECONDS,
    )
    serve("control_plane.ingest.process:application", settings.listen, bounds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
