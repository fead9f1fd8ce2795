"""Provider accounts and termination permits on the screen."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from control_plane.cli.render.layout import facts, heading, indented, table
from control_plane.cli.words import absolute, ago, both, coarse, spaced, span
from control_plane.wire.accounts import AccountView, OfferBlockView, RateLimitView, TerminationPermitView


def account_table(accounts: Sequence[AccountView], now: datetime) -> RenderableType:
    """Every account in a row; below the table why accounts are frozen or failing, what is not
    ordered for a while, and permits in force.
    """
    if not accounts:
        return Text("There are no provider accounts. Add one: splitplane account add PROVIDER")
    columns = ("ACCOUNT", "PROVIDER", "STATE", "MACHINES", "LISTED")
    rows = [
        (
            Text(account.name, style="bold"),
            account.provider,
            _state(account),
            f"{account.listing_size:,}" if account.listing_asked_at else "-",
            ago(account.listing_asked_at, now) if account.listing_asked_at else "never",
        )
        for account in accounts
    ]
    parts: list[RenderableType] = [table(columns, rows, right=columns[3:])]
    for account in accounts:
        parts += _details(account, now)
    return Group(*parts)


def account_page(account: AccountView, now: datetime) -> RenderableType:
    """One account, with everything that keeps something from being bought or terminated there, and its limits."""
    listed = f"{account.listing_size:,} of ours, listed {both(account.listing_asked_at, now)}"
    credentials = "the environment of the reconciler"
    if account.credentials_from == "operator":
        credentials = f"stored encrypted, in force since {both(account.credentials_since, now)}"
    armed = f"terminated: armed since {both(account.armed_since, now)}"
    parts: list[RenderableType] = [
        heading(account.name, account.provider),
        facts(
            ("State", _state(account)),
            ("Machines", listed if account.listing_asked_at else "never listed"),
            ("Credentials", credentials),
            ("Orphans", armed if account.armed_since else "only reported: not armed"),
        ),
        *_details(account, now),
    ]
    if account.limits:
        parts += [Text(), heading("Rate limits"), indented(limit_table([account], now))]
    return Group(*parts)


def limit_table(accounts: Sequence[AccountView], now: datetime) -> RenderableType:
    """Every rate limit in a row."""
    columns = ("ACCOUNT", "LIMIT", "ALLOWS", "LAST MINUTE", "OUR SHARE", "NEXT CALL")
    rows = [
        (
            Text(account.name, style="bold"),
            limit.bucket,
            _allowed(limit),
            f"{limit.turns_last_minute:,}",
            Text(f"{limit.share_percent} %", style="yellow" if limit.share_percent < 100 else ""),
            f"in {span(limit.next_turn_at - now)}" if limit.next_turn_at > now else "now",
        )
        for account in accounts
        for limit in account.limits
    ]
    if not rows:
        return Text("No calls were made yet, or no limits are published for these providers.")
    return table(columns, rows, right=columns[3:])


def _allowed(limit: RateLimitView) -> str:
    every = "second" if limit.seconds == 1 else f"{limit.seconds:g} s"
    text = f"{limit.calls:,} per {every}"
    return text if limit.burst is None else f"{text}, {limit.burst:,} at once"


def _details(account: AccountView, now: datetime) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for word, style, since, why in (
        ("frozen", "yellow", account.frozen_since, account.frozen_why),
        ("failing", "red", account.failing_since, account.failing_why),
        ("drained", "yellow", account.drained_since, account.drained_why),
    ):
        if since is not None:
            parts += [Text(), heading(account.name, f"{word} since {both(since, now)}")]
            parts.append(indented(Text(why or "", style=style)))
            if word == "frozen":
                parts += _way_out(account)
    if account.blocks:
        parts += [Text(), heading(account.name, "not ordered for a while"), _block_table(account.blocks, now)]
    if account.offers_left_out:
        parts += [Text(), heading(account.name, "listed, and cannot be sold")]
        parts += [indented(Text(line)) for line in account.offers_left_out]
    if account.armed_since is None:
        parts += [Text(), heading(account.name, "disarmed" if account.disarmed_why else "not armed")]
        if account.disarmed_why:
            parts.append(indented(Text(account.disarmed_why, style="yellow")))
        command = f"splitplane account arm {account.name} --reason TEXT"
        parts.append(indented(Text("Orphans are reported and not terminated. Look at them, then:")))
        parts.append(indented(indented(Text(command))))
    if account.termination_permit is not None:
        parts += [Text(), permit_lines(account.termination_permit)]
    return parts


def _way_out(account: AccountView) -> list[RenderableType]:
    """What ends a freeze, besides a list that looks sane."""
    if account.missing_permit is not None:
        return [permit_lines(account.missing_permit)]
    if not account.frozen_needs_permit:
        text = "If its lists stay so for 15 minutes, the missing machines are given up."
    else:
        command = f"splitplane account permit-terminations {account.name} --missing --reason TEXT"
        text = f"Leases there go on. If the machines are gone at the provider: {command}"
    return [indented(Text(text))]


def _block_table(blocks: Sequence[OfferBlockView], now: datetime) -> RenderableType:
    columns = ("WHAT", "REFUSED FOR", "UNTIL")
    rows = [(block.subject, spaced(block.reason), f"in {coarse(block.until - now)}") for block in blocks]
    return indented(table(columns, rows, right=("UNTIL",)))


def permit_lines(permit: TerminationPermitView) -> RenderableType:
    what = "terminations permitted" if permit.missing is None else "missing machines may be given up"
    return Group(
        heading(permit.account, f"{what} until {absolute(permit.until)}"),
        indented(Text(f"{permit.why} ({permit.actor})")),
    )


def _state(account: AccountView) -> Text:
    if account.failing_since is not None:
        return Text("✗ failing", style="red")
    if account.frozen_since is not None:
        return Text("▲ frozen", style="yellow")
    if account.drained_since is not None:
        return Text("▲ drained", style="yellow")
    return Text("● ok", style="green")
