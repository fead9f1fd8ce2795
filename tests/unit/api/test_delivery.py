"""A large answer is sent in parts, and a client that does not read them is given up."""

import asyncio
from typing import Any

import pytest

from control_plane.api import delivery
from control_plane.api.delivery import PART_BYTES, Delivery, NotReadError


async def test_every_byte_arrives_once_and_the_last_part_ends_the_answer() -> None:
    for pieces in ([0], [1], [PART_BYTES], [PART_BYTES + 1], [3 * PART_BYTES], [1, 0, 2 * PART_BYTES + 5, 0]):
        sent: list[Any] = []
        sizes: list[int] = []

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message)

        whole = b"".join(bytes([number + 1]) * size for number, size in enumerate(pieces))
        delivered, given = Delivery(send, sizes.append), 0
        for number, size in enumerate(pieces):
            body, given = whole[given : given + size], given + size
            more = number < len(pieces) - 1
            await delivered.body({"type": "http.response.body", "body": body, "more_body": more})
        assert b"".join(message["body"] for message in sent) == whole
        assert [message["more_body"] for message in sent] == [True] * (len(sent) - 1) + [False]
        assert sizes == [len(message["body"]) for message in sent]
        assert max(sizes) <= PART_BYTES


async def test_a_client_that_does_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "READ_SECONDS", 0.01)
    parts = 0

    async def send(_: Any) -> None:
        nonlocal parts
        parts += 1
        if parts == 2:
            await asyncio.Event().wait()

    unread = Delivery(send, lambda _: None)
    with pytest.raises(NotReadError):
        await unread.body({"type": "http.response.body", "body": b"x" * 4 * PART_BYTES, "more_body": False})
    assert unread.given_up
    assert parts == 2, "the rest stays with us, and goes with the request"
