"""Samples of simulated machines on their way to the ingest process."""

import hashlib

from data_plane.heartbeats.relay_units import IngestPlace
from reconciler import simulated
from tests.support.ingest_server import IngestServer
from tests.support.samples import busy_delivery

CREDENTIAL = "5e" * 32


async def test_simulated_machines_deliver_to_the_ingest_process_and_do_without_it() -> None:
    server = IngestServer("127.0.0.1", known={hashlib.sha256(CREDENTIAL.encode()).hexdigest()})
    with server.listening():
        deliver = simulated.ingest(IngestPlace("127.0.0.1", server.port))
        assert deliver is not None
        await deliver(CREDENTIAL, busy_delivery())
        await deliver("0" * 64, busy_delivery())
    assert server.deliveries == [busy_delivery()]
    assert server.refused == ["not_known"]
    await deliver(CREDENTIAL, busy_delivery())
    assert len(server.deliveries) == 1
    assert simulated.ingest(None) is None
