"""A reach as a filter of queries: what is out of reach is not found."""

from uuid import UUID

from control_plane.domain.access import Reach


def within(alias: str, *, lease: str | None = "id") -> str:
    """SQL: a condition on a row with the columns project_id and environment_id.

    `lease` is its column of the lease; None when it belongs to no lease. Needs the parameters of `reach_values`.
    """
    of_lease = "" if lease is None else f" OR {alias}.{lease} = ANY(CAST(:leases AS uuid[]))"
    return f"""(CAST(:everywhere AS boolean) OR {alias}.project_id = ANY(CAST(:projects AS uuid[]))
       OR {alias}.environment_id = ANY(CAST(:environments AS uuid[])){of_lease})"""


def reach_values(reach: Reach) -> dict[str, bool | list[UUID]]:
    """The parameters of `within`."""
    return {
        "everywhere": reach.organization,
        "projects": list(reach.projects),
        "environments": list(reach.environments),
        "leases": list(reach.leases),
    }
