"""Delivers samples to a store, so that the samples of one machine that it calls wrong cost no other one its history.

A store refuses a whole request because of one sample: Prometheus does, for one that is too old, or another one of its
moment. What is in a sample, and when it was read, is the word of a machine that its customer controls. So a request
that is called wrong is sent again in halves, until what is wrong is alone. What the store took is sent twice then,
which changes nothing there.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from control_plane.db.samples import NamedSample

Put = Callable[[Sequence[NamedSample]], Awaitable[int]]
"""Sends samples in one request. Returns the status; raises OSError when there is no answer."""
WRONG = 400
TOO_MANY_REQUESTS = 429
REQUESTS_MAX = 100
"""For the samples of one request that was called wrong; enough to find six machines among two hundred."""


class StoreBusyError(Exception):
    """The store cannot take samples now. The argument is its status."""


@dataclass(frozen=True, slots=True)
class Delivered:
    refused: int
    """How many samples the store does not want."""
    status: int
    """Of the answer that refused them; or of a success."""


async def deliver(samples: Sequence[NamedSample], put: Put) -> Delivered:
    """Send samples, and leave out those of machines that the store calls wrong. Raises StoreBusyError and OSError."""
    refused, worst, requests = 0, 204, 0
    waiting = [list(samples)]
    while waiting:
        some = waiting.pop()
        status = await put(some)
        requests += 1
        if status == TOO_MANY_REQUESTS or status >= 500:
            raise StoreBusyError(status)
        claims = sorted({sample.claim_id for sample in some})
        if status < 300:
            continue
        if status == WRONG and len(claims) > 1 and requests + len(waiting) + 2 <= REQUESTS_MAX:
            first = set(claims[: len(claims) // 2])
            waiting.append([sample for sample in some if sample.claim_id not in first])
            waiting.append([sample for sample in some if sample.claim_id in first])
            continue
        refused, worst = refused + len(some), status
    return Delivered(refused, worst)
