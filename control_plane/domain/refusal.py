"""A refusal is data: a stable code for programs, and a sentence for people."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum


class RefusalCode(StrEnum):
    """Codes never change meaning. The API documents each under docs/errors.md."""

    ORGANIZATION_SUSPENDED = "organization_suspended"
    ORGANIZATION_CLOSED = "organization_closed"
    ORGANIZATION_STATE = "organization_state"
    PLATFORM_ORGANIZATION = "platform_organization"
    SKU_UNKNOWN = "sku_unknown"
    SKU_NOT_OFFERED = "sku_not_offered"
    SKU_NOT_SOLD_AS_SPOT = "sku_not_sold_as_spot"
    QUOTE_UNKNOWN = "quote_unknown"
    QUOTE_EXPIRED = "quote_expired"
    QUOTE_DIFFERS = "quote_differs"
    QUOTE_WITHOUT_OFFERS = "quote_without_offers"
    SSH_KEY_UNKNOWN = "ssh_key_unknown"
    PRICE_ABOVE_CEILING = "price_above_ceiling"
    PRICE_CEILING_MISSING = "price_ceiling_missing"
    REPLACEMENT_NEEDS_SPOT = "replacement_needs_spot"
    QUOTA_EXCEEDED = "quota_exceeded"
    SPEND_LIMIT_REACHED = "spend_limit_reached"
    ENVELOPE_EXCLUDES = "envelope_excludes"
    ENVELOPE_TOO_WIDE = "envelope_too_wide"
    OWN_REQUEST = "own_request"
    REQUEST_DECIDED = "request_decided"
    LEASE_HAS_MACHINE = "lease_has_machine"
    LEASE_ENDING = "lease_ending"
    POWER_NOT_OFFERED = "power_not_offered"
    POWER_CONFLICT = "power_conflict"
    POWER_REQUESTS_TOO_MANY = "power_requests_too_many"
    RELEASE_TIME_PASSED = "release_time_passed"
    BALANCE_TOO_LOW = "balance_too_low"
    BALANCE_EXHAUSTED = "balance_exhausted"
    REGION_NOT_SERVED = "region_not_served"
    PROVIDER_UNKNOWN = "provider_unknown"
    ACCOUNT_UNKNOWN = "account_unknown"
    ORPHAN_UNKNOWN = "orphan_unknown"
    ORPHAN_NOT_ADOPTABLE = "orphan_not_adoptable"
    LIABILITY_TERMINATING = "liability_terminating"
    LISTING_CHANGED = "listing_changed"
    OVERPAYMENT = "overpayment"
    PERIOD_NOT_OVER = "period_not_over"
    PERIOD_CLOSED = "period_closed"
    PERIOD_NOT_CLOSED = "period_not_closed"
    INVOICE_EXISTS = "invoice_exists"
    NOTHING_TO_INVOICE = "nothing_to_invoice"
    BILLING_DETAILS_MISSING = "billing_details_missing"
    PERIOD_INVOICED = "period_invoiced"
    PROJECT_UNKNOWN = "project_unknown"
    ENVIRONMENT_UNKNOWN = "environment_unknown"
    NETWORK_UNKNOWN = "network_unknown"
    NETWORK_IN_USE = "network_in_use"
    NETWORKS_TOO_MANY = "networks_too_many"
    ORGANIZATION_UNKNOWN = "organization_unknown"
    HOST_KEY_INVALID = "host_key_invalid"
    SERVER_HOST_IN_USE = "server_host_in_use"
    SERVER_HOSTS_IN_USE = "server_hosts_in_use"
    CLUSTERS_TOO_MANY = "clusters_too_many"
    CLUSTER_NOT_READY = "cluster_not_ready"
    NODE_NOT_READY = "node_not_ready"
    KUBECONFIGS_TOO_MANY = "kubeconfigs_too_many"
    CLUSTER_UNKNOWN = "cluster_unknown"
    NODE_LABEL_INVALID = "node_label_invalid"
    NODE_TAINT_INVALID = "node_taint_invalid"
    NODE_POOL_DELETING = "node_pool_deleting"
    NODE_POOL_FAILING = "node_pool_failing"
    LEASE_OF_NODE_POOL = "lease_of_node_pool"
    LEASE_IS_NODE = "lease_is_node"
    PERMISSION_UNKNOWN = "permission_unknown"
    SUBJECT_UNKNOWN = "subject_unknown"
    LEASE_UNKNOWN = "lease_unknown"
    SCOPE_INVALID = "scope_invalid"
    NOT_YOURSELF = "not_yourself"
    BEYOND_YOUR_ROLES = "beyond_your_roles"
    DUTIES_NOT_SEPARATED = "duties_not_separated"
    LAST_OWNER = "last_owner"
    ROLE_HELD = "role_held"
    STATE_CONFLICT = "state_conflict"
    EXPIRY_INVALID = "expiry_invalid"
    LEASE_NOT_FOUND = "lease_not_found"
    NAME_TAKEN = "name_taken"
    NAME_RESERVED = "name_reserved"
    SSH_KEY_INVALID = "ssh_key_invalid"
    SSH_KEY_DUPLICATE = "ssh_key_duplicate"
    API_KEYS_TOO_MANY = "api_keys_too_many"
    SSH_KEYS_TOO_MANY = "ssh_keys_too_many"
    SSH_KEY_NOT_ADMITTED = "ssh_key_not_admitted"
    SSH_CERTIFICATES_TOO_MANY = "ssh_certificates_too_many"
    CONSOLES_TOO_MANY = "consoles_too_many"
    PORTS_INVALID = "ports_invalid"
    PORTS_KEPT_OPEN = "ports_kept_open"
    SOURCE_INVALID = "source_invalid"
    FIREWALL_RULE_DUPLICATE = "firewall_rule_duplicate"
    FIREWALL_RULES_TOO_MANY = "firewall_rules_too_many"
    QUOTA_REQUESTS_TOO_MANY = "quota_requests_too_many"
    LEASE_NOT_READY = "lease_not_ready"
    KEY_IN_USE = "key_in_use"
    SECRETS_NOT_CONFIGURED = "secrets_not_configured"
    KEY_MANAGER_REFUSED = "key_manager_refused"
    KEY_MANAGER_UNAVAILABLE = "key_manager_unavailable"
    NOT_FOUND = "not_found"
    PERIOD_OPEN = "period_open"
    PERIOD_IN_FUTURE = "period_in_future"
    EXPORT_INCOMPLETE = "export_incomplete"
    SIGN_IN_NOT_CONFIGURED = "sign_in_not_configured"
    SIGN_IN_REFUSED = "sign_in_refused"
    ISSUER_UNAVAILABLE = "issuer_unavailable"
    ID_TOKEN_MALFORMED = "id_token_malformed"
    ID_TOKEN_ALGORITHM = "id_token_algorithm"
    ID_TOKEN_SIGNATURE = "id_token_signature"
    ID_TOKEN_ISSUER = "id_token_issuer"
    ID_TOKEN_AUDIENCE = "id_token_audience"
    ID_TOKEN_EXPIRED = "id_token_expired"
    ID_TOKEN_NOT_YET_VALID = "id_token_not_yet_valid"
    ID_TOKEN_NONCE = "id_token_nonce"
    ID_TOKEN_CLAIM_MISSING = "id_token_claim_missing"
    EMAIL_UNVERIFIED = "email_unverified"
    EMAIL_DOMAIN = "email_domain"
    NOT_INVITED = "not_invited"
    SIGN_IN_STATE = "sign_in_state"
    DEVICE_NOT_FOUND = "device_not_found"
    DEVICES_TOO_MANY = "devices_too_many"


@dataclass(frozen=True, slots=True)
class Refused:
    code: RefusalCode
    why: str
    """A sentence that says what to change."""


NAMED_MAX = 12
"""How many allowed values a sentence names; a longer list is cut."""


def choose(word: str, allowed: Iterable[str]) -> str:
    """The end of a sentence that refuses `word`: the nearest allowed value, if one is near, and what is allowed."""
    values = sorted(set(allowed))
    if not values:
        return "there are none to choose from"
    named = ", ".join(values[:NAMED_MAX]) + (
        f" and {len(values) - NAMED_MAX} more" if len(values) > NAMED_MAX else ""
    )
    near = nearest(word, values)
    return f"choose one of {named}" if near is None else f"did you mean {near!r}? Choose one of {named}"


def nearest(word: str, allowed: Iterable[str]) -> str | None:
    """The allowed value that is most like `word`; None when none is similar."""
    found = get_close_matches(word, list(allowed), n=1, cutoff=0.7)
    return found[0] if found else None
