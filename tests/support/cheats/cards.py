"""Cards that are sold as better ones."""

from dataclasses import replace

from data_plane.proof.prover.emulation.cards import CARDS, RANDOM_READ_SHARE, Card, Speeds

H20 = Card(
    "NVIDIA H20", "2329", 97871, "9.0", 78, 1980, 2619, 6144, 60,
    Speeds(
        random_read=4000e9 * RANDOM_READ_SHARE,
        fill=1.3e10,
        int8=296e12 / 2 * 0.85,
        bf16=148e12 / 2 * 0.85,
        host_link=45e9,
    ),
)  # fmt: skip
"""All the bandwidth and a seventh of the compute: the card that a bandwidth test takes for an H100."""

RTX_4090_48GB = replace(CARDS["rtx-4090-24gb"], memory_mib=49140)
"""NVIDIA sells no such card: it is a 4090 with twice the memory soldered on."""

CPU = replace(
    CARDS["h100-sxm-80gb"],
    speeds=Speeds(random_read=2e10, fill=1.5e9, int8=2e12, bf16=2e12, host_link=2e10, launch=2e-6),
)
"""Two sockets of a good server that pose as a GPU: 64 cores with AVX-512 and AMX, and all of their memory."""


def times(speeds: Speeds, share: float) -> Speeds:
    """A card with this share of its memory bandwidth and its multiprocessors."""
    return replace(
        speeds,
        random_read=speeds.random_read * share,
        fill=speeds.fill * share,
        int8=speeds.int8 * share,
        bf16=speeds.bf16 * share,
    )


def mig_slice(card: Card, memory_slices: int, sms: int) -> Card:
    """A MIG slice: `memory_slices` of eight (memory and bandwidth alike), `sms` multiprocessors."""
    of_memory, of_sms = memory_slices / 8, sms / card.sms
    speeds = replace(times(card.speeds, of_sms), random_read=card.speeds.random_read * of_memory)
    return replace(card, memory_mib=round(card.memory_mib * of_memory), sms=sms, speeds=speeds)


def with_speeds(
    card: Card, *, random_read: float = 1.0, everything: float = 1.0, launch: float = 0.0
) -> Card:
    """The card with other speeds: two factors, and additional seconds for each launch."""
    speeds = times(card.speeds, everything)
    return replace(
        card,
        speeds=replace(speeds, random_read=speeds.random_read * random_read, launch=speeds.launch + launch),
    )
