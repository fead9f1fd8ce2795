"""The one list of permissions, named by noun and action, and the narrowest scope at which a role may give each.

Code asks for a permission and never for a role. The permissions of each role are in `domain/role_permissions.py`, and
how roles become what somebody may do in `domain/access.py`.
"""

from collections.abc import Mapping
from enum import StrEnum

from control_plane.domain.scope import ScopeKind


class Permission(StrEnum):
    ME_READ = "me.read"
    """Read who one is and what one may do. Everybody has it."""
    ORGANIZATIONS_READ = "organizations.read"
    """Read the caller's own organization: its balance, holds and quota."""
    ORGANIZATIONS_CREATE = "organizations.create"
    """Create organizations, each with a service account that is its owner, and that account's first API key."""
    ORGANIZATIONS_READ_ALL = "organizations.read_all"
    """Read every organization: its balance, holds and quota, and whether its charges are posted."""
    ORGANIZATIONS_SUSPEND = "organizations.suspend"
    """Suspend organizations, and end their leases with it."""
    ORGANIZATIONS_RESUME = "organizations.resume"
    """End the suspension of organizations."""
    ORGANIZATIONS_CLOSE = "organizations.close"
    """Close organizations for good: their API keys are refused and their leases end."""
    ORGANIZATIONS_DELETE = "organizations.delete"
    """Erase the personal data of closed organizations."""
    OWNERS_APPOINT = "owners.appoint"
    """Grant and end the role of an owner, and act on owners: nobody acts on somebody who may do more."""
    USERS_READ = "users.read"
    USERS_INVITE = "users.invite"
    USERS_SUSPEND = "users.suspend"
    """Suspend and resume users."""
    USERS_REMOVE = "users.remove"
    SERVICE_ACCOUNTS_READ = "service_accounts.read"
    SERVICE_ACCOUNTS_CREATE = "service_accounts.create"
    SERVICE_ACCOUNTS_SUSPEND = "service_accounts.suspend"
    """Suspend and resume service accounts."""
    SERVICE_ACCOUNTS_REMOVE = "service_accounts.remove"
    ROLE_BINDINGS_READ = "role_bindings.read"
    ROLE_BINDINGS_CREATE = "role_bindings.create"
    """Grant roles to others, with no more than one's own permissions."""
    ROLE_BINDINGS_DELETE = "role_bindings.delete"
    """End roles of others that include no more than one's own permissions."""
    API_KEYS_READ = "api_keys.read"
    """Read one's own API keys."""
    API_KEYS_CREATE = "api_keys.create"
    """Create and rotate one's own API keys."""
    API_KEYS_REVOKE = "api_keys.revoke"
    """Revoke one's own API keys."""
    API_KEYS_READ_ALL = "api_keys.read_all"
    """Read the API keys of every user and service account of the organization."""
    API_KEYS_MANAGE = "api_keys.manage"
    """Create, rotate and revoke the API keys of others who may do no more."""
    SESSIONS_READ = "sessions.read"
    """Read one's own sessions."""
    SESSIONS_REVOKE = "sessions.revoke"
    """End one's own sessions."""
    SESSIONS_READ_ALL = "sessions.read_all"
    """Read the sessions of every user of the organization."""
    SESSIONS_REVOKE_ALL = "sessions.revoke_all"
    """End the sessions of every user of the organization."""
    SSH_KEYS_READ = "ssh_keys.read"
    SSH_KEYS_CREATE = "ssh_keys.create"
    SSH_KEYS_DELETE = "ssh_keys.delete"
    SSH_CERTIFICATES_READ = "ssh_certificates.read"
    """Read the SSH certificates of leases: who could log in, and when."""
    SSH_CERTIFICATES_CREATE = "ssh_certificates.create"
    """Log in to the machines of leases, with certificates that are signed for one's SSH keys."""
    SSH_CERTIFICATES_REVOKE = "ssh_certificates.revoke"
    """Revoke SSH certificates of leases, one's own and those of others."""
    CONSOLES_READ = "consoles.read"
    """Read what the machines of leases print on their consoles, and their journals."""
    FIREWALL_RULES_READ = "firewall_rules.read"
    """Read which ports of the machines of leases are open to whom."""
    FIREWALL_RULES_CREATE = "firewall_rules.create"
    """Open ports of the machines of leases."""
    FIREWALL_RULES_DELETE = "firewall_rules.delete"
    """Close ports of the machines of leases that were opened."""
    PROJECTS_READ = "projects.read"
    PROJECTS_CREATE = "projects.create"
    """Create projects in the caller's own organization."""
    PROJECTS_RENAME = "projects.rename"
    ENVIRONMENTS_READ = "environments.read"
    ENVIRONMENTS_CREATE = "environments.create"
    NETWORKS_READ = "networks.read"
    """Read the private networks of projects, and which leases are in them."""
    NETWORKS_CREATE = "networks.create"
    NETWORKS_LABEL = "networks.label"
    """Replace the labels of a network."""
    NETWORKS_DELETE = "networks.delete"
    """Delete networks that no lease uses."""
    CLUSTERS_READ = "clusters.read"
    """Read the Kubernetes clusters that the organization may use."""
    CLUSTERS_MANAGE = "clusters.manage"
    """Create and delete clusters, for everybody or for one organization."""
    KUBECONFIGS_READ = "kubeconfigs.read"
    """Read the kubeconfigs of projects: who can use them, and until when."""
    KUBECONFIGS_CREATE = "kubeconfigs.create"
    """Create and rotate kubeconfigs of projects, which open their namespaces in clusters."""
    KUBECONFIGS_REVOKE = "kubeconfigs.revoke"
    """Revoke kubeconfigs of projects, one's own and those of others."""
    NODE_POOLS_READ = "node_pools.read"
    """Read node pools and their nodes."""
    NODE_POOLS_MANAGE = "node_pools.manage"
    """Create, scale and delete node pools, whose nodes are leases."""
    NODES_READ_ALL = "nodes.read_all"
    """Read the nodes and the node pools of every organization, with the evidence of their steps."""
    NODES_ROTATE_KEYS = "nodes.rotate_keys"
    """Change the WireGuard keys of nodes and of the servers of clusters at once."""
    SERVER_HOSTS_READ = "server_hosts.read"
    """Read the hosts that servers of clusters run on."""
    SERVER_HOSTS_MANAGE = "server_hosts.manage"
    """Add and remove hosts for the servers of clusters."""
    POOLS_READ = "pools.read"
    """Read warm pools, their figures and what was decided about them, and compare policies over a trace."""
    POOLS_MANAGE = "pools.manage"
    """Create, change and delete warm pools, which buy machines ahead of demand."""
    SKUS_READ = "skus.read"
    OFFERS_READ = "offers.read"
    COSTS_READ = "costs.read"
    """See what we pay our providers, in offers, quotes and placements."""
    QUOTES_CREATE = "quotes.create"
    QUOTES_READ = "quotes.read"
    """Read quotes whose price was kept."""
    LEASES_READ = "leases.read"
    """Read leases, their journals, events and explanations."""
    LEASES_CREATE = "leases.create"
    LEASES_RELEASE = "leases.release"
    LEASES_LABEL = "leases.label"
    """Replace the labels of a lease."""
    LEASES_UPDATE = "leases.update"
    """Change when a lease is released, and what a lease that waits for a machine asks for."""
    LEASES_POWER = "leases.power"
    """Reboot, stop and start the machines of leases."""
    LEASES_END = "leases.end"
    """End single leases of any organization, for a reason that their customers read."""
    ENVELOPES_READ = "envelopes.read"
    """Read envelopes, and what is used of them."""
    ENVELOPES_SET = "envelopes.set"
    """Set envelopes of the own organization, its projects and environments, within the ceiling."""
    ENVELOPES_SET_CEILING = "envelopes.set_ceiling"
    """Set the ceiling of any organization."""
    QUOTA_REQUESTS_READ = "quota_requests.read"
    QUOTA_REQUESTS_CREATE = "quota_requests.create"
    """Ask for higher limits, and withdraw what one asked for."""
    QUOTA_REQUESTS_DECIDE = "quota_requests.decide"
    """Approve and decline what others of the organization asked for within its ceiling."""
    QUOTA_REQUESTS_DECIDE_CEILING = "quota_requests.decide_ceiling"
    """Approve and decline requests of organizations for higher ceilings."""
    ADMISSION_DECISIONS_READ = "admission_decisions.read"
    """Read the decisions of admission, with every rule that spoke."""
    TELEMETRY_READ = "telemetry.read"
    """Read what the machines of leases measure, and how they are. Prometheus needs no other permission."""
    TELEMETRY_READ_ALL = "telemetry.read_all"
    """Read what the machines of every organization measure."""
    PROOFS_READ = "proofs.read"
    """Read the GPU proofs of leases, with their evidence."""
    PROOF_RECORDS_READ = "proof_records.read"
    """Read how the machines of every provider account answered, without the names of customers."""
    BILLING_READ = "billing.read"
    """Read usage, the bill, and the organization's reconciliation."""
    BALANCE_ALERTS_SET = "balance_alerts.set"
    """Set what the organization is warned of: a low balance, and shares of a monthly budget."""
    EXPORTS_READ = "exports.read"
    """Read the exports of the organization's charges, and fetch their files."""
    EXPORTS_CREATE = "exports.create"
    """Export the charges of the organization."""
    EXPORTS_READ_ALL = "exports.read_all"
    """Read the exports of every organization's charges, and fetch their files."""
    EXPORTS_CREATE_ALL = "exports.create_all"
    """Export the charges of every organization."""
    INVOICES_READ = "invoices.read"
    """Read the organization's invoices and credit notes."""
    INVOICES_READ_ALL = "invoices.read_all"
    """Read the invoices and credit notes of every organization, and their billing details."""
    INVOICES_ISSUE = "invoices.issue"
    """Compute and issue the invoices of a closed month, and credit notes that correct them."""
    BILLING_DETAILS_SET = "billing_details.set"
    """Set who is invoiced for an organization, and at which rate of tax."""
    LEDGER_READ = "ledger.read"
    """Read the balances and entries of the ledger's accounts, of all customers."""
    LEDGER_POST = "ledger.post"
    """Post top-ups, refunds, credits and payments of any organization, each with a reason, and suppliers' invoices."""
    PERIODS_READ = "periods.read"
    """Read the accounting periods: which are closed, and what is missing from the others."""
    PERIODS_CLOSE = "periods.close"
    """Close accounting periods."""
    PERIODS_REOPEN = "periods.reopen"
    """Ask for a closed period to be reopened, and agree to what somebody else asked for."""
    RECONCILIATIONS_READ = "reconciliations.read"
    """Read the reconciliations of periods, what all organizations used, and what their charges follow from."""
    RECONCILIATIONS_CREATE = "reconciliations.create"
    """Ask for a period to be reconciled over all organizations."""
    MARGINS_READ = "margins.read"
    """Read what suppliers invoice us, how that matches our records, and the margins of every month."""
    SUPPLIER_INVOICES_IMPORT = "supplier_invoices.import"
    """Import what suppliers invoice us."""
    CREDIT_TERMS_SET = "credit_terms.set"
    """Decide how far customers may use capacity before they pay."""
    PRICE_AGREEMENTS_READ = "price_agreements.read"
    """Read the prices that were agreed on with every customer."""
    PRICE_AGREEMENTS_MAKE = "price_agreements.make"
    """Agree on prices with customers, and end what was agreed on."""
    LOOPS_READ = "loops.read"
    AGENTS_READ = "agents.read"
    """Read what the agents on machines reported last."""
    ORPHANS_READ = "orphans.read"
    ORPHANS_DECIDE = "orphans.decide"
    """Decide that single orphans are terminated whatever holds them back, left alone, or adopted by their records, and
    that what launches left is deleted."""
    MACHINES_MAINTAIN = "machines.maintain"
    """Take machines out for maintenance, and give them back."""
    PREEMPTIONS_SWITCH = "preemptions.switch"
    """Say whether machines of interruptible leases are taken back for leases whose readiness is promised."""
    ENFORCEMENT_MANAGE = "enforcement.manage"
    """Let detectors act on leases that run, or only decide, and undo what they did."""
    FLEET_READ = "fleet.read"
    """Read every machine of all customers, with whoever holds it, and what costs money for nobody."""
    PROVIDER_ACCOUNTS_READ = "provider_accounts.read"
    """Read the state of our provider accounts: their lists, freezes, failures and permits."""
    PROVIDER_ACCOUNTS_MANAGE = "provider_accounts.manage"
    """Add, test, rotate, drain and remove provider accounts. Nobody can read their credentials."""
    TERMINATIONS_PERMIT = "terminations.permit"
    """Permit, for a limited time, the termination of all machines of an account that fail their GPU proof."""
    AUDIT_READ = "audit.read"
    """Read the audit log of the organization."""
    AUDIT_READ_ALL = "audit.read_all"
    """Read the audit log of every organization, and of the platform."""


