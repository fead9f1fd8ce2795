"""Many cases in one test: the test sets up once, and the message of a failure names the case."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def case(*what: object) -> Iterator[None]:
    """Name the case of a loop in the message of a failure."""
    try:
        yield
    except BaseException as error:
        error.add_note("in the case: " + ", ".join(map(str, what)))
        raise


def check_every(cases: Iterable[T], check: Callable[[T], None]) -> None:
    """Check every case, and fail with all that failed, each by its name."""
    failures = []
    for one in cases:
        try:
            with case(one):
                check(one)
        except AssertionError as error:
            failures.append(error)
    if failures:
        raise ExceptionGroup(f"{len(failures)} cases failed", failures)
