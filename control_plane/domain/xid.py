"""What NVIDIA's driver reports about a GPU, and what it means: errors (XIDs, and SXIDs of NVSwitches), errors that come
again and again, and the recovery that it asks for.

One file of rules for the whole product. The classes of errors are merged from NVIDIA's catalog of XID errors
(docs.nvidia.com/deploy/xid-errors, as gpud published it in October 2025), NVSentinel's table and Azure's list. Where
these differ, a comment says which one was followed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum


class XidClass(StrEnum):
    MACHINE_OUT = "machine_out"
    """The whole machine is out until its provider has repaired it."""
    GPU_OUT = "gpu_out"
    """The GPU is out until it is reset and has proven itself again."""
    APPLICATION = "application"
    """A program of the customer's is the usual cause. It says nothing about the hardware until it comes often."""
    WEAR = "wear"
    """Memory wears out. It still works."""
    TREND = "trend"
    """Worth counting: a sign of wear, or a detail of another error."""
    IN_DOUBT = "in_doubt"
    """It may be the GPU or a program, which only a proof of the GPU tells. Only repeated errors are in this class."""
    UNKNOWN = "unknown"
    """Not in the table. NVIDIA's advice for such codes is to contact its support."""


@dataclass(frozen=True, slots=True)
class XidMeaning:
    of: XidClass
    words: str
    """What happened, as the end of "XID 79: "."""


_MACHINE_OUT = {
    54: "a GPU lacks its auxiliary power",
    78: "a virtual GPU could not be started",
    79: "a GPU has fallen off the bus",
    151: "the keys of confidential computing could not be rotated",
    167: "PCIe reported a fatal timeout",
    168: "a protected memory region failed",
}
_GPU_OUT = {
    46: "the GPU stopped processing",
    48: "a double-bit memory error",
    62: "the GPU's microcontroller halted",
    64: "a memory row could not be remapped",
    74: "NVLink failed",
    95: "an uncontained memory error",
    110: "a security fault",
    119: "the GPU's system processor did not answer in time",
    120: "the GPU's system processor failed",
    136: "an NVLink could not be trained",
    140: "memory errors that were not recovered from",
    143: "the GPU could not be initialised",
    144: "NVLink 5: the SAW unit failed",
    145: "NVLink 5: the RLW unit failed",
    146: "NVLink 5: the TLW unit failed",
    147: "NVLink 5: the TREX unit failed",
    148: "NVLink 5: the NVLPW_CTRL unit failed",
    149: "NVLink 5: the NETIR unit failed",
    150: "NVLink 5: the MSE unit failed",
    155: "NVLink was disabled by its software",
    156: "a part of the GPU was retired",
    158: "a fatal timeout",
    169: "the GPU's power management halted",
}
_APPLICATION = {
    8: "the GPU stopped processing a program's work",
    11: "an invalid or corrupted push buffer",
    13: "a program caused an exception in the graphics engine",
    25: "an invalid or illegal push buffer",
    31: "a program accessed memory that it does not have",
    32: "an invalid or corrupted push buffer",
    39: "an exception in a copy engine",
    40: "an exception in a copy engine",
    41: "an exception in a copy engine",
    60: "an exception in the video processor",
    68: "an exception in the video decoder",
    69: "an exception in the graphics engine",
    94: "a contained memory error, which ended the program that used the memory",
    # NVIDIA's catalog resets the GPU for 109, and Kubernetes' device plugin ignores it.
    109: "a switch between programs took too long",
    **dict.fromkeys(
        (70, 71, 72, 75, 76, 77, 80, *range(82, 87), 88, 89, *range(96, 106), *range(126, 136), 139),
        "an exception in an engine of the GPU",
    ),
}
_WEAR = {
    92: "many single-bit memory errors",
}
_TREND = {
    14: "an unusual error of the driver",
    37: "a firmware error of the driver",
    38: "a firmware error of the driver",
    43: "a program's work was stopped",
    44: "a fault in the graphics engine while a program's state was saved",
    45: "a program's work was cleaned up, after another error or because the program ended",
    63: "a memory row was remapped, or a page retired",
    66: "an illegal access by the driver",
    67: "an illegal access by the driver",
    93: "a persistent error counter wears out",
    106: "the test of a display failed",
    107: "the test of a display failed",
    121: "an error of the link between the processor and the GPU that was corrected",
    137: "a program of another GPU caused an NVLink fault",
    141: "a page request failed",
    152: "a page request failed",
    153: "a detail of another error",
    154: "the recovery that the GPU needs has changed",
    157: "a memory row's repair was recorded",
    159: "a detail of another error",
    160: "a memory channel is to be retired",
    161: "a memory channel was retired",
    162: "power smoothing: its hardware was off",
    163: "power smoothing: it was off",
    164: "power smoothing: a circuit wears out",
    165: "power smoothing: a circuit is worn out",
    171: "a detail of a double-bit memory error",
    172: "a detail of a double-bit memory error",
}

