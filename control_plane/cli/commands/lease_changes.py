"""Change a lease: what it asks for while it waits for a machine, and when it is released by itself."""

from argparse import Namespace
from decimal import Decimal

from control_plane.cli.client import Client
from control_plane.cli.commands.amounts import amount
from control_plane.cli.commands.lookup import LEASE_HELP, Found, find
from control_plane.cli.errors import CliError, usage
from control_plane.cli.parsing import Commands, Parser, command, seconds
from control_plane.cli.render.leases import lease_page
from control_plane.cli.terminal import Terminal
from control_plane.wire.leases import AutoReleaseRequest, AutoReleaseView, LeaseChangeRequest, LeaseView


def add(leases: Commands) -> None:
    _add_update(leases)
    parser = command(
        leases,
        "extend",
        extend,
        "Have a lease released later than it was to be.",
        more=(
            "Adds to the time after which it is released by itself, or to what it may cost.\n"
            "A lease without such a limit runs until you release it."
        ),
        examples="""
        splitplane lease extend train-1 --time 2h
        splitplane lease extend train-1 --spend 50
        """,
    )
    parser.add_argument("lease", metavar="LEASE", help=LEASE_HELP)
    parser.add_argument("--time", metavar="TIME", help="this much later: 90s, 30m, 12h or 7d")
    parser.add_argument("--spend", metavar="USD", help="it may cost this much more")


def _add_update(leases: Commands) -> None:
    parser = command(
        leases,
        "update",
        update,
        "Change what a lease asks for, or when it is released by itself.",
        more=(
            "What is left out stays as it is. A running machine cannot be resized or moved:\n"
            "once a lease has one, only the --auto-release options can change. To change the\n"
            "rest, create another lease and release this one."
        ),
        examples="""
        splitplane lease update train-1 --region us --any-provider
        splitplane lease update train-1 --sku h100-sxm.8x --max-price 30 --priority 80
        splitplane lease update train-1 --auto-release-after 24h
        splitplane lease update train-1 --no-auto-release
        """,
    )
    parser.add_argument("lease", metavar="LEASE", help=LEASE_HELP)
    _add_request(parser)
    parser.add_argument(
        "--auto-release-after",
        metavar="TIME",
        help="release it this long after it is ready: 90s, 30m, 12h or 7d",
    )
    parser.add_argument(
        "--auto-release-spend", metavar="USD", help="release it before it costs more than this"
    )
    parser.add_argument("--no-auto-release", action="store_true", help="release it only when you do")


def _add_request(parser: Parser) -> None:
    parser.add_argument("--sku", metavar="SKU", help="another SKU, at its price of today")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--region", metavar="REGION", action="append", help="eu, us-east-1, ...; may be repeated"
    )
    where.add_argument("--any-region", action="store_true", help="anywhere")
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument("--provider", metavar="NAME", action="append", help="may be repeated")
    whose.add_argument("--any-provider", action="store_true", help="any provider")
    parser.add_argument("--max-price", metavar="USD", help="highest price per hour for the whole machine")
    network = parser.add_mutually_exclusive_group()
    network.add_argument(
        "--min-network", type=int, metavar="GBPS", help="at least so many Gbit/s between machines"
    )
    network.add_argument("--any-network", action="store_true", help="any network")
    parser.add_argument(
        "--priority", type=int, metavar="N", help="0 to 100; of your leases, the highest is placed first"
    )
    parser.add_argument(
        "--wait-timeout", metavar="TIME", help="how long to wait for stock, from its creation"
    )


def update(terminal: Terminal, args: Namespace) -> None:
    changes = LeaseChangeRequest(
        sku=args.sku,
        regions=_words(args.region, anything=args.any_region),
        providers=_words(args.provider, anything=args.any_provider),
        price_usd_per_hour_max=None if args.max_price is None else amount(args.max_price, "--max-price"),
        network_gbps_min=0 if args.any_network else args.min_network,
        priority=args.priority,
        wait_timeout_seconds=None
        if args.wait_timeout is None
        else seconds(args.wait_timeout, "--wait-timeout"),
    )
    limits = args.auto_release_after, args.auto_release_spend
    if changes == LeaseChangeRequest() and limits == (None, None) and not args.no_auto_release:
        raise usage("nothing to change was named. See: splitplane lease update --help")
    if args.no_auto_release and limits != (None, None):
        raise usage("--no-auto-release cannot be combined with the other --auto-release options.")
    client = terminal.client()
    lease = find(client, [args.lease])[0]
    changes.auto_release = _auto_release(args, lease.value.auto_release)
    _change(terminal, args, client, lease, changes)


def _words(given: list[str] | None, *, anything: bool) -> tuple[str, ...] | None:
    if anything:
        return ()
    return None if given is None else tuple(given)


def _auto_release(args: Namespace, before: AutoReleaseView | None) -> AutoReleaseRequest | None:
    """The limits as they shall be, which replace those before: one that is not named stays."""
    if args.no_auto_release:
        return AutoReleaseRequest()
    if args.auto_release_after is None and args.auto_release_spend is None:
        return None
    limits = _as_request(before)
    if args.auto_release_after is not None:
        limits.after_seconds = seconds(args.auto_release_after, "--auto-release-after")
    if args.auto_release_spend is not None:
        limits.spend_usd = amount(args.auto_release_spend, "--auto-release-spend")
    return limits


def _as_request(limits: AutoReleaseView | None) -> AutoReleaseRequest:
    if limits is None:
        return AutoReleaseRequest()
    return AutoReleaseRequest(limits.after_seconds, None if limits.spend is None else limits.spend.usd)


def extend(terminal: Terminal, args: Namespace) -> None:
    if args.time is None and args.spend is None:
        raise usage("--time or --spend is needed. See: splitplane lease extend --help")
    client = terminal.client()
    lease = find(client, [args.lease])[0]
    limits = _as_request(lease.value.auto_release)
    if args.time is not None:
        if limits.after_seconds is None:
            raise _unlimited(lease.value, "time", "--auto-release-after")
        limits.after_seconds += seconds(args.time, "--time")
    if args.spend is not None:
        if limits.spend_usd is None:
            raise _unlimited(lease.value, "spend", "--auto-release-spend")
        limits.spend_usd = str(Decimal(limits.spend_usd) + Decimal(amount(args.spend, "--spend")))
    _change(terminal, args, client, lease, LeaseChangeRequest(auto_release=limits))


def _unlimited(lease: LeaseView, what: str, option: str) -> CliError:
    return CliError(
        f"{lease.name} has no limit of {what}, so there is nothing to extend."
        f" To set one, run: splitplane lease update {lease.name} {option} ...",
        code="no_limit",
    )


def _change(
    terminal: Terminal, args: Namespace, client: Client, lease: Found, changes: LeaseChangeRequest
) -> None:
    answer = client.patch(f"/v1/leases/{lease.value.id}", LeaseView, changes)
    terminal.present(args.json, answer, lambda changed: lease_page(changed, terminal.now()))
