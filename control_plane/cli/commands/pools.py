"""Warm pools. They need the permissions `pools.read` and `pools.manage`."""

import csv
import math
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from control_plane.cli.commands.amounts import amount
from control_plane.cli.commands.catalogue import SLA_TIERS
from control_plane.cli.errors import usage
from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.pool_simulations import drawing, simulation_page
from control_plane.cli.render.pools import pool_page, pool_table
from control_plane.cli.terminal import Terminal
from control_plane.wire.pools import (
    SERIES_MAX,
    TRACE_DAYS_MAX,
    TRACE_REQUESTS_MAX,
    PoolChangeRequest,
    PoolDetailView,
    PoolPage,
    PoolRequest,
    PoolSimulationRequest,
    PoolSimulationView,
    PoolView,
    TracedSeriesRequest,
)

PATH = "/v1/operator/pools"
SIMULATIONS = "/v1/operator/pool-simulations"
POLICIES = ("newsvendor", "fixed")
FIELDS = ("arrival", "sku", "region", "duration")


def add(to: Commands) -> None:
    pools = noun(to, "pool", "Keep verified machines ready ahead of demand (operators).")
    _add_create(pools)
    command(
        pools,
        "list",
        list_pools,
        "List the warm pools, with their machines and their figures of the last day.",
        examples="splitplane pool list",
    )
    parser = command(
        pools,
        "show",
        show,
        "Show a pool, what it did for its customers and cost, and what was decided.",
        examples="splitplane pool show h100-eu",
    )
    _add_name(parser)
    parser = command(
        pools,
        "change",
        change,
        "Change the bounds, the policy or the prices of a pool, or let it begin.",
        examples="""
        splitplane pool change h100-eu --begin
        splitplane pool change h100-eu --max 8 --budget 200
        """,
    )
    _add_name(parser)
    _add_figures(parser)
    state = parser.add_mutually_exclusive_group()
    state.add_argument("--begin", action="store_true", help="end the dry run: order and end machines")
    state.add_argument("--dry-run", action="store_true", help="only show what it would do from now on")
    parser = command(
        pools,
        "delete",
        delete,
        "Delete a pool and terminate the machines that wait in it.",
        more="Machines that leases have claimed stay with their leases.",
        examples="splitplane pool delete h100-eu",
    )
    _add_name(parser)
    _add_simulate(pools)


def _add_create(pools: Commands) -> None:
    parser = command(
        pools,
        "create",
        create,
        "Create a warm pool of a SKU in a region; at first a dry run.",
        more=(
            "A pool that is not told to begin only shows what it would do. docs/pools.md\n"
            "says how to choose its figures."
        ),
        examples="""
        splitplane pool create eu --sku h100-sxm.1x --region eu --max 4 --budget 99
        splitplane pool create us --sku h100-sxm.8x --region us --max 2 --budget 900
        """,
    )
    parser.add_argument("name", metavar="NAME", help="unique among the pools")
    parser.add_argument("--sku", required=True, metavar="SKU", help="the SKU whose leases it serves")
    parser.add_argument("--region", required=True, metavar="REGION", help="such as eu or eu-central-1")
    parser.add_argument(
        "--sla", choices=SLA_TIERS, help="the only service level whose leases it serves (default: all)"
    )
    _add_figures(parser, required=True)
    parser.add_argument("--begin", action="store_true", help="begin at once, without a dry run")


def _add_figures(parser: ArgumentParser, *, required: bool = False) -> None:
    parser.add_argument(
        "--max", type=int, required=required, metavar="N", help="how many machines it has at the most"
    )
    parser.add_argument(
        "--budget",
        required=required,
        metavar="USD",
        help="what its waiting machines may cost in a day (UTC)",
    )
    default = " (default: {})" if required else ""
    parser.add_argument("--min", type=int, metavar="N", help="how many it has at least" + default.format(0))
    parser.add_argument(
        "--step",
        type=int,
        metavar="N",
        help="how many are ordered or ended in one look" + default.format(2),
    )
    parser.add_argument(
        "--waiting",
        metavar="USD",
        help="what an hour in which a customer waits counts as" + default.format(20),
    )
    parser.add_argument(
        "--policy", choices=POLICIES, help="how its number is decided" + default.format("newsvendor")
    )


