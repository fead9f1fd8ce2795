"""Ids and names of another tenant in queries: a filter could be all that a list looks at."""

from tests.support.hostile_tenant.way import OWN, Call, Way, by_call


def _project(path: str, event: str, *, named: bool = False) -> Way:
    what = "{project name}" if named else "{project}"
    return by_call(
        f"{path} of a project{', by its name' if named else ''}",
        "the filter is resolved to an id before the list is read",
        Call("GET", path, query={"project": what}),
        refused="project_unknown",
        event=event,
    )


def _filter(path: str, name: str, value: str, *, echoes: bool = False) -> Way:
    return by_call(
        f"{path} by {name}={value.replace('{', '').replace('}', '')}",
        "the filter alone would find rows of theirs",
        Call("GET", path, query={name: value}),
        refused=OWN,
        no_line="it is no refusal",
        compared=not echoes,
        echoes=echoes,
    )


def _unknown(path: str, name: str, value: str, *, why: str) -> Way:
    return by_call(
        f"{path} with {name}",
        why,
        Call("GET", path, query={name: value}),
        refused="unknown_parameter",
        no_line="a request that cannot be understood",
        control=Call("GET", path),
    )


WAYS = (
    _project("/v1/leases", "leases.read"),
    _project("/v1/leases", "leases.read", named=True),
    _project("/v1/usage", "billing.read"),
    _project("/v1/usage.csv", "billing.read"),
    _project("/v1/bill", "billing.read"),
    _filter("/v1/leases", "label", "{marker}={marker}"),
    _filter("/v1/role-bindings", "subject", "{account}"),
    _filter("/v1/admission-decisions", "lease", "{lease}"),
    _filter("/v1/audit-events", "target", "{lease}", echoes=True),
    _filter("/v1/audit-events", "subject", "{account}"),
    _unknown(
        "/v1/audit-events/export",
        "chain",
        "{organization}",
        why="operators name a chain, by the same service, and so does the export to a bucket",
    ),
    _unknown("/v1/leases", "organization", "{organization}", why="a parameter that the handlers never see"),
)