_P = Permission

EVERYBODYS = frozenset({_P.ME_READ})
"""What every valid credential allows, whatever its roles and limits."""

_OF_PLATFORM = frozenset(
    {
        _P.ORGANIZATIONS_CREATE,
        _P.ORGANIZATIONS_READ_ALL,
        _P.ORGANIZATIONS_SUSPEND,
        _P.ORGANIZATIONS_RESUME,
        _P.ORGANIZATIONS_CLOSE,
        _P.ORGANIZATIONS_DELETE,
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
        _P.ENVELOPES_SET_CEILING,
        _P.QUOTA_REQUESTS_DECIDE_CEILING,
        _P.COSTS_READ,
        _P.EXPORTS_READ_ALL,
        _P.EXPORTS_CREATE_ALL,
        _P.PROOF_RECORDS_READ,
        _P.TELEMETRY_READ_ALL,
        _P.LOOPS_READ,
        _P.AGENTS_READ,
        _P.ORPHANS_READ,
        _P.ORPHANS_DECIDE,
        _P.LEASES_END,
        _P.FLEET_READ,
        _P.MACHINES_MAINTAIN,
        _P.PREEMPTIONS_SWITCH,
        _P.ENFORCEMENT_MANAGE,
        _P.PROVIDER_ACCOUNTS_READ,
        _P.PROVIDER_ACCOUNTS_MANAGE,
        _P.TERMINATIONS_PERMIT,
        _P.CLUSTERS_MANAGE,
        _P.NODES_READ_ALL,
        _P.NODES_ROTATE_KEYS,
        _P.SERVER_HOSTS_READ,
        _P.SERVER_HOSTS_MANAGE,
        _P.POOLS_READ,
        _P.POOLS_MANAGE,
        _P.AUDIT_READ_ALL,
    }
)
_OF_ORGANIZATION = frozenset(
    {
        _P.ORGANIZATIONS_READ,
        _P.OWNERS_APPOINT,
        _P.USERS_READ,
        _P.USERS_INVITE,
        _P.USERS_SUSPEND,
        _P.USERS_REMOVE,
        _P.SERVICE_ACCOUNTS_READ,
        _P.SERVICE_ACCOUNTS_CREATE,
        _P.SERVICE_ACCOUNTS_SUSPEND,
        _P.SERVICE_ACCOUNTS_REMOVE,
        _P.API_KEYS_READ_ALL,
        _P.API_KEYS_MANAGE,
        _P.SESSIONS_READ_ALL,
        _P.SESSIONS_REVOKE_ALL,
        _P.PROJECTS_CREATE,
        _P.AUDIT_READ,
        _P.QUOTA_REQUESTS_DECIDE,
        _P.ADMISSION_DECISIONS_READ,
        _P.BALANCE_ALERTS_SET,
        _P.EXPORTS_READ,
        _P.EXPORTS_CREATE,
        _P.INVOICES_READ,
    }
)
_OF_PROJECT = frozenset(
    {
        _P.SSH_KEYS_READ,
        _P.SSH_KEYS_CREATE,
        _P.SSH_KEYS_DELETE,
        _P.PROJECTS_READ,
        _P.PROJECTS_RENAME,
        _P.ENVIRONMENTS_CREATE,
        _P.NETWORKS_READ,
        _P.NETWORKS_CREATE,
        _P.NETWORKS_LABEL,
        _P.NETWORKS_DELETE,
        _P.KUBECONFIGS_READ,
        _P.KUBECONFIGS_CREATE,
        _P.KUBECONFIGS_REVOKE,
    }
)
_OF_ENVIRONMENT = frozenset(
    {
        _P.ENVIRONMENTS_READ,
        _P.QUOTES_CREATE,
        _P.QUOTES_READ,
        _P.LEASES_CREATE,
        _P.NODE_POOLS_READ,
        _P.NODE_POOLS_MANAGE,
        _P.ENVELOPES_READ,
        _P.ENVELOPES_SET,
        _P.QUOTA_REQUESTS_READ,
        _P.QUOTA_REQUESTS_CREATE,
    }
)


def _narrowest(permission: Permission) -> ScopeKind:
    for kind, permissions in (
        (ScopeKind.PLATFORM, _OF_PLATFORM),
        (ScopeKind.ORGANIZATION, _OF_ORGANIZATION),
        (ScopeKind.PROJECT, _OF_PROJECT),
        (ScopeKind.ENVIRONMENT, _OF_ENVIRONMENT),
    ):
        if permission in permissions:
            return kind
    return ScopeKind.LEASE


NARROWEST: Mapping[Permission, ScopeKind] = {
    permission: _narrowest(permission) for permission in Permission if permission not in EVERYBODYS
}
"""The narrowest kind of scope at which a role gives a permission: in a single project nobody may create others."""
