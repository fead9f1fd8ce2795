"""Read what the machine of a lease measured, and how it is."""

from argparse import ArgumentTypeError, Namespace

from rich.live import Live

from control_plane.cli.client import Client
from control_plane.cli.commands.lookup import LEASE_HELP, find
from control_plane.cli.errors import CliError
from control_plane.cli.parsing import Commands, command
from control_plane.cli.progress import is_passing
from control_plane.cli.render.telemetry import groups_page, health_page, metrics_page
from control_plane.cli.terminal import Terminal
from control_plane.wire.telemetry import HealthGroups, LeaseHealth, LeaseMetrics

WATCH_SECONDS = 5.0
"""How often --watch reads again. Machines send every 15 s."""
GROUPS = ("project", "sku", "region")


def add(leases: Commands) -> None:
    parser = command(
        leases,
        "metrics",
        metrics,
        "Show what the machine of a lease measured: GPUs, host, inference servers.",
        more=(
            "Machines measure every 15 s. It is what the machine says about itself, and its\n"
            "age is shown. `lease health` says what we make of it."
        ),
        examples="""
        splitplane lease metrics train-1
        splitplane lease metrics train-1 --last 120
        splitplane lease metrics train-1 --watch
        """,
    )
    parser.add_argument("lease", metavar="LEASE", help=LEASE_HELP)
    parser.add_argument(
        "--last", metavar="MINUTES", type=_minutes, default=15, help="how far back, 1 to 120 (default: 15)"
    )
    parser.add_argument("--watch", action="store_true", help="read again every 5 s, until Ctrl-C")
    parser = command(
        leases,
        "health",
        health,
        "Show how the machine of a lease is: faults, alerts, and the evidence.",
        more=(
            "Without LEASE: how many machines of all your leases are healthy, in groups.\n"
            "Losing contact is no fault: what is overdue is shown, and changes no verdict."
        ),
        examples="""
        splitplane lease health train-1
        splitplane lease health --by sku
        """,
    )
    parser.add_argument("lease", metavar="LEASE", nargs="?", help=LEASE_HELP)
    parser.add_argument(
        "--by", choices=GROUPS, default="project", metavar="GROUP", help="project, sku or region"
    )


def _minutes(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 120:
        raise ArgumentTypeError("a whole number of minutes from 1 to 120 is needed")
    return int(text)


def metrics(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    lease = find(client, [args.lease])[0]
    name = lease.cleaned().name
    path, query = f"/v1/leases/{lease.value.id}/metrics", {"last": str(60 * args.last)}
    answer = client.get(path, LeaseMetrics, query)
    if args.watch and terminal.out.is_terminal and not args.json and not terminal.quiet:
        _watch(terminal, client, path, query, name)
    else:
        terminal.present(args.json, answer, lambda found: metrics_page(found, name, terminal.now()))


def _watch(terminal: Terminal, client: Client, path: str, query: dict[str, str], name: str) -> None:
    """Draw it anew every few seconds. While the API does not answer, the last answer stays, with its age."""
    answer = client.get(path, LeaseMetrics, query)
    with Live(console=terminal.out, auto_refresh=False) as live:
        while True:
            live.update(metrics_page(answer.cleaned(), name, terminal.now()), refresh=True)
            client.clock.sleep(WATCH_SECONDS)
            try:
                answer = client.get(path, LeaseMetrics, query)
            except CliError as error:
                if not is_passing(error):
                    raise


def health(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    if args.lease is None:
        counted = client.get("/v1/machine-health", HealthGroups, {"by": args.by})
        terminal.present(args.json, counted, groups_page)
        return
    lease = find(client, [args.lease])[0]
    found = client.get(f"/v1/leases/{lease.value.id}/health", LeaseHealth)
    name = lease.cleaned().name
    terminal.present(args.json, found, lambda health: health_page(health, name, terminal.now()))