def _add_simulate(pools: Commands) -> None:
    parser = command(
        pools,
        "simulate",
        simulate,
        "Compare policies over a trace of requests: idle cost against waiting time.",
        more=(
            "The file is CSV with the header arrival,sku,region,duration, or a JSON object\n"
            "with these fields a line. An arrival is a time such as 2026-11-28T12:00:00Z, or\n"
            "a number of seconds; a duration is in seconds. docs/traces has a sample."
        ),
        examples="""
        splitplane pool simulate --trace docs/traces/two-weeks.csv --idle 2.50
        splitplane pool simulate --trace requests.jsonl --idle 2 --svg curve.svg
        """,
    )
    parser.add_argument(
        "--trace",
        required=True,
        metavar="FILE",
        help=f"requests, {TRACE_REQUESTS_MAX:,} at the most; - for stdin",
    )
    parser.add_argument(
        "--idle", required=True, metavar="USD", help="what a machine costs per hour while it waits"
    )
    parser.add_argument(
        "--waiting", default="20", metavar="USD", help="what an hour of waiting counts as (default: 20)"
    )
    parser.add_argument(
        "--lead",
        type=int,
        default=300,
        metavar="SECONDS",
        help="what a machine takes until it is verified (default: 300)",
    )
    parser.add_argument(
        "--max", type=int, default=50, metavar="N", help="machines of a pool at the most (default: 50)"
    )
    parser.add_argument("--svg", metavar="FILE", help="also draw the curve into this file")


def _add_name(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help='as "splitplane pool list" shows it')


def _of(name: str) -> str:
    return f"{PATH}/{quote(name, safe='')}"


