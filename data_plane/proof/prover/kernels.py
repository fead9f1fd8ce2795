"""The kernels of the proof: one PTX text for every GPU from Ampere on, and how each kernel is launched.

PTX is NVIDIA's portable assembly, which the machine's own driver translates for its GPU. Version 7.0 for sm_80 is the
oldest that has all we need (`redux.sync`, `mma` on int8 and bf16). Every driver of a GPU that we rent accepts it, and
it runs on every later generation.

    fill        each thread computes one unit of 64 bytes
    walk        each warp walks two chains, so that two reads of 512 bytes are always in flight
    tiles_int8  each warp computes one tile of 64 x 64; operands are made in registers, no memory is read
    tiles_bf16  the same
    echo        one thread does one round of the launch chain
    gaps        each thread watches one clock

The arithmetic is that of docs/gpu-proof.md, bit for bit.

Standard library only, Python 3.10 and up: this file runs on rented machines.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from data_plane.proof.protocol.arithmetic.constants import (
    BEGINNING_ROUNDS,
    BF16_KEPT,
    BF16_ONE,
    ENDING_ROUNDS,
    ENTRIES_PER_WORD,
    ENTRY_FACTOR,
    FILL,
    GOLDEN,
    LANES,
    SIDE,
    SIGMA,
    TAGS,
    WALK,
    WORDS_PER_UNIT,
)
from data_plane.proof.protocol.messages import BLOCK_BYTES, TileKind

Width = Literal["u32", "u64"]


@dataclass(frozen=True)
class Kernel:
    """How a kernel is launched. Blocks and grids have one dimension, and there is no shared memory."""

    name: str
    threads: int
    """Threads of a block. A launch must use exactly this many."""
    resident: int
    """How many blocks fit into the 65,536 registers of one multiprocessor."""
    work: int
    """Units of work (units, chains, tiles) that one block does."""
    parameters: "tuple[tuple[str, Width], ...]"
    """Names and types, in the order of the launch."""

    def blocks(self, count: int) -> int:
        """Blocks to launch for `count` units of work."""
        return -(-count // self.work)


def _words(name: str, count: int) -> "tuple[tuple[str, Width], ...]":
    return tuple((f"{name}{at}", "u32") for at in range(count))


FILL_KERNEL = Kernel(
    "fill",
    threads=256,
    resident=5,
    work=256,
    parameters=(
        ("memory", "u64"),  # The address of unit 0.
        *_words("seed", 8),
        ("iterations", "u32"),
        ("first", "u64"),  # The first unit of this launch, and their number.
        ("count", "u64"),
    ),
)
WALK_KERNEL = Kernel(
    "walk",
    threads=256,
    resident=6,
    work=16,
    parameters=(
        ("memory", "u64"),
        ("blocks", "u32"),
        *_words("nonce", 4),
        ("first", "u32"),  # The first chain of this launch, and their number.
        ("count", "u32"),
        ("steps", "u32"),
        ("digests", "u64"),  # The address for the eight bytes of this launch's first chain.
    ),
)
ECHO_KERNEL = Kernel(
    "echo", threads=1, resident=1, work=1, parameters=(*_words("message", 4), ("answer", "u64"))
)
GAPS_KERNEL = Kernel(
    "gaps",
    threads=1,
    resident=1,
    work=1,
    parameters=(
        ("duration", "u64"),  # In nanoseconds, as is the threshold.
        ("threshold", "u64"),
        (
            "found",
            "u64",
        ),  # For each block: multiprocessor, samples, gaps, longest gap in microseconds; u32 each.
    ),
)


def _tiles_kernel(kind: TileKind) -> Kernel:
    return Kernel(
        f"tiles_{kind}",
        threads=128,
        resident=2,
        work=4,
        parameters=(
            *_words("seed", 4),
            ("inner", "u32"),
            ("columns", "u32"),
            ("first", "u32"),  # The first tile of this launch, and their number.
            ("count", "u32"),
            ("digests", "u64"),
        ),
    )


TILES_KERNELS: "dict[TileKind, Kernel]" = {"int8": _tiles_kernel("int8"), "bf16": _tiles_kernel("bf16")}
KERNELS = (FILL_KERNEL, WALK_KERNEL, *TILES_KERNELS.values(), ECHO_KERNEL, GAPS_KERNEL)


def text() -> bytes:
    """The PTX of all kernels: the same bytes on every machine."""
    bodies = (
        _entry(FILL_KERNEL, _fill()),
        _entry(WALK_KERNEL, _walk()),
        *(_entry(kernel, _tiles(kind)) for kind, kernel in TILES_KERNELS.items()),
        _entry(ECHO_KERNEL, _echo()),
        _entry(GAPS_KERNEL, _gaps()),
    )
    return "\n".join([".version 7.0", ".target sm_80", ".address_size 64", *bodies, ""]).encode("ascii")


def sha256() -> bytes:
    return hashlib.sha256(text()).digest()


# ---- the text -----------------------------------------------------------------------------------------------

Lines = list[str]


def _entry(kernel: Kernel, body: Lines) -> str:
    """A kernel around `body`, which uses each parameter as a register with the parameter's name."""
    parameters = ",\n".join(f"    .param .{width} {name}" for name, width in kernel.parameters)
    loaded = [
        line
        for name, width in kernel.parameters
        for line in (f".reg .b{width[1:]} %{name};", f"ld.param.{width} %{name}, [{name}];")
    ]
    lines = "\n".join(line if line.endswith(":") else f"    {line}" for line in [*loaded, *body, "ret;"])
    return (
        f"\n.visible .entry {kernel.name}(\n{parameters}\n)\n"
        f".reqntid {kernel.threads}\n.minnctapersm {kernel.resident}\n{{\n{lines}\n}}"
    )


