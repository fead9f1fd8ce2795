"""Commitments to many digests: a hash per group of them, and a root over the group hashes.

The root is 32 bytes and stops the clock; the group hashes follow, and the digests of a few groups are shown
on demand. Two levels are enough: a group is shown whole, so no paths through a tree are needed.

Standard library only, Python 3.10 and up: prover and verifier share this file.
"""

from hashlib import blake2b

from data_plane.proof.protocol.messages import DIGEST_BYTES, GROUP_HASH_BYTES, ROOT_BYTES, Phase


def group_hashes(digests: "bytes | bytearray | memoryview", group: int, key: bytes, phase: Phase) -> bytes:
    """The hashes of the groups in `digests`, GROUP_HASH_BYTES each; the last group may be short."""
    if group < 1 or len(digests) % DIGEST_BYTES:
        raise ValueError(f"{len(digests)} bytes of digests in groups of {group}")
    size = group * DIGEST_BYTES
    with memoryview(digests) as view:
        return b"".join(
            _hash(view[at : at + size], GROUP_HASH_BYTES, key, phase) for at in range(0, len(view), size)
        )


def root(hashes: bytes, key: bytes, phase: Phase) -> bytes:
    """The root over group hashes, ROOT_BYTES long."""
    return _hash(hashes, ROOT_BYTES, key, phase)


def _hash(data: "bytes | memoryview", size: int, key: bytes, phase: Phase) -> bytes:
    return blake2b(data, digest_size=size, key=key, person=phase.encode()).digest()


class Committer:
    """Commits to digests while they still come in, slice by slice, and opens groups of them later.

    Keeps every digest once: about 8 bytes for each, 250 MB for the largest card.
    """

    def __init__(self, group: int, key: bytes, phase: Phase) -> None:
        self._size = group * DIGEST_BYTES
        self._group = group
        self._key = key
        self._phase: Phase = phase
        self._digests = bytearray()
        self._hashed = 0
        self._hashes = bytearray()

    def feed(self, digests: bytes) -> None:
        """Take the next digests: any whole number of them, not only whole groups."""
        self._digests += digests
        whole = len(self._digests) - len(self._digests) % self._size
        self._hash_up_to(whole)

    def finish(self) -> bytes:
        """No more digests will come: the root."""
        self._hash_up_to(len(self._digests))
        return root(self.hashes, self._key, self._phase)

    def _hash_up_to(self, end: int) -> None:
        # A bytearray cannot grow while a view of it is alive: both views end here.
        with memoryview(self._digests) as view, view[self._hashed : end] as fresh:
            self._hashes += group_hashes(fresh, self._group, self._key, self._phase)
        self._hashed = end

    @property
    def hashes(self) -> bytes:
        """The group hashes so far."""
        return bytes(self._hashes)

    def open(self, groups: "tuple[int, ...]") -> bytes:
        """The digests of these groups, one after the other. Raises ValueError for a group that is not there."""
        there = len(self._hashes) // GROUP_HASH_BYTES
        if not all(0 <= number < there for number in groups):
            raise ValueError(f"a group that is not among the {there} committed to")
        with memoryview(self._digests) as view:
            return b"".join(view[number * self._size : (number + 1) * self._size] for number in groups)
