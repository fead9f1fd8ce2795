"""Leases: create, watch, list, show, ssh, and release."""

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from control_plane.cli import progress
from control_plane.cli.answers import page_of
from control_plane.cli.client import Client
from control_plane.cli.commands import (
    enforcement,
    explanations,
    lease_changes,
    lease_console,
    lease_power,
    lease_repairs,
    lease_ssh,
    lease_telemetry,
    ssh_keys,
)
from control_plane.cli.commands.amounts import amount
from control_plane.cli.commands.catalogue import (
    add_constraints,
    add_purchase,
    add_sku,
    constraints,
    naming_the_nearest,
    purchase,
)
from control_plane.cli.commands.labels import labels
from control_plane.cli.commands.lookup import LEASE_HELP, LIVE_STATES, Found, each_of, find
from control_plane.cli.confirming import add_yes, confirm
from control_plane.cli.errors import CliError, usage
from control_plane.cli.parsing import Commands, command, noun, seconds
from control_plane.cli.progress import End
from control_plane.cli.render.leases import lease_page, lease_table
from control_plane.cli.terminal import Terminal
from control_plane.cli.words import absolute, exact_usd, plural, price, sentence
from control_plane.wire.common import Money
from control_plane.wire.leases import (
    WAIT_SECONDS_DEFAULT,
    AutoReleaseRequest,
    LeaseBatchRequest,
    LeaseBatchView,
    LeasePage,
    LeaseRequest,
    LeaseView,
)

STATES = (*LIVE_STATES, "ended")


def add(to: Commands) -> None:
    leases = noun(to, "lease", "Create, watch, use and release leases of machines.")
    _add_create(leases)
    _add_watch(leases)
    _add_list(leases)
    parser = command(leases, "show", show, "Show one lease.", examples="splitplane lease show train-1")
    parser.add_argument("lease", metavar="LEASE", help=LEASE_HELP)
    lease_ssh.add(leases)
    lease_console.add(leases)
    lease_power.add(leases)
    lease_telemetry.add(leases)
    lease_repairs.add(leases)
    enforcement.add_to_leases(leases)
    lease_changes.add(leases)
    _add_release(leases)
    explanations.add(to)


def _add_watch(leases: Commands) -> None:
    parser = command(
        leases,
        "watch",
        watch,
        "Watch leases until each is ready or has failed.",
        examples="""
        splitplane lease watch train-1
        splitplane lease watch train-1 train-2 le_0190c2a1b2c3
        splitplane lease watch train-1 --until ended
        """,
    )
    parser.add_argument("leases", metavar="LEASE", nargs="+", help=LEASE_HELP)
    parser.add_argument(
        "--until", choices=("ready", "ended"), help="default: ready, or ended if it is ending already"
    )


def _add_list(leases: Commands) -> None:
    parser = command(
        leases,
        "list",
        list_leases,
        "List your leases, newest first.",
        examples="""
        splitplane lease list
        splitplane lease list --all
        splitplane lease list --project research --label team=vision
        splitplane lease list --waiting
        splitplane lease list --state ready --json
        """,
    )
    parser.add_argument("--all", action="store_true", help="include leases that have ended")
    parser.add_argument(
        "--state", action="append", choices=STATES, help="only leases in this state; may be repeated"
    )
    parser.add_argument(
        "--project", metavar="PROJECT", help="only leases of this project: its name or its id"
    )
    parser.add_argument(
        "--label", metavar="KEY=VALUE", action="append", help="only leases with this label; may be repeated"
    )
    parser.add_argument("--waiting", action="store_true", help="only leases that wait for stock")


def _add_release(leases: Commands) -> None:
    parser = command(
        leases,
        "release",
        release,
        "Release leases. Billing stops at once, and the data on the machines is lost.",
        more=(
            "A lease that is committed to is paid for its whole term: its release charges the\n"
            "rest at once. It is shown before you are asked; with --yes, you accept it with\n"
            "--accept-fee, or the lease is not released."
        ),
        examples="""
        splitplane lease release train-1
        splitplane lease release train-1 train-2 --yes --wait
        splitplane lease release train-1 --yes --accept-fee 1200
        """,
    )
    parser.add_argument("leases", metavar="LEASE", nargs="+", help=LEASE_HELP)
    add_yes(parser)
    parser.add_argument(
        "--accept-fee",
        metavar="USD",
        help="the most that the rest of the term of a committed lease may cost, of each",
    )
    parser.add_argument("--wait", action="store_true", help="wait until the provider confirms the end")


