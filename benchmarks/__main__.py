"""`make bench`: runs all benchmarks, or those that are named. Writes JSON to var/bench and prints a table."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable

from benchmarks import (
    agent_samples,
    api,
    authentication,
    cli,
    cluster_memory,
    enforcement,
    event_streams,
    export_diff,
    export_rows,
    firewalls,
    fleet,
    fleet_lists,
    ground,
    guessing,
    ledger,
    lifecycle,
    metering,
    month,
    month_close,
    node_join,
    overlay_rounds,
    peer_map,
    placements,
    pools,
    profile,
    proof_catch_rates,
    proof_verifier,
    provider_limits,
    quotes,
    rates,
    telemetry,
    traces,
)
from benchmarks.results import Figure, machine, publish

BENCHMARKS: dict[str, Callable[[], Awaitable[list[Figure]]]] = {
    "agent_samples": agent_samples.measure,
    "api": api.measure,
    "authentication": authentication.measure,
    "cli": cli.measure,
    "cluster_memory": cluster_memory.measure,
    "enforcement": enforcement.measure,
    "event_streams": event_streams.measure,
    "export_diff": export_diff.measure,
    "export_rows": export_rows.measure,
    "firewalls": firewalls.measure,
    "lifecycle": lifecycle.measure,
    "fleet": fleet.measure,
    "fleet_lists": fleet_lists.measure,
    "guessing": guessing.measure,
    "ledger": ledger.measure,
    "metering": metering.measure,
    "month": month.measure,
    "month_close": month_close.measure,
    "node_join": node_join.measure,
    "overlay_rounds": overlay_rounds.measure,
    "peer_map": peer_map.measure,
    "placements": placements.measure,
    "pools": pools.measure,
    "profile": profile.measure,
    "proof_verifier": proof_verifier.measure,
    "proof_catch_rates": proof_catch_rates.measure,
    "provider_limits": provider_limits.measure,
    "quotes": quotes.measure,
    "rates": rates.measure,
    "telemetry": telemetry.measure,
    "traces": traces.measure,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure, and print what is.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"any of {', '.join(BENCHMARKS)}; all when none"
    )
    names = parser.parse_args().names or list(BENCHMARKS)
    unknown = set(names) - BENCHMARKS.keys()
    if unknown:
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}")
    print(machine())
    try:
        for name in names:
            publish(name, asyncio.run(_run(BENCHMARKS[name])))
    finally:
        ground.stop()


async def _run(measure: Callable[[], Awaitable[list[Figure]]]) -> list[Figure]:
    return await measure()


if __name__ == "__main__":
    main()
