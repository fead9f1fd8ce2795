"""The permissions of each role.

Code asks for a permission and never for a role, so that a new role is one more set here.
"""

from collections.abc import Mapping
from functools import cache

from control_plane.domain.permission import NARROWEST, Permission
from control_plane.domain.role import Role
from control_plane.domain.scope import ScopeKind, is_within

_P = Permission

_OWN_KEYS = frozenset(
    {
        _P.API_KEYS_READ,
        _P.API_KEYS_CREATE,
        _P.API_KEYS_REVOKE,
        _P.SESSIONS_READ,
        _P.SESSIONS_REVOKE,
    }
)
_CATALOGUE = frozenset({_P.SKUS_READ, _P.OFFERS_READ, _P.CLUSTERS_READ})
VIEWER = (
    _CATALOGUE
    | _OWN_KEYS
    | {
        _P.PROJECTS_READ,
        _P.ENVIRONMENTS_READ,
        _P.NETWORKS_READ,
        _P.SSH_KEYS_READ,
        _P.QUOTES_READ,
        _P.LEASES_READ,
        _P.NODE_POOLS_READ,
        _P.SSH_CERTIFICATES_READ,
        _P.FIREWALL_RULES_READ,
        _P.KUBECONFIGS_READ,
        _P.PROOFS_READ,
        _P.TELEMETRY_READ,
        _P.ENVELOPES_READ,
        _P.QUOTA_REQUESTS_READ,
        _P.ADMISSION_DECISIONS_READ,
    }
)
MEMBER = VIEWER | {
    _P.ORGANIZATIONS_READ,
    _P.SSH_KEYS_CREATE,
    _P.SSH_KEYS_DELETE,
    _P.NETWORKS_CREATE,
    _P.NETWORKS_LABEL,
    _P.NETWORKS_DELETE,
    _P.QUOTES_CREATE,
    _P.LEASES_CREATE,
    _P.LEASES_RELEASE,
    _P.LEASES_LABEL,
    _P.LEASES_UPDATE,
    _P.LEASES_POWER,
    _P.NODE_POOLS_MANAGE,
    _P.SSH_CERTIFICATES_CREATE,
    _P.SSH_CERTIFICATES_REVOKE,
    _P.CONSOLES_READ,
    _P.FIREWALL_RULES_CREATE,
    _P.FIREWALL_RULES_DELETE,
    _P.KUBECONFIGS_CREATE,
    _P.KUBECONFIGS_REVOKE,
    _P.QUOTA_REQUESTS_CREATE,
    _P.BILLING_READ,
}
FINANCE = (
    _CATALOGUE
    | _OWN_KEYS
    | {
        _P.ORGANIZATIONS_READ,
        _P.PROJECTS_READ,
        _P.ENVIRONMENTS_READ,
        _P.ENVELOPES_READ,
        _P.QUOTA_REQUESTS_READ,
        _P.ADMISSION_DECISIONS_READ,
        _P.BILLING_READ,
        _P.BALANCE_ALERTS_SET,
        _P.EXPORTS_READ,
        _P.EXPORTS_CREATE,
        _P.INVOICES_READ,
    }
)
_PEOPLE = frozenset(
    {
        _P.USERS_READ,
        _P.USERS_INVITE,
        _P.USERS_SUSPEND,
        _P.USERS_REMOVE,
        _P.SERVICE_ACCOUNTS_READ,
        _P.SERVICE_ACCOUNTS_CREATE,
        _P.SERVICE_ACCOUNTS_SUSPEND,
        _P.SERVICE_ACCOUNTS_REMOVE,
        _P.ROLE_BINDINGS_READ,
        _P.ROLE_BINDINGS_CREATE,
        _P.ROLE_BINDINGS_DELETE,
        _P.API_KEYS_READ_ALL,
        _P.API_KEYS_MANAGE,
        _P.SESSIONS_READ_ALL,
        _P.SESSIONS_REVOKE_ALL,
    }
)
ADMIN = (
    MEMBER
    | FINANCE
    | _PEOPLE
    | {
        _P.PROJECTS_CREATE,
        _P.PROJECTS_RENAME,
        _P.ENVIRONMENTS_CREATE,
        _P.AUDIT_READ,
        _P.ENVELOPES_SET,
        _P.QUOTA_REQUESTS_DECIDE,
    }
)
OWNER = ADMIN | {_P.OWNERS_APPOINT}
_READS_OF_PLATFORM = frozenset(
    {
        _P.ORGANIZATIONS_READ_ALL,
        _P.COSTS_READ,
        _P.INVOICES_READ_ALL,
        _P.LEDGER_READ,
        _P.PERIODS_READ,
        _P.RECONCILIATIONS_READ,
        _P.MARGINS_READ,
        _P.PRICE_AGREEMENTS_READ,
        _P.PROOF_RECORDS_READ,
        _P.TELEMETRY_READ_ALL,
        _P.LOOPS_READ,
        _P.AGENTS_READ,
        _P.ORPHANS_READ,
        _P.FLEET_READ,
        _P.PROVIDER_ACCOUNTS_READ,
        _P.NODES_READ_ALL,
        _P.SERVER_HOSTS_READ,
        _P.POOLS_READ,
        _P.AUDIT_READ_ALL,
        _P.EXPORTS_READ_ALL,
    }
)
AUDITOR = frozenset(
    {
        *_READS_OF_PLATFORM,
        *_CATALOGUE,
        _P.ORGANIZATIONS_READ,
        _P.USERS_READ,
        _P.SERVICE_ACCOUNTS_READ,
        _P.ROLE_BINDINGS_READ,
        _P.API_KEYS_READ,
        _P.API_KEYS_READ_ALL,
        _P.SESSIONS_READ,
        _P.SESSIONS_READ_ALL,
        _P.SSH_KEYS_READ,
        _P.PROJECTS_READ,
        _P.ENVIRONMENTS_READ,
        _P.NETWORKS_READ,
        _P.LEASES_READ,
        _P.NODE_POOLS_READ,
        _P.SSH_CERTIFICATES_READ,
        _P.FIREWALL_RULES_READ,
        _P.KUBECONFIGS_READ,
        _P.PROOFS_READ,
        _P.TELEMETRY_READ,
        _P.ENVELOPES_READ,
        _P.QUOTA_REQUESTS_READ,
        _P.ADMISSION_DECISIONS_READ,
        _P.BILLING_READ,
        _P.EXPORTS_READ,
        _P.INVOICES_READ,
        _P.AUDIT_READ,
    }
)
OPERATOR = (
    AUDITOR
    | _PEOPLE
    | _OWN_KEYS
    | {
        _P.ORGANIZATIONS_CREATE,
        _P.ORGANIZATIONS_SUSPEND,
        _P.ORGANIZATIONS_RESUME,
        _P.ORGANIZATIONS_CLOSE,
        _P.ORGANIZATIONS_DELETE,
        _P.ORPHANS_DECIDE,
        _P.LEASES_END,
        _P.MACHINES_MAINTAIN,
        _P.PREEMPTIONS_SWITCH,
        _P.ENFORCEMENT_MANAGE,
        _P.PROVIDER_ACCOUNTS_MANAGE,
        _P.TERMINATIONS_PERMIT,
        _P.CLUSTERS_MANAGE,
        _P.NODES_ROTATE_KEYS,
        _P.SERVER_HOSTS_MANAGE,
        _P.POOLS_MANAGE,
        _P.QUOTES_CREATE,
        _P.QUOTES_READ,
        _P.ENVELOPES_SET_CEILING,
        _P.QUOTA_REQUESTS_DECIDE_CEILING,
    }
)
PLATFORM_FINANCE = (
    FINANCE
    | _PEOPLE
    | {
        _P.ORGANIZATIONS_READ_ALL,
        _P.COSTS_READ,
        _P.EXPORTS_READ_ALL,
        _P.EXPORTS_CREATE_ALL,
        _P.INVOICES_READ_ALL,
        _P.INVOICES_ISSUE,
        _P.BILLING_DETAILS_SET,
        _P.LEDGER_READ,
        _P.LEDGER_POST,
        _P.PERIODS_READ,
        _P.PERIODS_CLOSE,
        _P.PERIODS_REOPEN,
        _P.RECONCILIATIONS_READ,
        _P.RECONCILIATIONS_CREATE,
        _P.MARGINS_READ,
        _P.SUPPLIER_INVOICES_IMPORT,
        _P.CREDIT_TERMS_SET,
        _P.PRICE_AGREEMENTS_READ,
        _P.PRICE_AGREEMENTS_MAKE,
    }
)

