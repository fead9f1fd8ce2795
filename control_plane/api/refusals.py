"""Lines of the audit log for requests that were refused, or failed, written apart from the requests.

A refusal rolls its transaction back, and must not wait for a line. So the lines are collected here and stored every
second. A flood of refusals must not fill the disk either: an organization has `LINES_AT_ONCE` lines, and then
`LINES_PER_MINUTE`; beyond that its refusals are counted, and once a minute the counts are one line.
"""

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from control_plane.domain.audit import Act, AuditLine, AuditOutcome, summarized
from control_plane.domain.ids import OrganizationId
from control_plane.services import audit, health
from control_plane.services.audit import RefusedSecret
from control_plane.world import World

FLUSH_SECONDS = 1.0
LINES_AT_ONCE = 60
LINES_PER_MINUTE = 6
SUMMARY_EVERY = timedelta(minutes=1)
WAITING_MAX = 5_000
"""Lines that wait to be stored. Beyond that, while the database is away, refusals are counted."""
ORGANIZATIONS_MAX = 10_000
SECRETS_MAX = 200
"""Refused keys of which one flush finds out whose they were; each is noted once per flush."""


@dataclass
class _Tally:
    """What one organization may still have of lines, and what it was refused beyond that."""

    left: float
    at: datetime
    beyond: Counter[str] = field(default_factory=Counter[str])
    since: datetime | None = None

    def take(self, now: datetime) -> bool:
        minutes = max(0.0, (now - self.at).total_seconds() / 60)
        self.left, self.at = min(LINES_AT_ONCE, self.left + minutes * LINES_PER_MINUTE), now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class Refusals:
    """Collects them, and stores them when `flush` is called."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._tallies: dict[OrganizationId | None, _Tally] = {}
        self._lines: list[AuditLine] = []
        self._secrets: dict[bytes, RefusedSecret] = {}
        self.uncounted = 0
        """Refusals that nobody counted, because too many organizations or keys were refused at once."""

    def note(self, act: Act, code: str, outcome: AuditOutcome = AuditOutcome.REFUSED) -> None:
        """A request of an organization was refused, or failed, or a sign-in of nobody that is known yet."""
        now, organization_id = self._world.now(), act.organization_id
        tally = self._tally(organization_id, now)
        if tally is None:
            self.uncounted += 1
        elif len(self._lines) < WAITING_MAX and tally.take(now):
            self._lines.append(act.line(self._world.new_id(), now, outcome, code=code))
        else:
            tally.beyond[code] += 1
            tally.since = tally.since or now

    def note_secret(self, refused: RefusedSecret) -> None:
        """A request with a key that opens nothing. Whether it was anybody's is found out at the next flush."""
        if len(self._secrets) < SECRETS_MAX or refused.digest in self._secrets:
            self._secrets[refused.digest] = refused
        else:
            self.uncounted += 1

    def _tally(self, organization_id: OrganizationId | None, now: datetime) -> _Tally | None:
        found = self._tallies.get(organization_id)
        if found is None and len(self._tallies) >= ORGANIZATIONS_MAX:
            self._tallies = {key: tally for key, tally in self._tallies.items() if tally.beyond}
        if found is None and len(self._tallies) < ORGANIZATIONS_MAX:
            found = self._tallies[organization_id] = _Tally(LINES_AT_ONCE, now)
        return found

    async def flush(self) -> None:
        """Store what was collected. What the database does not take is kept for the next time.

        A line may be stored twice, when the answer of the database was lost. It gets one place in its chain.
        """
        secrets = list(self._secrets.values())
        acts = await audit.acts_of_refused_keys(self._world, secrets)
        self._secrets = {digest: secret for digest, secret in self._secrets.items() if secret not in secrets}
        for act in acts:
            self.note(act, "unauthenticated")
        self._lines += self._summaries()
        by_organization: dict[OrganizationId | None, list[AuditLine]] = defaultdict(list)
        for line in self._lines:
            by_organization[line.organization_id].append(line)
        for organization_id, lines in by_organization.items():
            await audit.store(self._world, organization_id, lines)
            stored = {line.id for line in lines}
            self._lines = [line for line in self._lines if line.id not in stored]

    def _summaries(self) -> list[AuditLine]:
        """The lines of what was only counted, of organizations whose minute is over."""
        now, made = self._world.now(), list[AuditLine]()
        for organization_id, tally in self._tallies.items():
            if len(self._lines) + len(made) >= WAITING_MAX:
                break  # The counts stay where they are.
            if tally.since is not None and now - tally.since >= SUMMARY_EVERY:
                made.append(summarized(organization_id, tally.beyond, self._world.new_id(), now))
                tally.beyond, tally.since = Counter(), None
        return made

    async def keep(self) -> None:
        """Flush every second until cancelled, and once more then."""
        try:
            while True:
                await asyncio.sleep(FLUSH_SECONDS)
                await self._flushed()
        finally:
            await self._flushed()

    async def _flushed(self) -> None:
        try:
            await self.flush()
        except Exception as error:
            if not health.is_database_trouble(error):
                raise