def list_pools(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().whole(PATH, PoolPage)
    terminal.present(args.json, answer, lambda page: pool_table(page.items))


def show(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().get(_of(args.name), PoolDetailView)
    terminal.present(args.json, answer, lambda pool: pool_page(pool, terminal.now()))


def create(terminal: Terminal, args: Namespace) -> None:
    given: dict[str, Any] = {
        "machines_min": args.min,
        "step_max": args.step,
        "waiting_usd_per_hour": _usd(args.waiting, "--waiting"),
        "policy": args.policy,
        "sla": args.sla,
    }
    request = PoolRequest(
        args.name,
        args.sku,
        args.region,
        args.max,
        amount(args.budget, "--budget"),
        dry_run=not args.begin,
        **{name: value for name, value in given.items() if value is not None},
    )
    answer = terminal.client().post(PATH, PoolView, request)
    terminal.present(args.json, answer, lambda pool: pool_table([pool]))
    if not args.begin:
        look = f"Look at it: splitplane pool show {args.name}"
        terminal.note(f"It only decides. {look}. Let it order: splitplane pool change {args.name} --begin")


def change(terminal: Terminal, args: Namespace) -> None:
    request = PoolChangeRequest(
        machines_max=args.max,
        machines_min=args.min,
        step_max=args.step,
        idle_usd_per_day=_usd(args.budget, "--budget"),
        waiting_usd_per_hour=_usd(args.waiting, "--waiting"),
        policy=args.policy,
        dry_run=False if args.begin else True if args.dry_run else None,
    )
    if request == PoolChangeRequest():
        raise usage("nothing is to change; name what is, such as --max 8, --budget 200 or --begin.")
    answer = terminal.client().patch(_of(args.name), PoolView, request)
    terminal.present(args.json, answer, lambda pool: pool_table([pool]))


def delete(terminal: Terminal, args: Namespace) -> None:
    terminal.client().delete(_of(args.name))
    terminal.done(args.json, "deleted", args.name, f"The pool {args.name} is being deleted.")


def _usd(text: str | None, flag: str) -> str | None:
    return None if text is None else amount(text, flag)


def simulate(terminal: Terminal, args: Namespace) -> None:
    request = PoolSimulationRequest(
        series(_read(terminal, args.trace), args.trace),
        amount(args.idle, "--idle"),
        waiting_usd_per_hour=amount(args.waiting, "--waiting"),
        lead_seconds=args.lead,
        machines_max=args.max,
    )
    answer = terminal.client().post(SIMULATIONS, PoolSimulationView, request)
    if args.svg:
        try:
            Path(args.svg).write_text(drawing(answer.cleaned()), encoding="utf-8")
        except OSError as error:
            raise usage(f"{args.svg} cannot be written: {error.strerror}.") from None
    terminal.present(args.json, answer, lambda found: simulation_page(found, terminal.out.width))


def _read(terminal: Terminal, file: str) -> str:
    if file == "-":
        return terminal.stdin.read()
    try:
        return Path(file).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise usage(f"{file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise usage(f"{file} is not a text in UTF-8.") from None


def series(content: str, file: str) -> tuple[TracedSeriesRequest, ...]:
    """The requests of a trace by SKU and region, in seconds since the first.

    Usage errors name the line, or what there is too much of.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for number, row in _rows(content, file):
        missing = [name for name in FIELDS if row.get(name) in (None, "")]
        if missing:
            raise usage(f"{file}, line {number}: {', '.join(missing)} is missing.")
        place = (str(row["sku"]), str(row["region"]))
        found.setdefault(place, []).append(_moment(row["arrival"], f"{file}, line {number}"))
        _seconds(row["duration"], f"{file}, line {number}")
    if not found:
        raise usage(f"{file} has no requests.")
    first = min(map(min, found.values()))
    days = (max(map(max, found.values())) - first) / 86_400
    count = sum(map(len, found.values()))
    for what, has, most in (
        ("requests", count, TRACE_REQUESTS_MAX),
        ("pairs of a SKU and a region", len(found), SERIES_MAX),
        ("days from the first arrival to the last", days, TRACE_DAYS_MAX),
    ):
        if has > most:
            raise usage(
                f"{file} has {has:,.10g} {what}; {most:,} fit into one simulation. Take a part of it."
            )
    return tuple(
        TracedSeriesRequest(sku, region, tuple(int(moment - first) for moment in moments))
        for (sku, region), moments in sorted(found.items())
    )


def _rows(content: str, file: str) -> Iterator[tuple[int, dict[str, Any]]]:
    lines = content.splitlines()
    if not content.lstrip().startswith("{"):
        reader = csv.DictReader(lines)
        if not set(FIELDS) <= set(reader.fieldnames or ()):
            raise usage(f"{file}: the first line of CSV has to be {','.join(FIELDS)}.")
        try:
            for row in reader:
                yield reader.line_num, row
        except csv.Error as error:
            raise usage(f"{file}, line {reader.line_num}: it is not CSV ({error}).") from None
        return
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield number, msgspec.json.decode(line, type=dict[str, str | float])
        except (msgspec.DecodeError, UnicodeEncodeError):
            raise usage(f"{file}, line {number}: it is not a JSON object of texts and numbers.") from None


def _moment(value: object, where: str) -> float:
    if (seconds := _number(value)) is not None:
        return seconds
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise usage(
            f"{where}: {value!r} is neither a time such as 2026-11-28T12:00:00Z nor seconds."
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _number(value: object) -> float | None:
    try:
        number = float(str(value))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _seconds(value: object, where: str) -> None:
    seconds = _number(value)
    if seconds is None or seconds < 0:
        raise usage(f"{where}: {value!r} is no duration in seconds.")
