"""Commitments: whatever is shown later was there before."""

import random
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.proof.protocol import commitments
from data_plane.proof.protocol.commitments import Committer
from data_plane.proof.protocol.messages import DIGEST_BYTES, GROUP_HASH_BYTES, Phase

KEY = bytes(range(16))


def digests(count: int) -> bytes:
    return random.Random(count).randbytes(DIGEST_BYTES * count)


def test_a_group_s_hash_is_keyed_and_says_its_phase() -> None:
    shown = digests(5)
    expected = b"".join(
        blake2b(part, digest_size=16, key=KEY, person=b"walk").digest() for part in (shown[:24], shown[24:])
    )
    assert commitments.group_hashes(shown, 3, KEY, "walk") == expected
    assert (
        commitments.root(expected, KEY, "walk")
        == blake2b(expected, digest_size=32, key=KEY, person=b"walk").digest()
    )


def test_another_key_phase_digest_or_order_gives_another_root() -> None:
    shown = digests(6)
    swapped = shown[8:16] + shown[:8] + shown[16:]
    variants: tuple[tuple[bytes, bytes, Phase], ...] = (
        (shown, KEY, "walk"),
        (shown, bytes(16), "walk"),
        (shown, KEY, "int8"),
        (shown, KEY, "bf16"),
        (swapped, KEY, "walk"),
        (shown[:-1] + b"\0", KEY, "walk"),
    )
    roots = {
        commitments.root(commitments.group_hashes(what, 2, key, phase), key, phase)
        for what, key, phase in variants
    }
    assert len(roots) == 6


@pytest.mark.parametrize(("size", "group"), [(7, 1), (16, 0)])
def test_half_a_digest_or_no_group_is_refused(size: int, group: int) -> None:
    with pytest.raises(ValueError, match="digests in groups"):
        commitments.group_hashes(bytes(size), group, KEY, "walk")


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 7))
def test_slices_of_any_size_commit_to_the_same_as_all_at_once(slices: list[int], group: int) -> None:
    whole = digests(sum(slices))
    committer, at = Committer(group, KEY, "int8"), 0
    for count in slices:
        committer.feed(whole[at : at + DIGEST_BYTES * count])
        at += DIGEST_BYTES * count
    root = committer.finish()
    hashes = commitments.group_hashes(whole, group, KEY, "int8")
    assert committer.hashes == hashes
    assert root == commitments.root(hashes, KEY, "int8")
    groups = range(len(hashes) // GROUP_HASH_BYTES)
    assert committer.open(tuple(groups)) == whole
    for number in groups:
        opened = committer.open((number,))
        of_group = hashes[number * GROUP_HASH_BYTES : (number + 1) * GROUP_HASH_BYTES]
        assert commitments.group_hashes(opened, group, KEY, "int8") == of_group


def test_full_groups_are_hashed_as_they_come_and_a_short_one_only_at_the_end() -> None:
    committer = Committer(4, KEY, "bf16")
    committer.feed(digests(6))
    assert len(committer.hashes) == GROUP_HASH_BYTES
    committer.finish()
    assert len(committer.hashes) == 2 * GROUP_HASH_BYTES


@pytest.mark.parametrize("number", [-1, 2])
def test_a_group_that_was_not_committed_to_cannot_be_opened(number: int) -> None:
    committer = Committer(4, KEY, "walk")
    committer.feed(digests(8))
    committer.finish()
    with pytest.raises(ValueError, match="not among the 2"):
        committer.open((number,))
