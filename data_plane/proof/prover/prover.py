"""The prover's side of a GPU proof: takes one order after the other, carries it out on every GPU, and answers.

`Prover` carries out orders and checks that they make sense; `serve` reads and writes the frames. The caller chooses how
the GPUs work: `side_by_side` for real GPUs, or `one_after_another` for a simulated clock that must be deterministic.

A prover that cannot go on sends one Refused and ends.

Standard library only, Python 3.10 and up: this file runs on rented machines.
"""

import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

from data_plane.documents.strict import Malformed, printable
from data_plane.proof.protocol.arithmetic.launches import message
from data_plane.proof.protocol.commitments import Committer
from data_plane.proof.protocol.messages import (
    GROUPS_MAX,
    ORDER_BYTES_MAX,
    VERSION,
    AttestOrder,
    Committed,
    Filled,
    FillOrder,
    GapsAnswer,
    GapsOrder,
    Goodbye,
    Groups,
    Hello,
    Identity,
    LatencyAnswer,
    LatencyOrder,
    Opened,
    OpenOrder,
    Order,
    Phase,
    Refused,
    TilesOrder,
    WalkOrder,
)
from data_plane.proof.protocol.wire import decode, encode
from data_plane.proof.prover import attestation
from data_plane.proof.prover.device import Device, DeviceError, Machine

ORDERS: "tuple[type[Any], ...]" = (
    Hello,
    LatencyOrder,
    FillOrder,
    WalkOrder,
    TilesOrder,
    OpenOrder,
    GapsOrder,
    AttestOrder,
    Goodbye,
)
_LENGTH_BYTES = 4

Emit = Callable[["int | None", bytes], None]
"""Called with the number of the GPU that a frame is about (None for the machine) and the encoded frame. It is called
from several threads, and must not raise."""
Run = Callable[[Sequence[Callable[[], None]]], None]
"""Runs all of these functions, one for each GPU, and returns when all have returned. They do not raise."""


def one_after_another(jobs: "Sequence[Callable[[], None]]") -> None:
    for job in jobs:
        job()


