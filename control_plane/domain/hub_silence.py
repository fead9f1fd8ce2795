"""When a hub that does not answer is asked again: it is one host, so nobody asks it in vain beside the others."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from control_plane.domain.backoff import delay

RETRY_FIRST, RETRY_CEILING = timedelta(seconds=5), timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class HubSilence:
    """A hub that has not answered for a while."""

    since: datetime
    tries: int
    """How often it was asked in vain, one after the other."""
    tried_at: datetime
    """When the last of these tries ended."""
    why: str
    """What the first of them ran into."""

    def asked_again_at(self) -> datetime:
        return self.tried_at + delay(self.tries, first=RETRY_FIRST, ceiling=RETRY_CEILING)

    def __str__(self) -> str:
        # The same words for the whole silence, so that a log does not repeat them.
        return (
            f"the hub has not answered since {self.since:%Y-%m-%d %H:%M:%S} UTC, and is asked again"
            f" within a minute: {self.why}"
        )


def failed(silence: HubSilence | None, why: str, now: datetime) -> HubSilence:
    """The silence of a hub that was asked in vain, or in vain once more."""
    if silence is None:
        return HubSilence(now, 1, now, why)
    return HubSilence(silence.since, silence.tries + 1, now, silence.why)