IN_ORGANIZATIONS: Mapping[Role, frozenset[Permission]] = {
    Role.OWNER: OWNER,
    Role.ADMIN: ADMIN,
    Role.MEMBER: MEMBER,
    Role.VIEWER: VIEWER,
    Role.FINANCE: FINANCE,
}
"""The roles of customers, which are bound to an organization, a project, an environment or a lease."""
AT_PLATFORM: Mapping[Role, frozenset[Permission]] = {
    Role.OPERATOR: OPERATOR,
    Role.FINANCE: PLATFORM_FINANCE,
    Role.AUDITOR: AUDITOR,
}
"""The roles of those who run the installation. A subject has one of them at most."""


def roles_at(kind: ScopeKind) -> Mapping[Role, frozenset[Permission]]:
    """The roles that can be bound at a scope of this kind, with all their permissions."""
    return AT_PLATFORM if kind is ScopeKind.PLATFORM else IN_ORGANIZATIONS


@cache  # A few dozen pairs, and every request asks for several of them.
def permissions_of(role: Role, kind: ScopeKind) -> frozenset[Permission]:
    """What a role gives at a scope of this kind: nothing when it cannot be bound there."""
    held = roles_at(kind).get(role, frozenset())
    return frozenset(permission for permission in held if is_within(NARROWEST[permission], kind))
