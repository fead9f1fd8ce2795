"""What providers list and we cannot sell: a metric, and notes that operators read on the account."""

from collections import Counter
from collections.abc import Sequence

from prometheus_client import Gauge

from control_plane.domain.ids import AccountName
from providers.base import LeftOut, LeftOutFor

LEFT_OUT = Gauge(
    "splitplane_offers_left_out", "What the last listing had that cannot be sold.", ("account", "reason")
)
ODD = "odd"
"""The metric's word for an offer with a number or a name that cannot be right."""
_WORDS = {
    LeftOutFor.UNKNOWN_GPU: "unknown GPU",
    LeftOutFor.UNKNOWN_REGION: "unknown region",
    LeftOutFor.NO_PRICE: "no price",
}
_NAME_LENGTH_MAX = 80


def count(account: AccountName, left_out: Sequence[LeftOut], *, odd: int) -> None:
    """Set the metric of an account to what its last listing had."""
    counts = Counter(each.reason for each in left_out)
    for reason in LeftOutFor:
        LEFT_OUT.labels(account, reason).set(counts[reason])
    LEFT_OUT.labels(account, ODD).set(odd)


def notes(left_out: Sequence[LeftOut]) -> list[str]:
    """One note for each name, short and printable."""
    counts = Counter(left_out)
    return [
        f"{_WORDS[each.reason]}: {ascii(each.name[:_NAME_LENGTH_MAX])[1:-1]}"
        + (f" ({times} times)" if times > 1 else "")
        for each, times in sorted(counts.items(), key=lambda item: (item[0].reason, item[0].name))
    ]
