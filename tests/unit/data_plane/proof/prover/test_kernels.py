"""The text of the kernels, and the table of what they need."""

from data_plane.proof.prover import kernels
from tests.support import ptx
from tests.support.ptx.registers import REGISTERS_MAX


def test_the_blocks_that_shall_be_resident_fit_the_registers_of_a_multiprocessor() -> None:
    for kernel in kernels.KERNELS:
        warps = -(-kernel.threads // 32) * kernel.resident
        per_warp = -(-REGISTERS_MAX[kernel.name] * 32 // 256) * 256
        assert warps * per_warp <= 65_536, kernel.name
        assert warps <= 48, kernel.name  # What a multiprocessor of a workstation card holds.


def test_the_table_names_the_parameters_and_threads_of_the_text() -> None:
    entries = ptx.read(kernels.text())
    assert entries.keys() == {kernel.name for kernel in kernels.KERNELS}
    for kernel in kernels.KERNELS:
        assert entries[kernel.name].parameters == kernel.parameters
        assert entries[kernel.name].threads == kernel.threads


def test_a_launch_has_a_block_for_a_last_piece_of_work() -> None:
    walk = kernels.WALK_KERNEL
    assert [walk.blocks(count) for count in (1, walk.work, walk.work + 1)] == [1, 1, 2]


def test_the_text_is_the_same_each_time_and_plain_enough_for_any_driver() -> None:
    text = kernels.text()
    assert text == kernels.text()
    assert text.startswith(b".version 7.0\n.target sm_80\n.address_size 64\n")
    assert all(byte in b"\n" or 32 <= byte < 127 for byte in text)
