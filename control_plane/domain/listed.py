"""Which of a provider's offers are used: one that is odd is left out with a note, and the others are used.

An offer is odd when a number or a name of it cannot be right, or when it comes twice. A provider that lists one
such offer, by a fault or on purpose, must not keep all its others out of the catalogue. Leaving an offer out is safe:
nothing is bought that is not listed.
"""

from collections.abc import Iterable

from control_plane.domain.money import NANO_MAX
from control_plane.domain.placement import Offer
from control_plane.domain.sku import REGION_PATTERN

GPU_COUNT_MAX = 64
SIZE_MAX = 2**31 - 1
"""vCPUs, GiB of memory and GiB of disk."""
NAME_LENGTH_MAX = 200
_NOTED_LENGTH_MAX = 80


def usable(offers: Iterable[Offer]) -> tuple[list[Offer], list[str]]:
    """The offers that can be used, and a note for each other one. Of two with the same key the first is used."""
    used: dict[str, Offer] = {}
    notes: list[str] = []
    for offer in offers:
        why = oddity(offer)
        if why is None and offer.key in used:
            why = "it is listed twice, and the first is used"
        if why is None:
            used[offer.key] = offer
        else:
            notes.append(f"the offer {_quoted(offer.key)} is left out: {why}")
    return list(used.values()), notes


def oddity(offer: Offer) -> str | None:
    """What cannot be right about an offer; None when nothing is odd."""
    return _odd_name(offer) or _odd_number(offer)


def _odd_name(offer: Offer) -> str | None:
    names = {"region": offer.native_region, "type": offer.native_type, "capacity": offer.capacity}
    for what, name in names.items():
        if not 0 < len(name) <= NAME_LENGTH_MAX or not name.isprintable():
            return f"its {what} is not a name of 1 to {NAME_LENGTH_MAX} printable characters"
    if not REGION_PATTERN.fullmatch(offer.region):
        return f"our name of its region, {_quoted(offer.region)}, does not begin with a jurisdiction"
    return None


def _odd_number(offer: Offer) -> str | None:
    shape = offer.shape
    least = 0 if shape.gpu_model is None else 1
    most = 0 if shape.gpu_model is None else GPU_COUNT_MAX
    if not least <= shape.gpu_count <= most:
        return f"it has {shape.gpu_count} GPUs of the model {shape.gpu_model}, and {least} to {most} are possible"
    sizes = {"vCPUs": shape.vcpus, "GiB of memory": shape.memory_gib, "GiB of disk": shape.disk_gib}
    for what, size in sizes.items():
        if not 0 <= size <= SIZE_MAX:
            return f"it has {size} {what}"
    if not 0 <= offer.cost_nano_per_hour <= NANO_MAX:
        return "its price is below zero or beyond what we count"
    stopped = offer.stopped_cost_nano_per_hour
    if stopped is not None and not 0 <= stopped <= offer.cost_nano_per_hour:
        return "its price while stopped is below zero or above the one while it runs"
    return None


def _quoted(text: str) -> str:
    return ascii(text[:_NOTED_LENGTH_MAX])