def _quarter_round(x: Sequence[str]) -> Lines:
    a, b, c, d = x
    lines: Lines = []
    for left_d, left_b in ((16, 12), (8, 7)):
        lines += [
            f"add.u32 {a}, {a}, {b};",
            f"xor.b32 {d}, {d}, {a};",
            f"shf.l.wrap.b32 {d}, {d}, {d}, {left_d};",
            f"add.u32 {c}, {c}, {d};",
            f"xor.b32 {b}, {b}, {c};",
            f"shf.l.wrap.b32 {b}, {b}, {b}, {left_b};",
        ]
    return lines


def _mix(label: str, rounds: int, *states: Sequence[str]) -> Lines:
    """`rounds` quarter rounds of each state, as a loop over the register %round."""
    return [
        "mov.u32 %round, 0;",
        f"{label}:",
        *(line for state in states for line in _quarter_round(state)),
        "add.u32 %round, %round, 1;",
        f"setp.lt.u32 %again, %round, {rounds};",
        f"@%again bra {label};",
    ]


def _absorb(x: Sequence[str], w: Sequence[str]) -> Lines:
    return [
        f"add.u32 {x[0]}, {x[0]}, {w[0]};",
        f"xor.b32 {x[1]}, {x[1]}, {w[1]};",
        f"add.u32 {x[2]}, {x[2]}, {w[2]};",
        f"xor.b32 {x[3]}, {x[3]}, {w[3]};",
        *_quarter_round(x),
    ]


def _over_the_warp(to: str, x: str) -> str:
    return f"redux.sync.xor.b32 {to}, {x}, 0xFFFFFFFF;"


def _some(name: str, first: int, count: int) -> list[str]:
    """The registers %name<first>, ..., `count` of them."""
    return [f"%{name}{first + at}" for at in range(count)]


def _list(registers: Iterable[str]) -> str:
    return "{" + ", ".join(registers) + "}"


def _fill() -> Lines:
    x, given = _some("x", 0, WORDS_PER_UNIT), _some("given", 0, WORDS_PER_UNIT)
    columns = [[x[at], x[4 + at], x[8 + at], x[12 + at]] for at in range(4)]
    diagonals = [[x[at], x[4 + (at + 1) % 4], x[8 + (at + 2) % 4], x[12 + (at + 3) % 4]] for at in range(4)]
    return [
        f".reg .b32 %x<{WORDS_PER_UNIT}>, %given<{WORDS_PER_UNIT}>, %thread, %block, %iteration, %round;",
        ".reg .b64 %unit, %to;",
        ".reg .pred %beyond, %again;",
        "mov.u32 %thread, %tid.x;",
        "mov.u32 %block, %ctaid.x;",
        "cvt.u64.u32 %unit, %thread;",
        f"mad.wide.u32 %unit, %block, {FILL_KERNEL.threads}, %unit;",
        "setp.ge.u64 %beyond, %unit, %count;",
        "@%beyond ret;",
        "add.u64 %unit, %unit, %first;",
        *(f"mov.u32 {x[at]}, {word:#010x};" for at, word in enumerate(SIGMA)),
        *(f"mov.u32 {x[4 + at]}, %seed{at};" for at in range(8)),
        f"mov.b64 {{{x[12]}, {x[13]}}}, %unit;",
        f"mov.u32 {x[14]}, %iterations;",
        f"mov.u32 {x[15]}, {FILL:#010x};",
        "mov.u32 %iteration, 0;",
        "ITERATION:",
        *(f"mov.u32 {old}, {now};" for old, now in zip(given, x, strict=True)),
        *_mix("DOUBLE_ROUND", 10, *columns, *diagonals),
        *(f"add.u32 {now}, {now}, {old};" for old, now in zip(given, x, strict=True)),
        "add.u32 %iteration, %iteration, 1;",
        "setp.lt.u32 %again, %iteration, %iterations;",
        "@%again bra ITERATION;",
        f"shl.b64 %to, %unit, {(4 * WORDS_PER_UNIT).bit_length() - 1};",
        "add.u64 %to, %memory, %to;",
        *(f"st.global.v4.u32 [%to+{4 * at}], {_list(x[at : at + 4])};" for at in range(0, 16, 4)),
    ]


