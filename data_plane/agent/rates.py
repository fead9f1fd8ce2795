"""How fast a card's links transfer data, from counters that the driver only ever adds to."""

from collections.abc import Callable
from dataclasses import dataclass, field

from data_plane.documents.health import GpuHealth, Group, Health

_COUNTERS: "dict[str, tuple[Group, Callable[[GpuHealth], int | None]]]" = {
    "nvlink_kib_per_second": ("nvlink", lambda card: _sum(card.nvlink.sent_kib, card.nvlink.received_kib)),
    "pcie_sent_bytes_per_second": ("pcie", lambda card: card.pcie.sent_bytes),
    "pcie_received_bytes_per_second": ("pcie", lambda card: card.pcie.received_bytes),
}
"""The field of a sample, and the counter with the group in which it is read."""


@dataclass
class Rates:
    """Between the last two readings of each counter."""

    _counted: "dict[tuple[str, str], tuple[int, int]]" = field(default_factory=dict)
    """By UUID and field: the unix second of the last reading, and the counter."""
    _rates: "dict[tuple[str, str], int | None]" = field(default_factory=dict)

    def of(self, document: Health) -> "dict[str, dict[str, int | None]]":
        """By UUID, the rate of each field. Null where it is not known: at first, and when a counter began anew."""
        read_at = {reading.group: reading.at for reading in document.readings}
        found: dict[str, dict[str, int | None]] = {}
        for card in document.gpus:
            if card.uuid is not None and not card.lost:
                found[card.uuid] = {
                    name: self._rate((card.uuid, name), read_at.get(group), counter(card))
                    for name, (group, counter) in _COUNTERS.items()
                }
        return found

    def _rate(self, key: "tuple[str, str]", at: "int | None", counter: "int | None") -> "int | None":
        if at is None or counter is None:
            self._counted.pop(key, None)
            self._rates.pop(key, None)
            return None
        before = self._counted.get(key)
        if before is not None and before[0] == at:  # Not read since.
            return self._rates.get(key)
        self._counted[key] = at, counter
        rate = None
        if before is not None and at > before[0] and counter >= before[1]:
            rate = (counter - before[1]) // (at - before[0])
        self._rates[key] = rate
        return rate


def _sum(one: "int | None", other: "int | None") -> "int | None":
    return None if one is None or other is None else one + other