def side_by_side(jobs: "Sequence[Callable[[], None]]") -> None:
    """Run each function in a thread. Calls into a driver release Python's lock, so all GPUs work at the same time.

    The threads are daemons, so that a driver that hangs does not keep the process from ending.
    """
    threads = [threading.Thread(target=job, daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class _BadOrder(Exception):  # noqa: N818 - reads as a sentence
    """The order is not allowed now, or does not fit this machine."""


class Prover:
    """One conversation with one challenger, over all GPUs of a machine."""

    def __init__(self, machine: Machine, run: Run = one_after_another) -> None:
        self._machine = machine
        self._run = run
        self._greeted = False
        self._filled = False
        self._phase: Phase | None = None
        self._commitments: tuple[Committer, ...] = ()

    def handle(self, order: Order, emit: Emit) -> bool:
        """Carry out one order and emit each answer at once. Returns False if the conversation is over."""
        try:
            return self._handle(order, emit)
        except _BadOrder as error:
            emit(None, refusal(None, "bad_order", str(error)))
            return False

    def _handle(self, order: Order, emit: Emit) -> bool:
        if isinstance(order, Goodbye):
            return False
        if isinstance(order, Hello) == self._greeted:
            raise _BadOrder("a second Hello" if self._greeted else "the first order is not a Hello")
        does: dict[type[Any], Callable[[Any, Emit], bool]] = {
            Hello: self._hello,
            LatencyOrder: self._latency,
            FillOrder: self._fill,
            WalkOrder: self._walk,
            TilesOrder: self._tiles,
            OpenOrder: self._open,
            GapsOrder: self._gaps,
            AttestOrder: self._attest,
        }
        return does[type(order)](order, emit)

    def close(self) -> None:
        """Release every GPU."""
        for device in self._machine.devices:
            device.close()

    # ---- orders --------------------------------------------------------------------------------------------

    def _hello(self, order: Hello, emit: Emit) -> bool:
        if order.version != VERSION:
            raise _BadOrder(f"version {order.version}, and this prover speaks {VERSION}")
        machine = self._machine
        try:
            gpus = tuple(device.identity() for device in machine.devices)
        except DeviceError as error:
            emit(None, refusal(None, error.code, error.detail))
            return False
        self._greeted = True
        identity = Identity(
            VERSION,
            machine.source,
            machine.driver,
            machine.cuda,
            machine.kernels_sha256,
            machine.libraries,
            gpus,
        )
        emit(None, encode(identity))
        return True

    def _latency(self, order: LatencyOrder, emit: Emit) -> bool:
        self._fits(order.starts)

        def work(gpu: int, device: Device) -> None:
            result = order.starts[gpu]
            launch = device.launch
            for number in range(order.rounds):
                result = launch(message(result, number))
            emit(gpu, encode(LatencyAnswer(gpu, result)))

        return self._on_each(work, emit)

    def _fill(self, order: FillOrder, emit: Emit) -> bool:
        self._fits(order.gpus)
        self._forget()

        def work(gpu: int, device: Device) -> None:
            wanted = order.gpus[gpu]
            device_us = device.fill(wanted.seed, wanted.iterations, wanted.blocks)
            emit(gpu, encode(Filled(gpu, device.memory_free(), device_us)))

        self._filled = self._on_each(work, emit)
        return self._filled

    def _walk(self, order: WalkOrder, emit: Emit) -> bool:
        self._fits(order.gpus)
        if not self._filled:
            raise _BadOrder("a walk before the fill")
        self._commit_in(
            "walk", order.group, [one.chains for one in order.gpus], [one.nonce for one in order.gpus]
        )

        def work(gpu: int, device: Device) -> None:
            wanted = order.gpus[gpu]
            self._commit(gpu, device, device.walk(wanted.nonce, wanted.chains, order.steps), emit)

        return self._on_each(work, emit) and self._show_groups(emit)

    def _tiles(self, order: TilesOrder, emit: Emit) -> bool:
        self._fits(order.gpus)
        self._commit_in(
            order.kind, order.group, [one.tiles for one in order.gpus], [one.seed for one in order.gpus]
        )

        def work(gpu: int, device: Device) -> None:
            wanted = order.gpus[gpu]
            slices = device.tiles(order.kind, wanted.seed, order.inner, order.columns, wanted.tiles)
            self._commit(gpu, device, slices, emit)

        return self._on_each(work, emit) and self._show_groups(emit)

    def _open(self, order: OpenOrder, emit: Emit) -> bool:
        self._fits(order.gpus)
        if order.phase != self._phase:
            raise _BadOrder(f"{order.phase} is not the last commitment")
        try:
            opened = [
                committer.open(groups)
                for committer, groups in zip(self._commitments, order.gpus, strict=True)
            ]
        except ValueError as error:
            raise _BadOrder(str(error)) from None
        for gpu, digests in enumerate(opened):
            emit(gpu, encode(Opened(gpu, order.phase), digests))
        return True

    def _gaps(self, order: GapsOrder, emit: Emit) -> bool:
        def work(gpu: int, device: Device) -> None:
            emit(gpu, encode(GapsAnswer(gpu, device.gaps(order.milliseconds, order.threshold_us))))

        return self._on_each(work, emit)

    def _attest(self, order: AttestOrder, emit: Emit) -> bool:
        self._fits(order.nonces)

        def work(gpu: int, device: Device) -> None:
            where = device.identity().cuda_pci_bus
            emit(gpu, attestation.answer(gpu, self._machine.source, where, order.nonces[gpu]))

        return self._on_each(work, emit)

    # ---- shared by the orders ------------------------------------------------------------------------------

    def _fits(self, entries: "Sequence[object]") -> None:
        if len(entries) != len(self._machine.devices):
            raise _BadOrder(f"{len(entries)} entries for {len(self._machine.devices)} GPUs")

    def _forget(self) -> None:
        self._phase, self._commitments = None, ()

    def _commit_in(self, phase: Phase, group: int, counts: "list[int]", keys: "list[bytes]") -> None:
        if any(count > GROUPS_MAX * group for count in counts):
            raise _BadOrder(f"more than {GROUPS_MAX} groups")
        self._forget()  # First, because the digests of two phases together may not fit into a small machine's memory.
        self._phase = phase
        self._commitments = tuple(Committer(group, key, phase) for key in keys)

    def _commit(self, gpu: int, device: Device, slices: "Iterator[bytes]", emit: Emit) -> None:
        """Hash digests while the device computes the next ones, and then send the root, which stops the clock."""
        assert self._phase is not None  # noqa: S101 - set by the order that brought us here
        committer = self._commitments[gpu]
        throttle: int | None = None
        for digests in slices:
            throttle = _either(throttle, device.throttle())
            committer.feed(digests)
        root = committer.finish()
        emit(gpu, encode(Committed(gpu, self._phase, root, device.busy_us(), throttle)))

    def _show_groups(self, emit: Emit) -> bool:
        """Send the group hashes, after all roots: a third of a megabyte for each GPU would delay the roots."""

        def work(gpu: int, _: Device) -> None:
            assert self._phase is not None  # noqa: S101 - set by the order that brought us here
            emit(gpu, encode(Groups(gpu, self._phase), self._commitments[gpu].hashes))

        return self._on_each(work, emit)

    def _on_each(self, work: "Callable[[int, Device], None]", emit: Emit) -> bool:
        """Do something on every GPU. Returns False if one refused; the others still finish."""
        refused: list[int] = []

        def job(gpu: int, device: Device) -> None:
            try:
                work(gpu, device)
            except DeviceError as error:
                refused.append(gpu)
                emit(gpu, refusal(gpu, error.code, error.detail))
            except MemoryError:
                refused.append(gpu)
                emit(gpu, refusal(gpu, "out_of_memory", "the machine itself is out of memory"))
            except Exception as error:  # noqa: BLE001 - sent to the challenger, because an exception in a thread would be lost
                traceback.print_exc()
                refused.append(gpu)
                emit(gpu, refusal(gpu, "internal", f"{type(error).__name__}: {error}"))

        self._run([partial(job, gpu, device) for gpu, device in enumerate(self._machine.devices)])
        return not refused


def _either(one: "int | None", other: "int | None") -> "int | None":
    return one if other is None else other | (one or 0)


def refusal(gpu: "int | None", code: str, detail: str) -> bytes:
    """One encoded Refused."""
    return encode(Refused(gpu, code, printable(detail)))


# ---- frames -------------------------------------------------------------------------------------------------


def serve(
    open_machine: "Callable[[], Machine]",
    read: "Callable[[int], bytes]",
    write: "Callable[[bytes], None]",
    run: Run = side_by_side,
) -> None:
    """Hold one conversation. The GPUs are prepared after the first order, and released at the end.

    `read(n)` returns n bytes, or fewer at the end of the input; `write` takes a whole frame. Both may raise OSError,
    which ends the conversation silently, because nobody is there any more.
    """
    line = _Frames(read, write)
    try:
        order = line.order()
        if order is None:
            return
        prover = Prover(open_machine(), run)
        try:
            while order is not None and prover.handle(order, line.emit) and not line.broken:
                order = line.order()
        finally:
            prover.close()
    except Malformed as error:
        line.emit(None, refusal(None, "bad_order", str(error)))
    except DeviceError as error:
        line.emit(None, refusal(None, error.code, error.detail))


class _Frames:
    """Reads orders and writes answers. Frames stay whole even if several threads write at the same time."""

    def __init__(self, read: "Callable[[int], bytes]", write: "Callable[[bytes], None]") -> None:
        self._read = read
        self._write = write
        self._lock = threading.Lock()
        self.broken = False

    def order(self) -> "Order | None":
        """The next order; None at the end of the input. Raises Malformed."""
        try:
            prefix = self._read(_LENGTH_BYTES)
            if len(prefix) < _LENGTH_BYTES:
                return None
            length = int.from_bytes(prefix, "big")
            if length > ORDER_BYTES_MAX:
                raise Malformed(f"an order of more than {ORDER_BYTES_MAX} bytes")
            body = self._read(length)
        except OSError:
            return None
        if len(body) < length:
            return None
        order, _ = decode(body, ORDERS)
        return cast("Order", order)

    def emit(self, _gpu: "int | None", frame: bytes) -> None:
        with self._lock:
            if self.broken:
                return
            try:
                self._write(frame)
            except OSError:
                self.broken = True
