"""Envelopes: what an organization, a project or an environment may use at most."""

from argparse import ArgumentParser, Namespace
from typing import TypeVar
from urllib.parse import quote

from msgspec import structs

from control_plane.cli.errors import CliError, Exit
from control_plane.cli.parsing import Commands, command, noun
from control_plane.cli.render.envelopes import envelope_page
from control_plane.cli.terminal import Terminal
from control_plane.wire.envelopes import BurstRequest, EnvelopeRequest, EnvelopeView, LimitsRequest

Word = TypeVar("Word", bound=str)


def add(to: Commands) -> None:
    envelopes = noun(to, "envelope", "Show and set what may be used at most, and what is used of it.")
    parser = command(
        envelopes,
        "show",
        show,
        "Show an envelope, and what is used of it.",
        more=(
            "Without --project: the envelope of your organization. Those above it hold as\n"
            "well: a request has to be within all of them."
        ),
        examples="""
        splitplane envelope show
        splitplane envelope show --project research --environment prod
        """,
    )
    add_place(parser)
    _add_set(envelopes)


def _add_set(envelopes: Commands) -> None:
    parser = command(
        envelopes,
        "set",
        put,
        "Set an envelope. It replaces the one before as a whole.",
        more=(
            "What is left out is not limited at this level. An envelope cannot be wider than\n"
            "those above it; ask for more with `splitplane quota request`."
        ),
        examples="""
        splitplane envelope set --gpus 32 --region eu --month 20000
        splitplane envelope set --project research --gpus 8 --ends-after 3600
        """,
    )
    add_place(parser)
    add_limits(parser)
    parser.add_argument(
        "--burst",
        type=int,
        metavar="PERCENT",
        help="by how many percent GPUs and the spend per hour may exceed the limits",
    )
    parser.add_argument(
        "--burst-seconds", type=int, metavar="N", default=3_600, help="for how many seconds (default: 3600)"
    )
    parser.add_argument(
        "--burst-price",
        type=int,
        metavar="PERCENT",
        default=100,
        help="price of a lease that is admitted over a limit, in percent (default: 100)",
    )
    parser.add_argument(
        "--ends-after",
        type=int,
        metavar="SECONDS",
        help="end leases that are outside this long after a warning",
    )


def add_place(parser: ArgumentParser) -> None:
    parser.add_argument("--project", metavar="PROJECT", help="of this project: its name or its id")
    parser.add_argument("--environment", metavar="ENVIRONMENT", help="of this environment of the project")
    parser.add_argument(
        "--organization", metavar="ID", help="for operators: the ceiling of this organization"
    )


def add_limits(parser: ArgumentParser) -> None:
    parser.add_argument("--gpus", type=int, metavar="N", help="GPUs at once")
    parser.add_argument(
        "--model", action="append", default=[], metavar="MODEL=N", help="GPUs of a model; may be repeated"
    )
    parser.add_argument("--hour", metavar="USD", help="spend per hour")
    parser.add_argument("--month", metavar="USD", help="spend per calendar month (UTC)")
    parser.add_argument("--sku", action="append", metavar="SKU", help="allow this SKU; may be repeated")
    parser.add_argument(
        "--region", action="append", metavar="REGION", help="allow this region; may be repeated"
    )
    parser.add_argument(
        "--provider", action="append", metavar="PROVIDER", help="allow this provider; may be repeated"
    )
    parser.add_argument(
        "--tier",
        action="append",
        metavar="TIER",
        choices=("listed", "proven", "attested"),
        help="allow this proof tier: listed, proven or attested; may be repeated",
    )
    parser.add_argument(
        "--purchase",
        action="append",
        metavar="KIND",
        choices=("on_demand", "spot", "interruptible", "committed"),
        help="allow this way to buy: on_demand, spot, interruptible or committed; may be repeated",
    )
    parser.add_argument("--priority", type=int, metavar="N", help="the highest priority of a lease")
    parser.add_argument("--batch", type=int, metavar="N", help="how many leases one request may create")


def limits_of(args: Namespace) -> LimitsRequest:
    """The limits that the options name."""
    return LimitsRequest(
        gpus=args.gpus,
        gpus_of_model=_models(args.model),
        spend_usd_per_hour_max=args.hour,
        spend_usd_per_month_max=args.month,
        skus=_words(args.sku),
        regions=_words(args.region),
        providers=_words(args.provider),
        tiers=_words(args.tier),
        purchases=_words(args.purchase),
        priority_max=args.priority,
        batch_size_max=args.batch,
    )


def _models(given: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in given:
        name, _, count = each.partition("=")
        if not (name and count.isdecimal()):
            raise CliError(
                f"{each!r} is not a GPU model and a number, such as h100-sxm-80gb=8.",
                code="usage",
                exit_code=Exit.USAGE,
            )
        found[name] = int(count)
    return found


def _words(given: list[Word] | None) -> tuple[Word, ...] | None:
    return None if given is None else tuple(given)


def path_of(args: Namespace) -> str:
    if args.organization is not None:
        return f"/v1/operator/organizations/{quote(args.organization, safe='')}/envelope"
    if args.project is None:
        return "/v1/organization/envelope"
    path = f"/v1/projects/{quote(args.project, safe='')}"
    if args.environment is not None:
        path += f"/environments/{quote(args.environment, safe='')}"
    return f"{path}/envelope"


def show(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().get(path_of(args), EnvelopeView)
    terminal.present(args.json, answer, lambda envelope: envelope_page(envelope, terminal.now()))


def put(terminal: Terminal, args: Namespace) -> None:
    burst = None
    if args.burst is not None:
        burst = BurstRequest(args.burst, args.burst_seconds, args.burst_price)
    limits = structs.asdict(limits_of(args))
    request = EnvelopeRequest(**limits, burst=burst, ends_after_seconds=args.ends_after)
    answer = terminal.client().put(path_of(args), EnvelopeView, request)
    terminal.present(args.json, answer, lambda envelope: envelope_page(envelope, terminal.now()))