def _walk() -> Lines:
    chains = (0, 1)
    x = [_some("x", 4 * chain, 4) for chain in chains]
    w = [_some("w", 4 * chain, 4) for chain in chains]
    lines = [
        ".reg .b32 %x<8>, %w<8>, %slot<2>, %chain, %lane, %spread, %high, %low, %met, %step, %round, %warp;",
        ".reg .b64 %mine, %sum, %from<2>, %to;",
        ".reg .pred %beyond, %again, %leader;",
        "mov.u32 %lane, %laneid;",
        "mov.u32 %warp, %tid.x;",
        f"shr.u32 %warp, %warp, {LANES.bit_length() - 1};",
        "mov.u32 %slot0, %ctaid.x;",
        f"mad.lo.u32 %warp, %slot0, {WALK_KERNEL.threads // LANES}, %warp;",
        "shl.b32 %slot0, %warp, 1;",
        "setp.ge.u32 %beyond, %slot0, %count;",
        "@%beyond ret;",
        # With an odd number of chains, the last warp walks the last chain twice: no branch, and the same digest.
        "add.u32 %slot1, %slot0, 1;",
        "sub.u32 %count, %count, 1;",
        "min.u32 %slot1, %slot1, %count;",
        f"mad.wide.u32 %mine, %lane, {BLOCK_BYTES // LANES}, %memory;",
        f"mul.lo.u32 %spread, %lane, {GOLDEN:#010x};",
    ]
    for chain in chains:
        lines += [
            f"add.u32 %chain, %first, %slot{chain};",
            f"add.u32 {x[chain][0]}, %nonce0, %chain;",
            f"xor.b32 {x[chain][1]}, %nonce1, %spread;",
            f"add.u32 {x[chain][2]}, %nonce2, {WALK:#010x};",
            f"xor.b32 {x[chain][3]}, %nonce3, %chain;",
        ]
    lines += [*_mix("BEGINNING", BEGINNING_ROUNDS, *x), "mov.u32 %step, 0;", "STEP:"]
    for chain in chains:
        lines += [
            _over_the_warp("%high", x[chain][1]),
            _over_the_warp("%low", x[chain][0]),
            # (high * 2^32 + low) * blocks / 2^64, as in walk.py: blocks is at most 2^31.
            "mul.hi.u32 %low, %low, %blocks;",
            "cvt.u64.u32 %sum, %low;",
            "mad.wide.u32 %sum, %high, %blocks, %sum;",
            "mov.b64 {%low, %met}, %sum;",
            f"mad.wide.u32 %from{chain}, %met, {BLOCK_BYTES}, %mine;",
        ]
    # Both reads are issued before either is used. No block is read again soon, so the caches need not keep it.
    lines += [f"ld.global.cs.nc.v4.u32 {_list(w[chain])}, [%from{chain}];" for chain in chains]
    for chain in chains:
        lines += _absorb(x[chain], w[chain])
    lines += ["add.u32 %step, %step, 1;", "setp.lt.u32 %again, %step, %steps;", "@%again bra STEP;"]
    lines += [*_mix("ENDING", ENDING_ROUNDS, *x), "setp.eq.u32 %leader, %lane, 0;"]
    for chain in chains:
        lines += _leave_digest(x[chain], f"%slot{chain}")
    return lines


def _leave_digest(x: Sequence[str], slot: str) -> Lines:
    """The first lane stores the digest of the finished state `x` as number `slot` of this launch."""
    return [
        _over_the_warp(x[0], x[0]),
        _over_the_warp(x[1], x[1]),
        f"mad.wide.u32 %to, {slot}, 8, %digests;",
        f"@%leader st.global.v2.u32 [%to], {_list(x[:2])};",
    ]


