"""Work with a limit of time."""

import threading
from collections.abc import Iterator

import pytest

from data_plane.agent.guard import Hangs, guarded


def test_guarded_work_gives_what_it_yields_and_then_raises_what_it_raises() -> None:
    def work() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("three")

    messages = guarded(work, 5)
    assert [next(messages), next(messages)] == [1, 2]
    with pytest.raises(ValueError, match="three"):
        next(messages)


def test_work_that_nobody_waits_for_does_not_pile_up() -> None:
    made = []

    def work() -> Iterator[int]:
        for n in range(1_000):
            made.append(n)
            yield n

    messages = guarded(work, 5)
    assert [next(messages), next(messages)] == [0, 1]
    assert len(made) < 10
    assert list(messages)[-1] == 999


def test_hanging_work_is_distinguished_from_work_that_ended() -> None:
    for_good = threading.Event()

    def work() -> Iterator[int]:
        yield 1
        for_good.wait(20)

    messages = guarded(work, 0.05)
    assert next(messages) == 1
    with pytest.raises(Hangs):
        next(messages)
    for_good.set()
