"""Chooses the NVML of this machine: the driver's, or the emulation file if NVIDIA's library is not installed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from data_plane.nvml import emulation_file
from data_plane.nvml import library as nvml
from data_plane.nvml.library import Library, NoLibrary, Unanswered


@contextmanager
def opened(emulation: Path) -> "Iterator[Library]":
    """The machine's NVML. Raises Unanswered if the library has no driver, the file is invalid, or there is neither."""
    try:
        with nvml.opened() as library:
            yield library
            return
    except NoLibrary:
        api = emulation_file.load(emulation)
    if api is None:
        raise Unanswered("no_gpu_library", "libnvidia-ml.so.1 cannot be loaded")
    with nvml.opened(api, "emulated") as library:
        try:
            yield library
        except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
            # Only a file can cause these, by incomplete structures or wrong types.
            raise Unanswered("bad_emulation", f"{emulation}: {type(error).__name__}: {error}") from None
