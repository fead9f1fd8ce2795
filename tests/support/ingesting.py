"""Stores what simulated machines sample, by the rules of the ingest process and in its role."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from control_plane.db import samples
from control_plane.db.engine import Database
from control_plane.db.samples import NewSample
from control_plane.domain.telemetry import taken
from data_plane.documents.sample import encode_sample, notable
from data_plane.documents.sample_delivery import Delivery, encode_delivery, read_delivery


@dataclass
class Ingesting:
    """`FakeCollector.ingest`."""

    db: Database
    """In the role of the ingest process."""
    now: Callable[[], datetime]
    refused: list[str] = field(default_factory=list[str])

    async def __call__(self, credential: str, delivery: Delivery) -> None:
        digest = hashlib.sha256(credential.encode()).hexdigest()
        async with self.db.transaction() as connection:
            found = await samples.senders(connection, [digest])
        if not found or found[0].ended:
            self.refused.append(digest)
            return
        sender = found[0]
        read = read_delivery(encode_delivery(delivery))
        new: list[NewSample] = []
        for sample in read.samples:
            time = taken(sample.at_ms, read.sent_at_ms, self.now())
            if time is not None:
                new.append(
                    NewSample(
                        organization_id=sender.organization_id,
                        project_id=sender.project_id,
                        claim_id=sender.claim_id,
                        lease_id=sender.lease_id,
                        machine_id=sender.machine_id,
                        sequence=sample.sequence,
                        at=time.at,
                        received_at=self.now(),
                        skew_ms=time.skew_ms,
                        notable=notable(sample),
                        document=encode_sample(sample).decode(),
                    )
                )
        async with self.db.transaction() as connection:
            await samples.insert(connection, new)