def _add_create(leases: Commands) -> None:
    parser = command(
        leases,
        "create",
        create,
        "Lease a machine and wait until it is ready.",
        more=(
            "Billing starts when the machine is verified. Leaving early (Ctrl-C, --no-wait)\n"
            "does not end the lease. Whoever may log in to it can use any SSH key, unless you\n"
            "limit the lease to some with --ssh-key."
        ),
        examples="""
        splitplane lease create h100-sxm.1x
        splitplane lease create h100-sxm.8x --name train-1 --region eu --max-price 25
        splitplane lease create h100-sxm.1x --ssh-key laptop --ssh-key ci --no-wait
        splitplane lease create h100-sxm.1x --project research --label team=vision
        splitplane lease create h100-sxm.8x --wait-timeout 2d --auto-release-after 12h
        splitplane lease create h100-sxm.1x --count 4 --name worker --priority 80
        splitplane lease create h100-sxm.1x --spot --max-price 3 --on-eviction replace
        splitplane lease create h100-sxm.1x --interruptible --on-eviction replace
        splitplane lease create h100-sxm.8x --committed --term 365 --sla gold
        splitplane lease create h100-sxm.8x --quote qt_0190...
        """,
    )
    add_sku(parser)
    add_constraints(parser)
    add_purchase(parser)
    parser.add_argument(
        "--on-eviction",
        choices=("end", "replace"),
        default="end",
        help="when a spot or interruptible machine is taken back: end the lease (default), or wait for another",
    )
    parser.add_argument(
        "--quote", metavar="QUOTE", help='at the price of this quote, from "splitplane quote --keep"'
    )
    parser.add_argument("--name", help="name of the lease (default: a generated one)")
    parser.add_argument(
        "--count", type=int, metavar="N", help="create this many, all or none; --name gets -1, -2, ..."
    )
    parser.add_argument(
        "--network",
        metavar="NETWORK",
        help="the project's network it joins, by name or id (default: the one called default)",
    )
    parser.add_argument(
        "--ssh-key",
        metavar="KEY",
        action="append",
        help="only this stored key may log in: name or id; may be repeated",
    )
    parser.add_argument("--no-ssh-key", action="store_true", help="nobody may log in to the machine")
    parser.add_argument(
        "--label", metavar="KEY=VALUE", action="append", default=[], help="a label; may be repeated"
    )
    parser.add_argument(
        "--wait-timeout",
        metavar="TIME",
        help="how long to wait for stock: 90s, 30m, 12h, 7d, or 0 (default: 30m)",
    )
    parser.add_argument(
        "--auto-release-after",
        metavar="TIME",
        help="release it this long after it is ready: 90s, 30m, 12h or 7d",
    )
    parser.add_argument(
        "--auto-release-spend", metavar="USD", help="release it before it costs more than this"
    )
    parser.add_argument(
        "--no-wait",
        "--detach",
        dest="no_wait",
        action="store_true",
        help="return as soon as the lease is admitted",
    )


# create and watch


