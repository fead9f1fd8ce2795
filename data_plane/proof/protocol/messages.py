"""The messages of a GPU proof, between the challenger (our side) and the prover (in a machine's agent).

The challenger begins. To each order the prover sends one or more answers for each GPU, as soon as the GPU has
finished. Every message is bounded by the constants below.

    challenger                               prover (one thread per GPU)
    Hello                              ->
                                       <-    Identity
    LatencyOrder                       ->
                                       <-    LatencyAnswer            per GPU
    FillOrder(seeds, blocks)           ->
                                       <-    Filled                   per GPU
    WalkOrder(nonces)   clock starts   ->
                        clock stops    <-    Committed(root)          per GPU
                                       <-    Groups(hashes)           per GPU
    OpenOrder(groups)                  ->
                                       <-    Opened(digests)          per GPU
    TilesOrder(seeds)   clock starts   ->
                        clock stops    <-    Committed(root)          per GPU
                                       <-    Groups(hashes), then OpenOrder and Opened as above
    GapsOrder                          ->
                                       <-    GapsAnswer               per GPU
    AttestOrder(nonces)  if wanted     ->
                                       <-    Evidence(report, chain)  per GPU
    Goodbye                            ->

Instead of any answer the prover may send Refused and end. `wire` encodes and decodes the messages; the arithmetic is in
docs/gpu-proof.md.

Standard library only, Python 3.10 and up: this file runs on rented machines.
"""

from dataclasses import dataclass
from typing import Literal

VERSION = 1
HEADER_BYTES_MAX = 0xFFFF
GPUS_MAX = 16
"""GPUs of one machine. The largest machines on sale have 16 cards."""

SEED_BYTES = 32
NONCE_BYTES = 16
ROOT_BYTES = 32
GROUP_HASH_BYTES = 16
DIGEST_BYTES = 8

BLOCK_BYTES = 512
BLOCKS_MAX = 1 << 31
"""1 TiB of GPU memory. Block numbers fit into 32 bits."""
ITERATIONS_MAX = 1024
ROUNDS_MAX = 10_000
CHAINS_MAX = 1 << 28
STEPS_MAX = 8192
TILES_MAX = 1 << 26
INNER_MAX = 131_040
"""The inner dimension of a tile. Below 131,072, a sum of int8 products fits into 32 bits."""
GROUP_MAX = 4096
GROUPS_MAX = 1 << 16
OPENED_MAX = 256
"""Opened groups of one GPU in one phase."""
SMS_MAX = 1024

ATTEST_NONCE_BYTES = 32
REPORT_BYTES_MAX = 16 * 1024
"""An attestation report. NVML's buffer has 8 KiB; real reports have 4 KiB."""
CHAIN_BYTES_MAX = 64 * 1024
"""The certificate chain of a report, in PEM. NVML's buffer has 5 KiB."""

ANSWER_BYTES_MAX = (
    2 + HEADER_BYTES_MAX + max(GROUPS_MAX * GROUP_HASH_BYTES, OPENED_MAX * GROUP_MAX * DIGEST_BYTES)
)
"""The largest answer that a prover may ever send. The challenger allows less, depending on its order."""
ORDER_BYTES_MAX = 2 + HEADER_BYTES_MAX

Source = Literal["cuda", "emulated"]
TileKind = Literal["int8", "bf16"]
Phase = Literal["walk", "int8", "bf16"]
"""What a commitment is about."""

# ---- orders -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hello:
    """Opens the conversation. The prover prepares every GPU (context, kernels, warm-up) and describes the machine."""

    version: int = VERSION


@dataclass(frozen=True)
class LatencyOrder:
    """Do `rounds` strictly sequential launches on each GPU, beginning with that GPU's start (16 bytes)."""

    rounds: int
    starts: "tuple[bytes, ...]"


@dataclass(frozen=True)
class Fill:
    seed: bytes
    iterations: int
    blocks: int


@dataclass(frozen=True)
class FillOrder:
    """Fill memory of each GPU with units that are slow to compute. There is one entry for each GPU, by index."""

    gpus: "tuple[Fill, ...]"


@dataclass(frozen=True)
class Walk:
    nonce: bytes
    chains: int


@dataclass(frozen=True)
class WalkOrder:
    """Walk `chains` chains of `steps` random blocks each, and commit to their digests in groups of `group`."""

    steps: int
    group: int
    gpus: "tuple[Walk, ...]"


@dataclass(frozen=True)
class Tiles:
    seed: bytes
    """NONCE_BYTES long."""
    tiles: int


@dataclass(frozen=True)
class TilesOrder:
    """Compute `tiles` output tiles of 64 x 64 with the inner dimension `inner`, in rows of `columns` tiles."""

    kind: TileKind
    inner: int
    """A multiple of 32."""
    columns: int
    group: int
    gpus: "tuple[Tiles, ...]"


