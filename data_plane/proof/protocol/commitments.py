"""Commitments to many digests: one hash for each group of digests, and a root over all group hashes.

The root has 32 bytes, and its arrival stops the clock. The group hashes follow, and the digests of a few groups are
opened on demand. Two levels are enough, because a group is always opened as a whole.

Standard library only, Python 3.10 and up: prover and verifier share this file.
"""

from hashlib import blake2b

from data_plane.proof.protocol.messages import DIGEST_BYTES, GROUP_HASH_BYTES, ROOT_BYTES, Phase


def group_hashes(digests: "bytes | bytearray | memoryview", group: int, key: bytes, phase: Phase) -> bytes:
    """The hashes of the groups in `digests`, GROUP_HASH_BYTES each. The last group may be smaller than the others."""
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
    """Commits to digests while they are computed, slice by slice, and opens groups of them later.

    It stores every digest once: 8 bytes each, which is 250 MB for the largest card.
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
        """Add digests. They need not fill whole groups."""
        self._digests += digests
        whole = len(self._digests) - len(self._digests) % self._size
        self._hash_up_to(whole)

    def finish(self) -> bytes:
        """End the commitment and return its root."""
        self._hash_up_to(len(self._digests))
        return root(self.hashes, self._key, self._phase)

    def _hash_up_to(self, end: int) -> None:
        # A bytearray cannot grow while a view of it exists, so both views are released here.
        with memoryview(self._digests) as view, view[self._hashed : end] as fresh:
            self._hashes += group_hashes(fresh, self._group, self._key, self._phase)
        self._hashed = end

    @property
    def hashes(self) -> bytes:
        """The group hashes so far."""
        return bytes(self._hashes)

    def open(self, groups: "tuple[int, ...]") -> bytes:
        """The digests of these groups, one after the other. Raises ValueError for a group that does not exist."""
        there = len(self._hashes) // GROUP_HASH_BYTES
        if not all(0 <= number < there for number in groups):
            raise ValueError(f"a group that is not among the {there} committed groups")
        with memoryview(self._digests) as view:
            return b"".join(view[number * self._size : (number + 1) * self._size] for number in groups)
