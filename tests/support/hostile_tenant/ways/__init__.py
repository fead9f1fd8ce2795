"""Ways to reach another tenant, a file for each means."""

from tests.support.hostile_tenant.way import Way
from tests.support.hostile_tenant.ways import (
    bodies,
    certificates,
    clusters,
    ids,
    networks,
    operators,
    places,
    queries,
    repeats,
    spellings,
    tokens,
)

WAYS: tuple[Way, ...] = (
    *ids.WAYS,
    *bodies.WAYS,
    *queries.WAYS,
    *networks.WAYS,
    *clusters.WAYS,
    *places.WAYS,
    *repeats.WAYS,
    *spellings.WAYS,
    *certificates.WAYS,
    *operators.WAYS,
    *tokens.WAYS,
)
