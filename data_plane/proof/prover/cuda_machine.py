"""`device.Machine` over CUDA: opens the driver, prepares every GPU, and warms all of them up.

The kernels are compiled for one GPU after the other. The first compilation takes seconds, and the other GPUs use the
driver's cache (which the agent's command puts into a folder of its own). Then all GPUs warm up at the same time.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from data_plane.proof.protocol.messages import GPUS_MAX, Source
from data_plane.proof.prover import kernels, libraries
from data_plane.proof.prover.claims import Claims
from data_plane.proof.prover.cuda import Driver
from data_plane.proof.prover.cuda_device import CudaDevice, SliceSizes
from data_plane.proof.prover.device import Device, DeviceError
from data_plane.proof.prover.prover import Run, side_by_side

WARM_SECONDS = 1.5
"""An idle card takes about one second to raise its clocks."""


class CudaMachine:
    """All GPUs of the driver, prepared and warm."""

    source: Source = "cuda"

    def __init__(
        self,
        library: Any,
        claims: Claims,
        *,
        run: Run = side_by_side,
        monotonic: "Callable[[], float]" = time.monotonic,
        sizes: "SliceSizes | None" = None,
    ) -> None:
        """Raises DeviceError, after releasing every GPU, if one of them cannot be used."""
        text = kernels.text()
        driver = Driver(library)
        driver.cuInit(0)
        self.cuda = driver.version()
        self.driver = claims.driver()
        self.kernels_sha256 = kernels.sha256()
        self._devices: list[CudaDevice] = []
        try:
            for index, device in enumerate(driver.devices()[:GPUS_MAX]):
                where = driver.pci_bus(device)
                taken = CudaDevice(
                    driver,
                    device,
                    index,
                    claimed=claims.of(
                        where
                    ),  # Before there is a context, so that our own process is not counted.
                    throttle=partial(claims.throttle, where),
                    sizes=sizes,
                )
                self._devices.append(taken)
                taken.prepare(text)
            self._warm_up(run, monotonic)
        except DeviceError:
            for taken in self._devices:
                taken.close()
            raise
        self.devices: tuple[Device, ...] = tuple(self._devices)
        self.libraries = libraries.loaded()

    def _warm_up(self, run: Run, monotonic: "Callable[[], float]") -> None:
        failed: list[DeviceError] = []

        def warm_up(device: CudaDevice) -> None:
            try:
                device.warm_up(WARM_SECONDS, monotonic)
            except DeviceError as error:
                failed.append(error)

        run([partial(warm_up, device) for device in self._devices])
        if failed:
            raise failed[0]