ROWS = SIDE // 8
"""Rows of either operand whose entries a lane makes: one of every eight."""
ROUND_OF_WORDS = 8
"""Words of every row in one round of `mma`: 32 entries of int8, or 16 of bf16."""


def _tiles(kind: TileKind) -> Lines:
    """One tile. Operands and accumulators are distributed over the lanes as `mma` requires (PTX ISA 9.7.14.5).

    Of every operand row whose number is g modulo 8, lane 4g + t has the words t and t + 4 of each eight. It makes them
    when they are needed: word q of a row is a hash of base + q * step, and a lane keeps the bases and steps of its 16
    rows. The accumulators take 128 registers, so two warps share a scheduler: one makes entries while the other
    multiplies.
    """
    kernel = TILES_KERNELS[kind]
    accumulators = SIDE * SIDE // LANES
    float_or_word = "f32" if kind == "bf16" else "b32"
    lines = [
        f".reg .{float_or_word} %c<{accumulators}>;",
        f".reg .b32 %x<16>, %base<{2 * ROWS}>, %stride<{2 * ROWS}>, %a<4>, %b<{2 * ROWS}>, %w<4>, %shifted;",
        ".reg .b32 %lane, %group, %warp, %slot, %tile, %i, %j, %row, %word, %far, %words, %done, %round;",
        ".reg .b64 %to;",
        ".reg .pred %beyond, %again, %leader;",
        "mov.u32 %lane, %laneid;",
        "shr.u32 %group, %lane, 2;",
        "mov.u32 %warp, %tid.x;",
        f"shr.u32 %warp, %warp, {LANES.bit_length() - 1};",
        "mov.u32 %slot, %ctaid.x;",
        f"mad.lo.u32 %slot, %slot, {kernel.threads // LANES}, %warp;",
        "setp.ge.u32 %beyond, %slot, %count;",
        "@%beyond ret;",
        "add.u32 %tile, %first, %slot;",
        "div.u32 %i, %tile, %columns;",
        "rem.u32 %j, %tile, %columns;",
    ]
    for operand, tile in enumerate(("%i", "%j")):
        lines += [f"mad.lo.u32 %row, {tile}, {SIDE}, %group;"]
        for first in range(0, ROWS, 4):
            lines += _row_keys(TAGS[kind][operand], operand * ROWS + first, f"ROWS_{operand}_{first}")
    zero = "0f00000000" if kind == "bf16" else "0"
    lines += [f"mov.{float_or_word} %c{at}, {zero};" for at in range(accumulators)]
    lines += [
        f"shr.u32 %words, %inner, {ENTRIES_PER_WORD[kind].bit_length() - 1};",
        "and.b32 %word, %lane, 3;",
        "mov.u32 %done, 0;",
        "INNER:",
        "add.u32 %far, %word, 4;",
    ]
    for n in range(ROWS):
        lines += _entries(kind, f"%b{2 * n}", ROWS + n, "%word") + _entries(
            kind, f"%b{2 * n + 1}", ROWS + n, "%far"
        )
    for m in range(SIDE // 16):
        for at, (row, word) in enumerate(
            ((2 * m, "%word"), (2 * m + 1, "%word"), (2 * m, "%far"), (2 * m + 1, "%far"))
        ):
            lines += _entries(kind, f"%a{at}", row, word)
        lines += [
            _multiply(kind, _some("c", 32 * m + 4 * n, 4), _some("b", 2 * n, 2)) for n in range(SIDE // 8)
        ]
    lines += [
        f"add.u32 %word, %word, {ROUND_OF_WORDS};",
        f"add.u32 %done, %done, {ROUND_OF_WORDS};",
        "setp.lt.u32 %again, %done, %words;",
        "@%again bra INNER;",
        "mov.u32 %x0, %lane;",
        "mov.u32 %x1, %tile;",
        f"mov.u32 %x2, {TAGS[kind][0]:#x};",
        "mov.u32 %x3, %columns;",
    ]
    x = _some("x", 0, 4)
    for first in range(0, accumulators, 4):
        c, w = _some("c", first, 4), _some("w", 0, 4)
        lines += [
            line for to, from_ in zip(w, c, strict=True) for line in _as_integer(kind, to, from_)
        ] + _absorb(x, w)
    return [
        *lines,
        *_mix("ENDING", ENDING_ROUNDS, x),
        "setp.eq.u32 %leader, %lane, 0;",
        *_leave_digest(x, "%slot"),
    ]


def _row_keys(tag: int, first: int, label: str) -> Lines:
    """The bases and steps `first` .. `first` + 3 of the rows %row, %row + 8, ...; %row is advanced past them."""
    states = [_some("x", 4 * at, 4) for at in range(4)]
    lines: Lines = []
    for x in states:
        lines += [
            f"add.u32 {x[0]}, %seed0, %row;",
            f"xor.b32 {x[1]}, %seed1, {tag:#x};",
            f"mov.u32 {x[2]}, %seed2;",
            f"xor.b32 {x[3]}, %seed3, %row;",
            "add.u32 %row, %row, 8;",
        ]
    lines += _mix(label, BEGINNING_ROUNDS, *states)
    for at, x in enumerate(states):
        lines += [f"mov.u32 %base{first + at}, {x[0]};", f"or.b32 %stride{first + at}, {x[1]}, 1;"]
    return lines


def _entries(kind: TileKind, to: str, row: int, word: str) -> Lines:
    """The word number `word` of one row."""
    lines = [
        f"mad.lo.u32 {to}, {word}, %stride{row}, %base{row};",
        f"shr.u32 %shifted, {to}, 15;",
        f"xor.b32 {to}, {to}, %shifted;",
        f"mul.lo.u32 {to}, {to}, {ENTRY_FACTOR:#010x};",
        f"shr.u32 %shifted, {to}, 12;",
        f"xor.b32 {to}, {to}, %shifted;",
    ]
    if kind == "bf16":
        lines += [f"and.b32 {to}, {to}, {BF16_KEPT:#010x};", f"or.b32 {to}, {to}, {BF16_ONE:#010x};"]
    return lines


def _multiply(kind: TileKind, c: Sequence[str], b: Sequence[str]) -> str:
    shape = {"int8": "m16n8k32.row.col.s32.s8.s8.s32", "bf16": "m16n8k16.row.col.f32.bf16.bf16.f32"}[kind]
    return f"mma.sync.aligned.{shape} {_list(c)}, {_list(_some('a', 0, 4))}, {_list(b)}, {_list(c)};"


def _as_integer(kind: TileKind, to: str, accumulator: str) -> Lines:
    """An accumulator as an integer. A bf16 sum is a whole number of sixteenths; -0 becomes 0."""
    if kind == "int8":
        return [f"mov.b32 {to}, {accumulator};"]
    return [f"mul.f32 {accumulator}, {accumulator}, 0f41800000;", f"cvt.rni.s32.f32 {to}, {accumulator};"]


def _echo() -> Lines:
    x = _some("message", 0, 4)
    return [
        ".reg .b32 %round;",
        ".reg .pred %again;",
        *_mix("BEGINNING", BEGINNING_ROUNDS, x),
        f"st.global.v4.u32 [%answer], {_list(x)};",
    ]


def _gaps() -> Lines:
    return [
        ".reg .b32 %sm, %block, %samples, %gaps, %micro;",
        ".reg .b64 %start, %last, %now, %jump, %longest, %passed, %to;",
        ".reg .pred %wide, %again;",
        "mov.u64 %start, %globaltimer;",
        "mov.u64 %last, %start;",
        "mov.u64 %longest, 0;",
        "mov.u32 %samples, 0;",
        "mov.u32 %gaps, 0;",
        "LOOK:",
        "mov.u64 %now, %globaltimer;",
        "sub.u64 %jump, %now, %last;",
        "mov.u64 %last, %now;",
        "add.u32 %samples, %samples, 1;",
        "max.u64 %longest, %longest, %jump;",
        "setp.gt.u64 %wide, %jump, %threshold;",
        "@%wide add.u32 %gaps, %gaps, 1;",
        "sub.u64 %passed, %now, %start;",
        "setp.lt.u64 %again, %passed, %duration;",
        "@%again bra LOOK;",
        # Saturated at 4.29 seconds, because a 64-bit division would be a function call. No launch lasts long enough for
        # 2^32 samples.
        "min.u64 %longest, %longest, 0xFFFFFFFF;",
        "cvt.u32.u64 %micro, %longest;",
        "div.u32 %micro, %micro, 1000;",
        "mov.u32 %sm, %smid;",
        "mov.u32 %block, %ctaid.x;",
        "mad.wide.u32 %to, %block, 16, %found;",
        "st.global.v4.u32 [%to], {%sm, %samples, %gaps, %micro};",
    ]
