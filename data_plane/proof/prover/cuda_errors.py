"""Explains CUDA's errors to a person who has to repair the machine. Names and numbers are those of cuda.h."""

from data_plane.proof.prover.device import DeviceError

INVALID_VALUE = 1


class CudaError(DeviceError):
    """An error of the driver, with the driver's own number."""

    def __init__(self, code: str, detail: str, number: int) -> None:
        super().__init__(code, detail)
        self.number = number


_MEANINGS: "dict[int, tuple[str, str]]" = {
    2: ("out_of_memory", "the GPU has too little free memory"),
    34: ("no_driver", "the library found is CUDA's stub and no driver: take its folder off the library path"),
    46: (
        "cuda_error",
        "the GPU is not available: another process holds it alone, or MIG is on without an instance",
    ),
    100: ("no_driver", "the driver shows no GPU"),
    209: ("cuda_error", "the GPU is older than Ampere (compute capability 8.0)"),
    214: (
        "cuda_error",
        "the GPU met a memory error that it could not correct: reset it, and replace it if it stays",
    ),
    218: ("cuda_error", "the driver's compiler does not accept the kernels"),
    221: (
        "no_compiler",
        (
            "libnvidia-ptxjitcompiler.so.1 is missing: install the driver's compute libraries; "
            "a container needs `compute` among its NVIDIA_DRIVER_CAPABILITIES"
        ),
    ),
    222: ("no_compiler", "the driver is too old for PTX 7.0: install 470 or later"),
    223: ("no_compiler", "the driver may not compile: unset CUDA_DISABLE_PTX_JIT"),
    702: ("cuda_error", "a kernel ran too long for the display's watchdog: detach the display"),
    802: ("cuda_error", "the NVSwitches are not up: start nvidia-fabricmanager of the driver's own version"),
    803: (
        "no_driver",
        "libcuda and the kernel's driver are of different versions: reboot, or install them alike",
    ),
    804: ("no_driver", "a CUDA compatibility package is installed that this GPU cannot use: remove it"),
    999: ("cuda_error", "the driver does not say why; often /dev/nvidia-uvm is missing: modprobe nvidia-uvm"),
}


def named(call: str, code: int, name: str) -> CudaError:
    """The error of a call into the driver, with advice if there is any. `name` is the driver's name of the code."""
    kind, sentence = _MEANINGS.get(code, ("cuda_error", "the driver failed"))
    return CudaError(kind, f"{sentence} ({call}: {name or 'error'} {code})", code)
