"""Ids and names of another tenant in bodies: what is made could refer to a row of theirs, or tell that it exists."""

from typing import Any

from tests.support.hostile_tenant.way import OWN, Call, Way, by_call

LEASE = {"sku": "{sku}", "ssh_key_ids": []}
_ANY_SCOPE = {"kind": "organization"}


def _way(
    name: str,
    path: str,
    body: dict[str, Any],
    code: str,
    *,
    why: str,
    event: str,
    control: dict[str, Any] | None = None,
) -> Way:
    own = Call("POST", path, control or body)
    return by_call(name, why, Call("POST", path, body), refused=code, event=event, control=own)


def _taken(name: str, path: str, body: dict[str, Any], control: dict[str, Any], *, why: str) -> Way:
    """What another tenant has taken is free here: a refusal would tell that they have it."""
    return by_call(
        name,
        why,
        Call("POST", path, body),
        refused=OWN,
        no_line="it is no refusal",
        control=Call("POST", path, control),
        makes=True,
    )


WAYS = (
    _way(
        "lease in a project, by its id",
        "/v1/leases",
        {**LEASE, "project": "{project}"},
        "project_unknown",
        why="the bill would be theirs",
        event="leases.create",
    ),
    _way(
        "lease in a project, by its name",
        "/v1/leases",
        {**LEASE, "project": "{project name}"},
        "project_unknown",
        why="names are unique within an organization only",
        event="leases.create",
    ),
    _way(
        "lease in an environment of theirs",
        "/v1/leases",
        {**LEASE, "environment": "{environment}"},
        "environment_unknown",
        why="the project is the attacker's, and the environment is looked up apart",
        event="leases.create",
        control={**LEASE, "project": "{project}", "environment": "{environment}"},
    ),
    _way(
        "lease with an SSH key of theirs",
        "/v1/leases",
        {"sku": "{sku}", "ssh_key_ids": ["{ssh key}"]},
        "ssh_key_unknown",
        why="ids of keys are a list in a column, which no foreign key checks",
        event="leases.create",
    ),
    _way(
        "give a role to a service account of theirs",
        "/v1/role-bindings",
        {"subject": "{account}", "role": "viewer", "scope": _ANY_SCOPE},
        "subject_unknown",
        why="a subject is two columns, one of which is empty",
        event="role_bindings.create",
    ),
    _way(
        "give a role to a user of theirs",
        "/v1/role-bindings",
        {"subject": "{user}", "role": "viewer", "scope": _ANY_SCOPE},
        "subject_unknown",
        why="the same person may be a user of both",
        event="role_bindings.create",
    ),
    _way(
        "take a role at a project of theirs",
        "/v1/role-bindings",
        {"subject": "{attackers user}", "role": "viewer", "scope": {"kind": "project", "id": "{project}"}},
        "project_unknown",
        why="the binding would belong to the attacker and point at their project",
        event="role_bindings.create",
    ),
    _way(
        "take a role at an environment of theirs",
        "/v1/role-bindings",
        {
            "subject": "{attackers user}",
            "role": "viewer",
            "scope": {"kind": "environment", "id": "{environment}"},
        },
        "environment_unknown",
        why="as above",
        event="role_bindings.create",
    ),
    _way(
        "take a role at a lease of theirs",
        "/v1/role-bindings",
        {"subject": "{attackers user}", "role": "viewer", "scope": {"kind": "lease", "id": "{lease}"}},
        "lease_unknown",
        why="as above",
        event="role_bindings.create",
    ),
    _way(
        "make an API key of a service account of theirs",
        "/v1/api-keys",
        {"name": "stolen", "subject": "{account}"},
        "subject_unknown",
        why="the answer would be a secret that acts as the other tenant",
        event="api_keys.create",
    ),
    _way(
        "make an API key for a project of theirs",
        "/v1/api-keys",
        {"name": "aimed", "projects": ["{project}"]},
        "project_unknown",
        why="what a key is limited to is what it reaches",
        event="api_keys.create",
    ),
    _way(
        "store an SSH key in a project of theirs",
        "/v1/ssh-keys",
        {"name": "back door", "public_key": "{fresh public key}", "project": "{project}"},
        "project_unknown",
        why="leases that name no keys admit all keys of their project",
        event="ssh_keys.create",
    ),
    _way(
        "ask for quota of a project of theirs",
        "/v1/quota-requests",
        {"limits": {"gpus": 3}, "reason": "more", "project": "{project}"},
        "not_found",
        why="whoever decides would see the attacker's words",
        event="quota_requests.create",
    ),
    _taken(
        "store an SSH key that they have",
        "/v1/ssh-keys",
        {"name": "{marker} copy", "public_key": "{public key}"},
        {"name": "{marker} new", "public_key": "{new public key}"},
        why="a fingerprint that is unique everywhere would tell whose key it is",
    ),
    _taken(
        "make a project with a name of theirs",
        "/v1/projects",
        {"name": "{project name}"},
        {"name": "{marker} another"},
        why="a name that is unique everywhere would tell that they have it",
    ),
    _taken(
        "make a service account with a name of theirs",
        "/v1/service-accounts",
        {"name": "{account name}"},
        {"name": "{marker} another"},
        why="as above",
    ),
    _taken(
        "invite a user of theirs",
        "/v1/users",
        {"email": "{email}", "name": "Somebody"},
        {"email": "{marker}another@example.com", "name": "Somebody"},
        why="an address that is unique everywhere would tell where its owner works",
    ),
)