def create(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    values = {
        **constraints(args),
        "purchase": purchase(args),
        "committed_days": args.term,
        "on_eviction": args.on_eviction,
        "quote_id": args.quote,
        "name": args.name,
        "network": args.network,
        "ssh_key_ids": _key_ids(client, args),
        "wait_timeout_seconds": _wait_timeout(args),
        "labels": labels(args.label),
        "auto_release": _auto_release(args),
    }
    if args.count is not None:
        _create_batch(terminal, client, args, LeaseBatchRequest(count=args.count, **values))
        return
    with naming_the_nearest(client, args.sku):
        answer = client.post("/v1/leases", LeaseView, LeaseRequest(**values))
    _note_admitted(terminal, answer.value)
    if args.no_wait:
        terminal.present(args.json, answer, lambda lease: lease_page(lease, terminal.now()))
        return
    end = _watched(terminal, client, [answer], progress.is_decided)[answer.value.id]
    if isinstance(end, CliError):
        raise end
    terminal.present(args.json, end, lambda lease: lease_page(lease, terminal.now()))
    if not progress.is_ready(end.value):
        raise _failure(end.value)


def _create_batch(terminal: Terminal, client: Client, args: Namespace, request: LeaseBatchRequest) -> None:
    with naming_the_nearest(client, args.sku):
        batch = client.post("/v1/leases/batch", LeaseBatchView, request)
    made = each_of(batch.content["items"], batch.value.items)
    for lease in batch.value.items:
        _note_admitted(terminal, lease)
    if args.no_wait:
        terminal.present(
            args.json, batch, lambda made: lease_table(made.items, terminal.now(), all_states=True)
        )
        return
    ends = _watched(terminal, client, made, progress.is_decided)
    _present_many(terminal, args, ends)
    _raise_failure(ends, made)


def _note_admitted(terminal: Terminal, lease: LeaseView) -> None:
    days, admitted = (
        lease.request.committed_days,
        f"{lease.id} is admitted at {price(lease.price_per_hour)} USD per hour",
    )
    if days is None:
        terminal.note(f"{admitted}.")
    else:
        terminal.note(
            f"{admitted}, and committed to for {plural(days, 'day')}. Until it is ready, releasing it is free."
        )


def _wait_timeout(args: Namespace) -> int:
    given = args.wait_timeout
    return WAIT_SECONDS_DEFAULT if given is None else seconds(given, "--wait-timeout")


def _key_ids(client: Client, args: Namespace) -> tuple[str, ...] | None:
    """The keys that the lease is limited to; None for no limit."""
    if args.no_ssh_key:
        if args.ssh_key:
            raise usage("--ssh-key and --no-ssh-key cannot be combined.")
        return ()
    if args.ssh_key:
        return tuple(key.id for key in ssh_keys.find(client, args.ssh_key))
    return None


def _auto_release(args: Namespace) -> AutoReleaseRequest | None:
    after, spend = args.auto_release_after, args.auto_release_spend
    if after is None and spend is None:
        return None
    return AutoReleaseRequest(
        after_seconds=None if after is None else seconds(after, "--auto-release-after"),
        spend_usd=None if spend is None else amount(spend, "--auto-release-spend"),
    )


def _failure(lease: LeaseView) -> CliError:
    reason = lease.end_reason or lease.state
    why = sentence(lease.end_why or lease.status.message)
    return CliError(f"{lease.name}: {why} For details, run: splitplane why {lease.id}", code=reason)


def _watched(
    terminal: Terminal, client: Client, leases: list[Found], settled: progress.Settled
) -> dict[str, End]:
    """Watch the leases. Progress goes to standard error, because standard output carries the answer."""
    board = progress.board(terminal.err, leases, terminal.now, quiet=terminal.quiet)
    outage = progress.OUTAGE_SECONDS_MAX if terminal.timeout is None else terminal.timeout
    try:
        return dict(progress.watch(client, leases, settled, board, outage_seconds_max=outage))
    except KeyboardInterrupt:
        names = " ".join(lease.value.id for lease in leases)
        terminal.note(
            f"The lease continues. To watch it: splitplane lease watch {names}\n"
            f"To end it: splitplane lease release {names}"
            if len(leases) == 1
            else "The leases continue."
        )
        raise


def watch(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    leases = find(client, args.leases)
    settled = {"ready": progress.is_decided, "ended": progress.is_ended, None: _settled_by_itself(leases)}[
        args.until
    ]
    ends = _watched(terminal, client, leases, settled)
    _present_many(terminal, args, ends)
    if args.until != "ended":
        _raise_failure(ends, leases)


def _raise_failure(ends: dict[str, End], before: list[Found]) -> None:
    """Raise the error of the first lease that did not get ready."""
    for end in ends.values():
        if not isinstance(end, CliError) and _failed(end.value, before):
            raise _failure(end.value)


def _settled_by_itself(leases: list[Found]) -> progress.Settled:
    """Ready for a lease that comes up; ended for one that was ending when the watch began."""
    ending = {lease.value.id for lease in leases if lease.value.state == "ending"}
    return lambda lease: progress.is_ended(lease) if lease.id in ending else progress.is_decided(lease)


def _failed(end: LeaseView, before: list[Found]) -> bool:
    """Whether a lease that was coming up did not get ready."""
    first = next(lease.value for lease in before if lease.value.id == end.id)
    return first.state in ("placing", "starting") and not progress.is_ready(end)


def _present_many(terminal: Terminal, args: Namespace, ends: dict[str, End]) -> None:
    """Show how each ended. The first error is raised after everything was shown.

    Where every watch failed nothing is shown, because an empty list would be taken for the answer.
    """
    troubles = [end for end in ends.values() if isinstance(end, CliError)]
    leases = [end for end in ends.values() if not isinstance(end, CliError)]
    page = page_of(leases, LeasePage)
    if leases:
        terminal.present(
            args.json, page, lambda page: lease_table(page.items, terminal.now(), all_states=True)
        )
    if troubles:
        troubles[0].others = troubles[1:]
        raise troubles[0]


# list, show


def list_leases(terminal: Terminal, args: Namespace) -> None:
    params: dict[str, Any] = {}
    if args.state:
        params["state"] = args.state
    elif not args.all:
        params["state"] = list(LIVE_STATES)
    if args.project:
        params["project"] = args.project
    if args.label:
        params["label"] = args.label
    if args.waiting:
        params["waiting"] = "true"
    answer = terminal.client().every("/v1/leases", LeasePage, params)
    all_states = args.all or bool(args.state)
    filtered = bool(args.state or args.project or args.label or args.waiting)
    terminal.present(
        args.json,
        answer,
        lambda page: lease_table(page.items, terminal.now(), all_states=all_states, filtered=filtered),
    )


def show(terminal: Terminal, args: Namespace) -> None:
    answer = find(terminal.client(), [args.lease])[0]
    terminal.present(args.json, answer, lambda lease: lease_page(lease, terminal.now()))


# release


def release(terminal: Terminal, args: Namespace) -> None:
    accepted = None if args.accept_fee is None else amount(args.accept_fee, "--accept-fee")
    client = terminal.client()
    leases = find(client, args.leases)
    running = [lease.cleaned() for lease in leases if lease.value.state not in ("ending", "ended")]
    fees = [fee for lease in running if (fee := _fee(lease)) is not None]
    if running and not args.yes:
        for lease in running:
            per_hour = f"{price(lease.price_per_hour)} USD per hour"
            terminal.err.print(f"  {lease.name}  {lease.id}  {lease.state}, {per_hour}{_rest(lease)}")
        costs = " The rest of the terms is charged at once." if fees else ""
        confirm(
            terminal,
            args,
            f"Release {plural(len(running), 'lease')}? The data on the machines is lost.{costs}",
            instead=("--yes", *_accepting(fees)),
        )
    shown = accepted is None and not args.yes
    ends: dict[str, End] = {
        lease.value.id: _released(client, lease.value, _shown_fee(lease.value) if shown else accepted)
        for lease in leases
    }
    if args.wait:
        released = [end for end in ends.values() if not isinstance(end, CliError)]
        ends |= _watched(terminal, client, released, progress.is_ended)
    _present_many(terminal, args, ends)


def _fee(lease: LeaseView) -> Money | None:
    """What a release costs at once; None where it costs nothing."""
    fee = lease.release_fee
    return None if fee is None or not fee.nano else fee


def _accepting(fees: Sequence[Money]) -> list[str]:
    """What accepts these fees on the command line."""
    return ["--accept-fee", exact_usd(max(fee.nano for fee in fees)).replace(",", "")] if fees else []


def _rest(lease: LeaseView) -> str:
    """What a release costs at once, for a person who is asked."""
    fee = _fee(lease)
    until = lease.committed_until
    if fee is None or until is None:
        return ""
    return f"; committed to until {absolute(until)}: a release now costs {price(fee)} USD"


def _shown_fee(lease: LeaseView) -> str | None:
    """What a person has agreed to pay, because it was shown; it sinks with time."""
    fee = _fee(lease)
    return None if fee is None else fee.usd


def _released(client: Client, lease: LeaseView, accepted: str | None) -> End:
    """The lease after its release, or the error: one that cannot be released must not stop the others."""
    fee = "" if accepted is None else f"?accept_fee_usd={accepted}"
    try:
        return client.post(f"/v1/leases/{lease.id}/release{fee}", LeaseView)
    except CliError as error:
        return error
