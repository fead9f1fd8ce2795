"""What an API key may do: permissions, named by noun and action, and the built-in roles that group them.

Code asks for a permission and never for a role, so that a new role is one more set here.
"""

from collections.abc import Mapping
from enum import StrEnum


class Permission(StrEnum):
    ORGANIZATIONS_READ = "organizations.read"
    """Read the caller's own organization: its balance, holds and quota."""
    ORGANIZATIONS_CREATE = "organizations.create"
    """Create organizations, each with its first API key."""
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
    CREDITS_CREATE = "credits.create"
    """Post a credit to any organization."""
    API_KEYS_READ = "api_keys.read"
    API_KEYS_CREATE = "api_keys.create"
    """Create API keys with the role of a customer."""
    API_KEYS_CREATE_OPERATOR = "api_keys.create_operator"
    """Create API keys with the role of an operator."""
    API_KEYS_REVOKE = "api_keys.revoke"
    """Revoke API keys with the role of a customer."""
    API_KEYS_REVOKE_OPERATOR = "api_keys.revoke_operator"
    """Revoke API keys with the role of an operator."""
    SSH_KEYS_READ = "ssh_keys.read"
    SSH_KEYS_CREATE = "ssh_keys.create"
    SSH_KEYS_DELETE = "ssh_keys.delete"
    PROJECTS_READ = "projects.read"
    PROJECTS_CREATE = "projects.create"
    """Create projects in the caller's own organization."""
    PROJECTS_RENAME = "projects.rename"
    SKUS_READ = "skus.read"
    OFFERS_READ = "offers.read"
    COSTS_READ = "costs.read"
    """See what we pay our providers, in offers, quotes and placements."""
    QUOTES_CREATE = "quotes.create"
    LEASES_READ = "leases.read"
    """Read the organization's leases, their journals, events and explanations."""
    LEASES_CREATE = "leases.create"
    LEASES_RELEASE = "leases.release"
    LEASES_LABEL = "leases.label"
    """Replace the labels of a lease."""
    PROOFS_READ = "proofs.read"
    """Read the GPU proofs of the organization's leases, with their evidence."""
    PROOF_RECORDS_READ = "proof_records.read"
    """Read how the machines of every provider account answered, without the names of customers."""
    BILLING_READ = "billing.read"
    """Read the organization's usage, bill and reconciliation."""
    LOOPS_READ = "loops.read"
    ORPHANS_READ = "orphans.read"
    ORPHANS_TERMINATE = "orphans.terminate"
    """Decide that single orphans are terminated, whatever holds them back."""
    PROVIDER_ACCOUNTS_READ = "provider_accounts.read"
    """Read the state of our provider accounts: their lists, freezes, failures and permits."""
    PROVIDER_ACCOUNTS_MANAGE = "provider_accounts.manage"
    """Add, test, rotate, drain and remove provider accounts. Nobody can read their credentials."""
    TERMINATIONS_PERMIT = "terminations.permit"
    """Permit, for a limited time, the termination of all machines of an account that fail their GPU proof."""


class Role(StrEnum):
    CUSTOMER = "customer"
    OPERATOR = "operator"


CUSTOMER = frozenset(
    {
        Permission.ORGANIZATIONS_READ,
        Permission.API_KEYS_READ,
        Permission.API_KEYS_CREATE,
        Permission.API_KEYS_REVOKE,
        Permission.SSH_KEYS_READ,
        Permission.SSH_KEYS_CREATE,
        Permission.SSH_KEYS_DELETE,
        Permission.PROJECTS_READ,
        Permission.PROJECTS_CREATE,
        Permission.PROJECTS_RENAME,
        Permission.SKUS_READ,
        Permission.OFFERS_READ,
        Permission.QUOTES_CREATE,
        Permission.LEASES_READ,
        Permission.LEASES_CREATE,
        Permission.LEASES_RELEASE,
        Permission.LEASES_LABEL,
        Permission.PROOFS_READ,
        Permission.BILLING_READ,
    }
)
"""Everything that concerns the customer's own organization."""
OPERATOR = CUSTOMER | {
    Permission.ORGANIZATIONS_CREATE,
    Permission.ORGANIZATIONS_READ_ALL,
    Permission.ORGANIZATIONS_SUSPEND,
    Permission.ORGANIZATIONS_RESUME,
    Permission.ORGANIZATIONS_CLOSE,
    Permission.ORGANIZATIONS_DELETE,
    Permission.CREDITS_CREATE,
    Permission.API_KEYS_CREATE_OPERATOR,
    Permission.API_KEYS_REVOKE_OPERATOR,
    Permission.COSTS_READ,
    Permission.PROOF_RECORDS_READ,
    Permission.LOOPS_READ,
    Permission.ORPHANS_READ,
    Permission.ORPHANS_TERMINATE,
    Permission.PROVIDER_ACCOUNTS_READ,
    Permission.PROVIDER_ACCOUNTS_MANAGE,
    Permission.TERMINATIONS_PERMIT,
}
"""Everything that a customer may do, and what running the platform takes."""

PERMISSIONS: Mapping[Role, frozenset[Permission]] = {Role.CUSTOMER: CUSTOMER, Role.OPERATOR: OPERATOR}
"""The permissions of each built-in role."""
