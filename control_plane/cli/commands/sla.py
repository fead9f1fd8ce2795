"""Show service levels: what each tier promises, how a lease's promises stand, and what was given back.

Finance decides here on credits that wait.
"""

from argparse import Namespace
from collections.abc import Sequence

from control_plane.cli.commands.lookup import LEASE_HELP, find
from control_plane.cli.commands.money_once import add_key, post
from control_plane.cli.parsing import Commands, Parser, command, noun
from control_plane.cli.render.sla import (
    approval_page,
    decision_page,
    report_page,
    standing_page,
    waiting_page,
)
from control_plane.cli.render.sla_terms import tier_table
from control_plane.cli.terminal import Terminal
from control_plane.wire import csv_lines
from control_plane.wire.sla import (
    LeaseSlaView,
    SlaApprovalRequest,
    SlaApprovalView,
    SlaBreachView,
    SlaCreditList,
    SlaDecisionRequest,
    SlaReportView,
)
from control_plane.wire.sla_terms import SlaTierList

COLUMNS = (
    *(
        "breach_id",
        "organization_id",
        "lease_id",
        "promise",
        "month",
        "sla",
        "sla_version",
        "since",
        "found_at",
    ),
    *("charged_usd", "credit_usd", "credited_usd", "credited_at", "waiting_usd", "refused_why", "why"),
)


def add(to: Commands) -> None:
    sla = noun(to, "sla", "Show service levels: what is promised, and what was given back.")
    command(
        sla,
        "tiers",
        tiers,
        "Show what each tier promises with leases that are created now.",
        examples="""
        splitplane sla tiers
        splitplane lease create h100-sxm.8x --sla gold
        """,
    )
    shown = command(
        sla,
        "show",
        show,
        "Show what is promised with a lease, how it stands, and what was given back.",
        examples="""
        splitplane sla show train-1
        """,
    )
    shown.add_argument("lease", metavar="LEASE", help=LEASE_HELP)
    reported = command(
        sla,
        "report",
        report,
        "Show what a month came to: promises kept and broken, availability, credits.",
        examples="""
        splitplane sla report 2026-10
        splitplane sla report 2026-10 --csv > breaches.csv
        splitplane sla report 2026-10 --all
        """,
    )
    reported.add_argument(
        "month", metavar="MONTH", nargs="?", help="such as 2026-10 (default: the current one)"
    )
    reported.add_argument("--csv", action="store_true", help="print the breaches as CSV")
    reported.add_argument("--all", action="store_true", help="of all organizations (platform role finance)")
    command(
        sla,
        "waiting",
        waiting,
        "Show the credits that wait for your decision (platform role finance).",
        more=(
            "Nothing but what was read on the machine shows them, and its customer has root\n"
            "there. Such credits of one lease of an organization and month post themselves."
        ),
        examples="""
        splitplane sla waiting
        splitplane sla refuse br_0190c2f07d1e7b3a9c54e1f2a3b4c5d6 --reason forged
        """,
    )
    approved = command(
        sla,
        "approve",
        approve,
        "Let a credit that waits be posted, or a flood of them (platform role finance).",
        more=(
            "Credits post themselves. Two kinds wait for somebody to look: one that nothing\n"
            "but the machine shows (`splitplane sla waiting`; name the broken promise), and\n"
            "suspiciously many at a time, as after a fault of our own (name none;\n"
            "`splitplane loops` says so at credit_breaches)."
        ),
        examples="""
        splitplane sla approve br_0190c2f07d1e7b3a9c54e1f2a3b4c5d6 --reason "ticket 7"
        splitplane sla approve --reason "real: provider outage of 12 November"
        """,
    )
    approved.add_argument("breach", metavar="BREACH", nargs="?", help="the id of the broken promise")
    _add_reason(approved)
    refused = command(
        sla,
        "refuse",
        refuse,
        "Refuse what waits of a credit (platform role finance).",
        more="The customer reads the reason in `splitplane sla show` and `splitplane why`.",
        examples="""
        splitplane sla refuse br_0190c2f07d1e7b3a9c54e1f2a3b4c5d6 --reason forged
        """,
    )
    refused.add_argument("breach", metavar="BREACH", help="the id of the broken promise")
    _add_reason(refused)


def _add_reason(to: Parser) -> None:
    to.add_argument("--reason", required=True, help="what was looked at; it is stored with who decided")
    add_key(to)


def tiers(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().get("/v1/sla-tiers", SlaTierList)
    terminal.present(args.json, answer, lambda listed: tier_table(listed.items))


def show(terminal: Terminal, args: Namespace) -> None:
    client = terminal.client()
    lease = find(client, [args.lease])[0]
    answer = client.get(f"/v1/leases/{lease.value.id}/sla", LeaseSlaView)
    name = lease.cleaned().name
    terminal.present(args.json, answer, lambda found: standing_page(name, found, terminal.now()))


def report(terminal: Terminal, args: Namespace) -> None:
    query = {} if args.month is None else {"month": args.month}
    path = "/v1/finance/sla-report" if args.all else "/v1/sla-report"
    answer = terminal.client().every(path, SlaReportView, query)
    if args.csv and not args.json:
        terminal.write(csv_lines.lines([COLUMNS, *map(_csv_row, answer.value.items)]))
        return
    terminal.present(args.json, answer, report_page)


def _csv_row(breach: SlaBreachView) -> Sequence[object]:
    amounts = (breach.charged, breach.credit, breach.credited)
    return (
        *(breach.id, breach.organization_id, breach.lease_id, breach.promise, breach.month, breach.sla),
        *(breach.sla_version, breach.since.isoformat(), breach.found_at.isoformat()),
        *("" if amount is None else amount.usd for amount in amounts),
        "" if breach.credited_at is None else breach.credited_at.isoformat(),
        *(breach.waiting.usd, breach.refused_why or "", breach.why),
    )


def waiting(terminal: Terminal, args: Namespace) -> None:
    answer = terminal.client().every("/v1/finance/sla-credits", SlaCreditList)
    terminal.present(args.json, answer, lambda found: waiting_page(found, terminal.now()))


def refuse(terminal: Terminal, args: Namespace) -> None:
    _decide(terminal, args, "refuse")


def _decide(terminal: Terminal, args: Namespace, verb: str) -> None:
    body, path = SlaDecisionRequest(reason=args.reason), f"/v1/finance/sla-credits/{args.breach}/{verb}"
    answer = post(terminal.client(), args, path, SlaBreachView, body)
    terminal.present(args.json, answer, lambda breach: decision_page(breach, approved=verb == "approve"))


def approve(terminal: Terminal, args: Namespace) -> None:
    if args.breach is not None:
        _decide(terminal, args, "approve")
        return
    body = SlaApprovalRequest(reason=args.reason)
    answer = post(terminal.client(), args, "/v1/finance/sla-approvals", SlaApprovalView, body)
    terminal.present(args.json, answer, approval_page)
