"""What to type next after an error of the API, whose sentence knows nothing of this command line."""

from collections.abc import Sequence

_BY_CODE = {
    "sku_unknown": "see: splitplane skus",
    "sku_not_offered": "see: splitplane offers",
    "ssh_key_duplicate": "see: splitplane ssh-key list",
    "api_keys_too_many": "see: splitplane api-key list",
    "ssh_keys_too_many": "see: splitplane ssh-key list",
    "ssh_certificates_too_many": "see: splitplane ssh-certificate list LEASE",
    "quota_requests_too_many": "see: splitplane quota list --state pending",
    "region_not_served": "see: splitplane offers",
    "provider_unknown": "see: splitplane offers",
    "account_unknown": "see: splitplane account list",
    "orphan_unknown": "see: splitplane orphan list",
    "orphan_not_adoptable": "see: splitplane orphan show ACCOUNT ID",
    "listing_changed": "see: splitplane account list",
    "lease_not_found": "see: splitplane lease list --all",
    "project_unknown": "see: splitplane project list",
    "ssh_key_unknown": "see: splitplane ssh-key list",
    "balance_too_low": "see: splitplane bill",
    "balance_exhausted": "see: splitplane balance alert show",
    "quota_exceeded": "see what is used: splitplane envelope show; ask for more: splitplane quota request",
    "unauthenticated": "log in again: splitplane login",
    "sign_in_not_configured": "log in with an API key: splitplane login --key",
    "envelope_excludes": "see what is allowed: splitplane envelope show; ask for more: splitplane quota request",
    "spend_limit_reached": "see what is used: splitplane envelope show; ask for more: splitplane quota request",
    "envelope_too_wide": "see the wider levels: splitplane envelope show",
    "environment_unknown": "see: splitplane environment list --project PROJECT",
    "network_unknown": "see: splitplane network list --project PROJECT",
    "networks_too_many": "see: splitplane network list",
    "cluster_unknown": "see: splitplane cluster list",
    "cluster_not_ready": "see: splitplane cluster list",
    "kubeconfigs_too_many": "see: splitplane kubeconfig list",
    "lease_of_node_pool": "see: splitplane node-pool list",
    "firewall_rule_duplicate": "see: splitplane firewall list LEASE",
    "firewall_rules_too_many": "see: splitplane firewall list LEASE",
    "power_not_offered": "see what its provider can do: splitplane lease show LEASE",
    "purchase_not_offered": "see: splitplane skus",
    "term_differs": "--committed needs the term of the SKU, as --term DAYS; see: splitplane skus",
    "fee_not_accepted": "release it without --yes to be asked, or add --accept-fee USD",
    "sla_not_offered": "see: splitplane sla tiers",
    "quote_expired": "keep another price: splitplane quote SKU --keep",
    "quote_unknown": "keep another price: splitplane quote SKU --keep",
    "subject_unknown": "see: splitplane user list, splitplane service-account list",
    "billing_details_missing": "set them: splitplane finance billing-details set --help",
    "organization_state": "see: splitplane organization show ORGANIZATION",
    "organization_unknown": "see: splitplane organization list",
    "api_key_unknown": "see: splitplane api-key list",
    "route_not_found": "check the URL: splitplane whoami shows it. An older API may also lack the endpoint",
    "permission_denied": (
        "see who you are here: splitplane whoami; use another login: splitplane profile list; or ask an owner or admin "
        "for such a role"
    ),
}
_ABOUT_FORM = frozenset({"invalid_request", "invalid_parameter"})
"""The codes that say that a value has the wrong form, so that the right form of its field helps."""
_BY_FIELD = {
    "regions": "--region takes a jurisdiction such as eu, or a region such as us-east-1",
    "providers": "--provider takes a name as `splitplane offers` shows it",
    "price_usd_per_hour_max": "--max-price takes an amount in US dollars, such as 25 or 24.90",
    "network_gbps_min": "--min-network takes a whole number of Gbit/s, such as 400",
    "sku": "SKU is a name as `splitplane skus` shows it",
    "project": "--project takes a name as `splitplane project list` shows it",
    "name": "a name has 1 to 63 letters, digits, spaces or . _ @ : + - and starts with a letter or digit",
    "wait_timeout_seconds": "--wait-timeout takes up to 7 days, such as 30m or 12h; for a node pool 1m at least",
    "labels": "--label takes KEY=VALUE, at most 32 times: 1 to 63 lower-case letters, digits or . _ / - as the key",
    "label_key": "--by label:KEY takes the key of a label, as --label KEY=VALUE has it",
    "auto_release": "--auto-release-after takes 1m to 365d, --auto-release-spend an amount in US dollars",
    "gpu_model": "--gpu takes a model as `splitplane offers` shows it, such as h100-sxm-80gb",
}


def hint(code: str, fields: Sequence[str]) -> str | None:
    """A line for people; None when there is nothing to add. A field has one only where its value has a wrong form."""
    if code in _BY_CODE:
        return _BY_CODE[code]
    if code not in _ABOUT_FORM:
        return None
    for field in fields:
        root = field.partition("[")[0].partition(".")[0]
        if root in _BY_FIELD:
            return _BY_FIELD[root]
    return None