@dataclass(frozen=True)
class OpenOrder:
    """Send the digests of these groups of the last commitment: for each GPU, group numbers in ascending order."""

    phase: Phase
    gpus: "tuple[tuple[int, ...], ...]"


@dataclass(frozen=True)
class GapsOrder:
    """Read the clock on each GPU continuously, and count how often it jumps."""

    milliseconds: int
    threshold_us: int


@dataclass(frozen=True)
class AttestOrder:
    """Have each GPU sign its identity and its firmware together with a nonce. There is one nonce per GPU, by index."""

    nonces: "tuple[bytes, ...]"
    """Fresh nonces, ATTEST_NONCE_BYTES long."""


@dataclass(frozen=True)
class Goodbye:
    """Release everything and end."""


# ---- answers ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GpuIdentity:
    """One GPU as three sources on the machine describe it: claims, to be compared with each other.

    A value is None if its source does not say. Memory is in bytes, clocks are in kHz.
    """

    index: int
    nvml_name: "str | None"
    nvml_uuid: "str | None"
    nvml_memory: "int | None"
    nvml_pci_device: "str | None"
    nvml_pci_bus: "str | None"
    nvml_sharing: str
    """`none`, `mig`, `vgpu` or `unknown`."""
    nvml_ecc: "bool | None"
    nvml_throttle: "int | None"
    """NVML's clocks-event reason bits before the proof."""
    nvml_processes: "int | None"
    """Compute processes other than the agent."""
    cuda_name: str
    cuda_uuid: str
    cuda_memory: int
    cuda_free: int
    cuda_pci_bus: str
    cuda_capability: str
    """Such as `9.0`."""
    cuda_sms: int
    cuda_sm_khz: int
    cuda_memory_khz: int
    cuda_bus_bits: int
    cuda_l2: int
    cuda_ecc: bool
    cuda_mps: bool
    sysfs_pci_device: "str | None"
    """From /sys/bus/pci, such as `10de:2330`."""
    sysfs_pci_subsystem: "str | None"
    proc_model: "str | None"
    """From /proc/driver/nvidia/gpus."""


@dataclass(frozen=True)
class Library:
    """A driver library that the prover has loaded."""

    name: str
    path: str
    sha256: bytes


@dataclass(frozen=True)
class Identity:
    """The machine's answer to Hello, once every GPU is ready."""

    version: int
    source: Source
    driver: str
    cuda: str
    """The driver's CUDA version, such as `12.8`."""
    kernels_sha256: bytes
    libraries: "tuple[Library, ...]"
    gpus: "tuple[GpuIdentity, ...]"


@dataclass(frozen=True)
class LatencyAnswer:
    gpu: int
    final: bytes
    """NONCE_BYTES long."""


@dataclass(frozen=True)
class Filled:
    gpu: int
    free: int
    """Free bytes on the card after the fill, according to its driver."""
    device_us: int
    """Kernel time in microseconds according to the machine's own events. It is evidence and never judged."""


@dataclass(frozen=True)
class Committed:
    """The root over all group hashes. Its arrival stops our clock."""

    gpu: int
    phase: Phase
    root: bytes
    device_us: int
    throttle: "int | None"
    """NVML's clocks-event reason bits, read while the phase ran."""


@dataclass(frozen=True)
class Groups:
    """The blob contains the group hashes in their order, GROUP_HASH_BYTES each."""

    gpu: int
    phase: Phase


@dataclass(frozen=True)
class Opened:
    """The blob contains the digests of the opened groups in the requested order, DIGEST_BYTES each."""

    gpu: int
    phase: Phase


@dataclass(frozen=True)
class SmGaps:
    sm: int
    samples: int
    """How often the clock was read, at most 2**32 - 1."""
    gaps: int
    """How often the clock jumped by more than the threshold."""
    longest_us: int


@dataclass(frozen=True)
class GapsAnswer:
    gpu: int
    sms: "tuple[SmGaps, ...]"


@dataclass(frozen=True)
class Evidence:
    """What a GPU attests. The blob contains its report (`report` bytes) and the certificate chain (`chain` bytes).

    Most cards cannot attest anything. Then there is no blob, both sizes are 0, and `missing` gives the reason.
    """

    gpu: int
    report: int
    chain: int
    missing: "str | None"
    """`not_supported`, `cc_off` (confidential computing is off), `nvml_error`, `emulated`; None with evidence."""


@dataclass(frozen=True)
class Refused:
    """The prover cannot go on. `gpu` is None if the reason is not one card."""

    gpu: "int | None"
    code: str
    """`no_driver`, `out_of_memory`, `cuda_error`, `bad_order`, `no_compiler`, `emulation_missing`, `internal`."""
    detail: str


Order = (
    Hello | LatencyOrder | FillOrder | WalkOrder | TilesOrder | OpenOrder | GapsOrder | AttestOrder | Goodbye
)
Answer = Identity | LatencyAnswer | Filled | Committed | Groups | Opened | GapsAnswer | Evidence | Refused
Message = Order | Answer