XIDS: Mapping[int, XidMeaning] = {
    number: XidMeaning(of, words)
    for of, meanings in (
        (XidClass.MACHINE_OUT, _MACHINE_OUT),
        (XidClass.GPU_OUT, _GPU_OUT),
        (XidClass.APPLICATION, _APPLICATION),
        (XidClass.WEAR, _WEAR),
        (XidClass.TREND, _TREND),
    )
    for number, words in meanings.items()
}
_UNKNOWN = XidMeaning(XidClass.UNKNOWN, "an error that our table does not have")
_SWITCH = XidMeaning(XidClass.TREND, "an error of an NVSwitch")


def meaning(number: int, *, of_switch: bool = False) -> XidMeaning:
    """What an error means. `of_switch` says that it is an SXID, which has numbers of its own.

    An SXID is only a reason to look: whether it was fatal shows in the state of the fabric that the GPUs report.
    """
    if of_switch:
        return _SWITCH
    return XIDS.get(number, _UNKNOWN)


@dataclass(frozen=True, slots=True)
class Repeat:
    """What errors mean that come again on the same GPU."""

    numbers: frozenset[int]
    """Each of them counts."""
    times: int
    """From how many on. Errors within `APART` of each other count once."""
    within: timedelta
    of: XidClass
    words: str
    """What happened so often, as in "GPU 3 had ... 2 times within 24 hours"."""
    after_recovery: bool = False
    """Whether it only counts what came both before and after the GPU passed a proof, or its machine was reset."""


APART = timedelta(minutes=5)
"""One program that fails has a GPU report the same error many times."""
_DAY = timedelta(days=1)
REPEATS: tuple[Repeat, ...] = (
    Repeat(
        frozenset({109}), 2, _DAY, XidClass.GPU_OUT, "a switch between programs that took too long (XID 109)"
    ),
    Repeat(frozenset({94}), 3, _DAY, XidClass.WEAR, "a contained memory error (XID 94)"),
    Repeat(frozenset({63}), 5, _DAY, XidClass.WEAR, "a memory row remapped (XID 63)"),
    Repeat(
        frozenset({13, 31}),
        5,
        _DAY,
        XidClass.IN_DOUBT,
        "an error that programs usually cause (XID 13 or 31)",
    ),
    Repeat(
        frozenset(_GPU_OUT),
        2,
        timedelta(days=7),
        XidClass.MACHINE_OUT,
        "an error that takes it out, both before and after its recovery,",
        after_recovery=True,
    ),
)
"""An error is in one of these rules at most. That 109 counts from the second one on, that many of 63 do, and that a GPU
which is out again after its recovery takes its machine out, is advice of the field. How many are many is our choice to
begin with.

Errors of programs would say more if they came from different customers, but a machine serves one lease in its life. So
they only have the GPU prove itself, and change no verdict."""


class RecoveryClass(StrEnum):
    """How bad it is that the driver asks for a recovery."""

    NONE = "none"
    OUT = "out"
    """Work cannot go on, or begin, on the GPU until then."""
    REDUCED = "reduced"
    """The GPU works with less than it has, and work that runs may end first."""
    FABRIC = "fabric"
    """What the GPU shares with other machines over NVLink does not work."""


@dataclass(frozen=True, slots=True)
class RecoveryMeaning:
    of: RecoveryClass
    words: str
    """What the GPU needs, as in "GPU 3 ..."."""


RECOVERIES: Mapping[int, RecoveryMeaning] = {
    0: RecoveryMeaning(RecoveryClass.NONE, "needs no recovery"),
    1: RecoveryMeaning(RecoveryClass.OUT, "has to be reset"),
    2: RecoveryMeaning(RecoveryClass.OUT, "needs its machine to be rebooted"),
    3: RecoveryMeaning(RecoveryClass.OUT, "needs all traffic between GPUs to end before it can recover"),
    4: RecoveryMeaning(RecoveryClass.REDUCED, "works with less than it has until it is reset"),
    5: RecoveryMeaning(RecoveryClass.FABRIC, "needs its IMEX domain to recover"),
    6: RecoveryMeaning(RecoveryClass.OUT, "needs its bus to be reset"),
    7: RecoveryMeaning(RecoveryClass.OUT, "needs its whole system to be restarted"),
}
"""By NVML_GPU_RECOVERY_ACTION_* (field 230). What each asks for is in the manual of nvidia-smi."""
_OTHER_RECOVERY = RecoveryMeaning(RecoveryClass.OUT, "needs a recovery that our table does not have")


def recovery(action: int) -> RecoveryMeaning:
    """What it means that the driver asks for an action."""
    return RECOVERIES.get(action, _OTHER_RECOVERY)
