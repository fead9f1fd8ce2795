"""Executes an entry, warp by warp, each instruction on 32 lanes at once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.ptx import tensor
from tests.support.ptx.text import Entry, Instruction, PtxError

Lanes = NDArray[Any]
_DTYPES = {"b32": np.uint32, "b64": np.uint64, "f32": np.float32, "pred": np.bool_}


class Memory:
    """Global memory: the arrays given, each at an address of its own, and nothing between them."""

    def __init__(self) -> None:
        self._regions: list[tuple[int, NDArray[np.uint32]]] = []

    def place(self, words: NDArray[np.uint32]) -> int:
        """The address of these words. They are read and written in place."""
        address = (len(self._regions) + 1) << 36  # Beyond 32 bits: a truncated address is outside.
        self._regions.append((address, words))
        return address

    def find(self, address: int, count: int) -> NDArray[np.uint32]:
        """A view of `count` words; PTX wants an address that is a multiple of their size."""
        if address % (4 * count):
            raise PtxError(f"unaligned: {address:#x} for {count} words")
        for base, words in self._regions:
            if base <= address and address + 4 * count <= base + 4 * len(words):
                return words[(address - base) // 4 :][:count]
        raise PtxError(f"outside of memory: {address:#x}")


@dataclass
class _Operation:
    to: str
    """Kind of the register that is written."""
    of: tuple[str, ...]
    """Kinds of the operands that are read."""
    compute: Callable[..., Lanes]


def _wide(a: Lanes, b: Lanes) -> Lanes:
    return a.astype(np.uint64) * b.astype(np.uint64)


def _shifted_right(a: Lanes, count: Lanes) -> Lanes:
    return np.where(count < 32, a >> (count & 31), 0).astype(np.uint32)


def _funnel_left(low: Lanes, high: Lanes, count: Lanes) -> Lanes:
    both = (high.astype(np.uint64) << np.uint64(32)) | low
    return ((both << (count & 31).astype(np.uint64)) >> np.uint64(32)).astype(np.uint32)


def _nearest_even(a: Lanes) -> Lanes:
    return np.rint(a).astype(np.int64).astype(np.uint32)


_WORDS, _LONGS = ("b32", "b32"), ("b64", "b64")
_OPERATIONS = {
    "mov.u32": _Operation("b32", ("b32",), lambda a: a),
    "mov.b32": _Operation("b32", ("b32",), lambda a: a),
    "mov.u64": _Operation("b64", ("b64",), lambda a: a),
    "mov.f32": _Operation("f32", ("f32",), lambda a: a),
    "add.u32": _Operation("b32", _WORDS, lambda a, b: a + b),
    "sub.u32": _Operation("b32", _WORDS, lambda a, b: a - b),
    "min.u32": _Operation("b32", _WORDS, np.minimum),
    "div.u32": _Operation("b32", _WORDS, lambda a, b: a // b),
    "rem.u32": _Operation("b32", _WORDS, lambda a, b: a % b),
    "and.b32": _Operation("b32", _WORDS, lambda a, b: a & b),
    "or.b32": _Operation("b32", _WORDS, lambda a, b: a | b),
    "xor.b32": _Operation("b32", _WORDS, lambda a, b: a ^ b),
    "shr.u32": _Operation("b32", _WORDS, _shifted_right),
    "shl.b32": _Operation("b32", _WORDS, lambda a, b: np.where(b < 32, a << (b & 31), 0).astype(np.uint32)),
    "shf.l.wrap.b32": _Operation("b32", ("b32", "b32", "b32"), _funnel_left),
    "mul.lo.u32": _Operation("b32", _WORDS, lambda a, b: a * b),
    "mul.hi.u32": _Operation("b32", _WORDS, lambda a, b: (_wide(a, b) >> np.uint64(32)).astype(np.uint32)),
    "mad.lo.u32": _Operation("b32", ("b32", "b32", "b32"), lambda a, b, c: a * b + c),
    "mad.wide.u32": _Operation("b64", ("b32", "b32", "b64"), lambda a, b, c: _wide(a, b) + c),
    "add.u64": _Operation("b64", _LONGS, lambda a, b: a + b),
    "sub.u64": _Operation("b64", _LONGS, lambda a, b: a - b),
    "min.u64": _Operation("b64", _LONGS, np.minimum),
    "max.u64": _Operation("b64", _LONGS, np.maximum),
    "shl.b64": _Operation("b64", ("b64", "b32"), lambda a, b: a << b.astype(np.uint64)),
    "cvt.u64.u32": _Operation("b64", ("b32",), lambda a: a.astype(np.uint64)),
    "cvt.u32.u64": _Operation("b32", ("b64",), lambda a: a.astype(np.uint32)),
    "mul.f32": _Operation("f32", ("f32", "f32"), lambda a, b: a * b),
    "cvt.rni.s32.f32": _Operation("b32", ("f32",), _nearest_even),
    "setp.lt.u32": _Operation("pred", _WORDS, lambda a, b: a < b),
    "setp.ge.u32": _Operation("pred", _WORDS, lambda a, b: a >= b),
    "setp.eq.u32": _Operation("pred", _WORDS, lambda a, b: a == b),
    "setp.lt.u64": _Operation("pred", _LONGS, lambda a, b: a < b),
    "setp.gt.u64": _Operation("pred", _LONGS, lambda a, b: a > b),
    "setp.ge.u64": _Operation("pred", _LONGS, lambda a, b: a >= b),
}
_MULTIPLICATIONS = {
    "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32": ("s8", "b32"),
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32": ("bf16", "f32"),
}
_ACCESSES = {"ld.global.cs.nc.v4.u32": 4, "st.global.v4.u32": 4, "st.global.v2.u32": 2}


def launch(
    entry: Entry,
    blocks: int,
    arguments: Sequence[int],
    memory: Memory,
    clock: Iterator[int],
) -> None:
    """Run a grid of `blocks` blocks. `clock` gives what each reading of %globaltimer reads."""
    if len(arguments) != len(entry.parameters):
        raise PtxError(f"{entry.name} has {len(entry.parameters)} parameters")
    for block in range(blocks):
        for first in range(0, entry.threads, 32):
            _Warp(entry, arguments, memory, clock, block, first).run()


class _Warp:
    def __init__(
        self,
        entry: Entry,
        arguments: Sequence[int],
        memory: Memory,
        clock: Iterator[int],
        block: int,
        first: int,
    ) -> None:
        lanes = np.arange(32, dtype=np.uint32)
        self._entry = entry
        self._arguments = {
            name: (width, value) for (name, width), value in zip(entry.parameters, arguments, strict=True)
        }
        self._memory = memory
        self._clock = clock
        self._block = block
        self._special = {
            "%laneid": lanes,
            "%tid.x": lanes + np.uint32(first),
            "%ctaid.x": np.full(32, block, np.uint32),
            "%smid": np.full(32, 100 + block, np.uint32),
        }
        self._registers: dict[str, Lanes] = {}
        self._active = lanes + first < entry.threads

    def run(self) -> None:
        at = 0
        while self._active.any():
            at = self._step(self._entry.instructions[at], at)

    def _step(self, one: Instruction, at: int) -> int:
        """Do one instruction. Answers where the next one is."""
        does = self._active.copy()
        if one.guard is not None:
            does &= self._read(one.guard, "pred")
        if one.opcode == "bra":
            if does.any() and not np.array_equal(does, self._active):
                raise PtxError(f"lanes disagree at {one}")
            return self._entry.labels[one.operands[0]] if does.any() else at + 1
        if one.opcode == "ret":
            self._active &= ~does
        else:
            self._how(one)(one, does)
        return at + 1

    def _how(self, one: Instruction) -> Callable[[Instruction, Lanes], None]:
        if one.opcode in _OPERATIONS:
            return self._compute
        if one.opcode in _ACCESSES:
            return self._access
        if one.opcode in _MULTIPLICATIONS:
            return self._multiply
        others = {
            "ld.param.u32": self._parameter,
            "ld.param.u64": self._parameter,
            "redux.sync.xor.b32": self._reduce,
            "mov.b64": self._halve,
        }
        if one.opcode not in others:
            raise PtxError(f"unknown instruction {one.opcode}")
        return others[one.opcode]

    def _compute(self, one: Instruction, does: Lanes) -> None:
        known = _OPERATIONS[one.opcode]
        if len(one.operands) != 1 + len(known.of):
            raise PtxError(f"operands of {one}")
        values = [self._read(name, kind) for name, kind in zip(one.operands[1:], known.of, strict=True)]
        self._write(one.operands[0], known.to, known.compute(*values), does)

    def _halve(self, one: Instruction, does: Lanes) -> None:
        """`mov.b64 {low, high}, both`."""
        both = self._read(one.operands[1], "b64")
        low, high = _vector(one.operands[0], 2)
        self._write(low, "b32", both.astype(np.uint32), does)
        self._write(high, "b32", (both >> np.uint64(32)).astype(np.uint32), does)

    def _read(self, name: str, kind: str) -> Lanes:
        if name == "%globaltimer" and kind == "b64":
            return np.full(32, next(self._clock), np.uint64)
        if name in self._special and kind == "b32":
            return self._special[name]
        if name.startswith("%"):
            if self._entry.registers.get(name) != kind:
                raise PtxError(f"{name} is not a {kind}")
            if name not in self._registers:
                raise PtxError(f"{name} is read before it is set")
            return self._registers[name]
        if kind == "f32":
            if not (name.startswith("0f") and len(name) == 10):
                raise PtxError(f"not a float: {name}")
            return np.full(32, int("0x" + name[2:], 0), np.uint32).view(np.float32)
        return np.full(32, int(name, 0), _DTYPES[kind])

    def _write(self, name: str, kind: str, value: Lanes, does: Lanes) -> None:
        if self._entry.registers.get(name) != kind or value.dtype != _DTYPES[kind]:
            raise PtxError(f"{name} takes no {kind} of {value.dtype}")
        if name not in self._registers:
            if not np.array_equal(does, self._active):
                raise PtxError(f"{name} is set for the first time under a guard")
            self._registers[name] = value.copy()
        else:
            self._registers[name] = np.where(does, value, self._registers[name])

    def _parameter(self, one: Instruction, does: Lanes) -> None:
        width, value = self._arguments[one.operands[1].strip("[]")]
        if one.opcode != f"ld.param.{width}":
            raise PtxError(f"{one} of a {width}")
        kind = f"b{width[1:]}"
        self._write(one.operands[0], kind, np.full(32, value, _DTYPES[kind]), does)

    def _access(self, one: Instruction, does: Lanes) -> None:
        count = _ACCESSES[one.opcode]
        loads = one.opcode.startswith("ld.")
        vector, place = one.operands if loads else one.operands[::-1]
        names = _vector(vector, count)
        register, _, offset = place.strip("[]").partition("+")
        addresses = self._read(register, "b64") + np.uint64(offset or 0)
        values = (
            np.zeros((count, 32), np.uint32)
            if loads
            else np.stack([self._read(name, "b32") for name in names])
        )
        for lane in np.flatnonzero(does):
            found = self._memory.find(int(addresses[lane]), count)
            if loads:
                values[:, lane] = found
            else:
                found[:] = values[:, lane]
        if loads:
            for name, value in zip(names, values, strict=True):
                self._write(name, "b32", value, does)

    def _reduce(self, one: Instruction, does: Lanes) -> None:
        to, register, mask = one.operands
        if not does.all() or int(mask, 0) != 0xFFFFFFFF:
            raise PtxError("a reduction without the whole warp")
        value = np.bitwise_xor.reduce(self._read(register, "b32"))
        self._write(to, "b32", np.full(32, value, np.uint32), does)

    def _multiply(self, one: Instruction, does: Lanes) -> None:
        if not does.all():
            raise PtxError("a multiplication without the whole warp")
        kind, accumulator = _MULTIPLICATIONS[one.opcode]
        to, a, b, c = (_vector(text, count) for text, count in zip(one.operands, (4, 4, 2, 4), strict=True))
        results = tensor.multiply(
            kind,
            [self._read(name, "b32") for name in a],
            [self._read(name, "b32") for name in b],
            [self._read(name, accumulator) for name in c],
        )
        for name, value in zip(to, results, strict=True):
            self._write(name, accumulator, value, does)


def _vector(text: str, count: int) -> list[str]:
    names = [name.strip() for name in text.strip("{}").split(",")]
    if not text.startswith("{") or len(names) != count:
        raise PtxError(f"not a vector of {count}: {text}")
    return names
