"""Errors on the wire: RFC 9457 problem details with a stable code, from one table.

A code never changes its meaning. The title is the phrase of the HTTP status; `detail` says what happened in
this case. docs/errors.md lists every code, and a test holds the page against the table. What went wrong
inside is logged under the request's id and never sent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import (
    HTTPException,
    MethodNotAllowedException,
    NotFoundException,
    ValidationException,
)
from litestar.exceptions.http_exceptions import RequestEntityTooLarge

from control_plane.api import observe
from control_plane.api.parameters import parameter_fault
from control_plane.api.views.refusals import refusals_of
from control_plane.domain.access import Denied
from control_plane.domain.permission import Permission
from control_plane.domain.refusal import RefusalCode, Refused
from control_plane.services import health
from control_plane.wire.problems import FieldError, Problem

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_SECONDS = 2
"""The `Retry-After` of a 503: a database fails over in seconds, and a stream ends when its client leaves."""
TITLES = {
    400: "Bad request",
    401: "Unauthorized",
    402: "Payment required",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    409: "Conflict",
    413: "Content too large",
    415: "Unsupported media type",
    422: "Unprocessable content",
    429: "Too many requests",
    500: "Internal server error",
    503: "Service unavailable",
}
"""The phrases of RFC 9110, section 15, and RFC 6585. `http.HTTPStatus` has older ones for 413 and 422."""


@dataclass(frozen=True, slots=True)
class Kind:
    status: int
    remedy: str
    """What the caller can do about it, as a sentence for docs/errors.md."""
    field: str = ""
    """The field of the body, or the query parameter, that a refusal with this code is about; empty for none."""


KINDS: dict[str, Kind] = {
    # Something is wrong with the request itself.
    "malformed_json": Kind(400, "Send one JSON object in UTF-8, with each name once."),
    "invalid_parameter": Kind(400, "Correct the query parameter that `errors` names."),
    "unknown_parameter": Kind(400, "Remove the query parameter that `errors` names."),
    "invalid_cursor": Kind(400, "Pass `next_cursor` of the previous page, unchanged, to the same list."),
    "invalid_idempotency_key": Kind(400, "Send one Idempotency-Key of 1 to 255 printable ASCII characters."),
    "bad_request": Kind(400, "Correct the request as `detail` says."),
    "unauthenticated": Kind(401, "Send a valid API key as `Authorization: Bearer spk_...`."),
    "permission_denied": Kind(403, "Use an API key whose role has the permission that `permission` names."),
    "route_not_found": Kind(404, "Use an endpoint that /schema/openapi.json describes."),
    "method_not_allowed": Kind(405, "Use a method that the `Allow` header names."),
    "request_timeout": Kind(408, "Send the whole body within 10 seconds."),
    "body_too_large": Kind(413, "Send a body of at most 64 KiB."),
    "unsupported_media_type": Kind(415, "Send the body as `Content-Type: application/json`."),
    "invalid_request": Kind(422, "Correct the fields of the body that `errors` names."),
    "idempotency_key_missing": Kind(
        422, "Send an Idempotency-Key, so that money moves once however often the request is repeated."
    ),
    "idempotency_key_reused": Kind(
        422, "Use a new Idempotency-Key for a new request, or repeat the first request exactly."
    ),
    "rate_limited": Kind(429, "Wait as long as `Retry-After` says; `RateLimit` shows what is left."),
    "too_many_in_progress": Kind(
        429,
        "Wait for answers to earlier requests; `detail` says whose bound it is: the key's, the organization's or the"
        " address's.",
    ),
    # Something is wrong on our side.
    "internal": Kind(
        500, "Repeat the request with the same Idempotency-Key; if it fails again, send us the request id."
    ),
    "database_unavailable": Kind(
        503, "Repeat the request with the same Idempotency-Key after `Retry-After` seconds."
    ),
    "clock_differs": Kind(
        503,
        "Repeat the request with the same Idempotency-Key after `Retry-After` seconds: another server may answer, and"
        " the operator has to correct the clock of this one.",
    ),
    "overloaded": Kind(503, "Repeat the request after `Retry-After` seconds."),
    "not_ready": Kind(503, "Migrate the database, or correct the host's clock, as `detail` says."),
    "streams_exhausted": Kind(
        503,
        "Close event streams that you no longer read, or poll the lease; `detail` names the bound: that of the API key,"
        " of the organization or of the server.",
    ),
    # Refusals: the request is correct, and the answer is no. `detail` says what to change.
    RefusalCode.BALANCE_TOO_LOW: Kind(402, "Top up: the balance has to cover the first hour of the lease."),
    RefusalCode.BALANCE_EXHAUSTED: Kind(
        402, "Top up by the sum that `detail` names, or release leases: those that you have come first."
    ),
    RefusalCode.ORGANIZATION_SUSPENDED: Kind(403, "Settle the organization's account."),
    RefusalCode.ORGANIZATION_CLOSED: Kind(403, "A closed organization is not opened again."),
    RefusalCode.ORGANIZATION_STATE: Kind(
        409, "Read the organization's state; `detail` names the states in which this is possible."
    ),
    RefusalCode.PLATFORM_ORGANIZATION: Kind(
        409, "Choose another organization: this one runs the installation, and nobody could open it again."
    ),
    RefusalCode.LEASE_NOT_FOUND: Kind(404, "Use the id of one of your leases; GET /v1/leases lists them."),
    RefusalCode.NOT_FOUND: Kind(404, "Use an id that the endpoint's collection lists."),
    RefusalCode.PERIOD_OPEN: Kind(
        409, "Leave out `final`, or wait until finance has closed the period.", "final"
    ),
    RefusalCode.PERIOD_IN_FUTURE: Kind(409, "Choose a month that has begun.", "period"),
    RefusalCode.SIGNATURE_INVALID: Kind(
        401, "Sign the time and the body as it is sent with a secret of the payment port."
    ),
    RefusalCode.SIGNATURE_EXPIRED: Kind(401, "Sign the event anew, with the time of sending."),
    RefusalCode.PAYMENT_UNKNOWN: Kind(
        409, "Send the event of the payment first, and then this one again.", "payment"
    ),
    RefusalCode.PAYMENT_DIFFERS: Kind(409, "Ask the payment provider which of both amounts is right."),
    RefusalCode.REFUND_EXCEEDS_PAYMENT: Kind(409, "Ask the payment provider what was given back."),
    RefusalCode.PRICE_OVERLAPS: Kind(
        409, "End the other price first, or choose a time at which it does not apply.", "valid_from"
    ),
    RefusalCode.PRICE_IN_PAST: Kind(422, "Choose a time to come, or leave it out for now.", "valid_from"),
    RefusalCode.PRICE_INVALID: Kind(422, "Correct what `detail` names."),
    RefusalCode.PRICE_ENDED: Kind(409, "Nothing: it ends no later than you ask for."),
    RefusalCode.SUPPLIER_INVOICE_INVALID: Kind(
        422, "Correct what `detail` names, and import it again.", "csv"
    ),
    RefusalCode.SUPPLIER_INVOICE_REPLACED: Kind(409, "Post the newest import of the month."),
    RefusalCode.SUPPLIER_INVOICE_VOID: Kind(409, "Import the supplier's new invoice of the month."),
    RefusalCode.SUPPLIER_INVOICE_DIFFERS: Kind(409, "Read the match, and give a `reason` if it is right."),
    RefusalCode.UPLOAD_INCOMPLETE: Kind(409, "Send the part that `detail` names, or begin another upload."),
    RefusalCode.CURRENCY_NOT_SUPPORTED: Kind(422, "Convert the amounts to USD.", "csv"),
    RefusalCode.EXPORT_INCOMPLETE: Kind(409, "Fetch the files that `detail` names to their last byte first."),
    RefusalCode.BEYOND_YOUR_ROLES: Kind(403, "Ask somebody whose roles include what is missing."),
    RefusalCode.NOT_YOURSELF: Kind(
        403, "Ask somebody else: nobody grants themselves a role, or suspends themselves."
    ),
    RefusalCode.LAST_OWNER: Kind(409, "Appoint another owner first."),
    RefusalCode.ROLE_HELD: Kind(409, "Nothing is to be done: the role is bound already."),
    RefusalCode.DUTIES_NOT_SEPARATED: Kind(
        409, "End the other role at platform scope first, or choose another subject."
    ),
    RefusalCode.STATE_CONFLICT: Kind(409, "Read the state, and choose an action that fits it."),
    RefusalCode.PERMISSION_UNKNOWN: Kind(
        422, "Use permissions that docs/generated/permissions.md lists.", "scopes"
    ),
    RefusalCode.SUBJECT_UNKNOWN: Kind(
        422, "Use the id of a user or a service account of your organization.", "subject"
    ),
    RefusalCode.ENVIRONMENT_UNKNOWN: Kind(
        422, "Use an environment that GET /v1/projects/{project}/environments lists.", "environment"
    ),
    RefusalCode.NETWORK_UNKNOWN: Kind(
        422, "Use a network that GET /v1/projects/{project}/networks lists.", "network"
    ),
    RefusalCode.NETWORK_IN_USE: Kind(
        409, "Release the leases that `detail` names, and wait until they have ended."
    ),
    RefusalCode.NETWORKS_TOO_MANY: Kind(409, "Delete a network that no lease uses."),
    RefusalCode.ORGANIZATION_UNKNOWN: Kind(
        422, "Use the id of an open one that GET /v1/operator/organizations lists.", "organization_id"
    ),
    RefusalCode.HOST_KEY_INVALID: Kind(
        422, "Send one line of an OpenSSH host key file, such as ssh_host_ed25519_key.pub.", "host_key"
    ),
    RefusalCode.POOL_EXISTS: Kind(409, "Change the pool that there is, or choose another name."),
    RefusalCode.POOL_INVALID: Kind(422, "Choose a SKU with GPUs, and a minimum that is at most the maximum."),
    RefusalCode.TRACE_TOO_LONG: Kind(422, "Send a part of the trace."),
    RefusalCode.SERVER_HOST_IN_USE: Kind(409, "Delete the cluster, and wait until it is gone."),
    RefusalCode.SERVER_HOSTS_IN_USE: Kind(
        409, "Add a server host in the region, or choose a region in which one is free."
    ),
    RefusalCode.CLUSTERS_TOO_MANY: Kind(409, "Delete a cluster that nobody uses."),
    RefusalCode.CLUSTER_NOT_READY: Kind(409, "Wait until the cluster is ready, or choose another one."),
    RefusalCode.NODE_NOT_READY: Kind(
        409, "Wait until the node is ready. When it leaves, its keys go with it."
    ),
    RefusalCode.KUBECONFIGS_TOO_MANY: Kind(409, "Revoke kubeconfigs of the project that nobody uses."),
    RefusalCode.CLUSTER_UNKNOWN: Kind(422, "Use a cluster that GET /v1/clusters lists.", "cluster"),
    RefusalCode.NODE_LABEL_INVALID: Kind(422, "Correct the label that `detail` names.", "node_labels"),
    RefusalCode.NODE_TAINT_INVALID: Kind(422, "Correct the taint that `detail` names.", "node_taints"),
    RefusalCode.NODE_POOL_DELETING: Kind(409, "Create another node pool."),
    RefusalCode.NODE_POOL_FOLLOWS_OBJECT: Kind(409, "Scale it in the cluster, or delete it here."),
    RefusalCode.NODE_POOL_FAILING: Kind(409, "Wait, or create a pool of another SKU or in other regions."),
    RefusalCode.LEASE_OF_NODE_POOL: Kind(409, "Scale or delete the node pool that `detail` names."),
    RefusalCode.PORTS_INVALID: Kind(
        422, "Name a port from 1 to 65535, or a range with the lower one first.", "ports"
    ),
    RefusalCode.PORTS_KEPT_OPEN: Kind(422, "Leave the port that `detail` names out of the range.", "ports"),
    RefusalCode.SOURCE_INVALID: Kind(422, "Correct the network that `detail` names.", "sources"),
    RefusalCode.FIREWALL_RULE_DUPLICATE: Kind(
        409, "Use the rule that is there: GET /v1/leases/{id}/firewall-rules."
    ),
    RefusalCode.FIREWALL_RULES_TOO_MANY: Kind(
        409, "Delete a firewall rule, or open a range of ports with one."
    ),
    RefusalCode.LEASE_IS_NODE: Kind(409, "Use the cluster's API: nobody logs in to its nodes."),
    RefusalCode.LEASE_UNKNOWN: Kind(422, "Use the id of a lease that GET /v1/leases lists.", "scope"),
    RefusalCode.SCOPE_INVALID: Kind(422, "Choose a scope that the role can be bound to.", "scope"),
    RefusalCode.EXPIRY_INVALID: Kind(422, "Choose a time that is to come.", "expires_at"),
    RefusalCode.NAME_TAKEN: Kind(409, "Choose another name.", "name"),
    RefusalCode.KEY_IN_USE: Kind(409, "Revoke the key in a request that uses another key."),
    RefusalCode.QUOTA_EXCEEDED: Kind(409, "Release a lease, or ask for a higher GPU quota."),
    RefusalCode.SPEND_LIMIT_REACHED: Kind(
        409, "Release a lease, wait for the next calendar month (UTC), or ask for a higher limit."
    ),
    RefusalCode.ENVELOPE_EXCLUDES: Kind(
        409, "Ask for what the envelope that `detail` names allows, or have the envelope changed."
    ),
    RefusalCode.ENVELOPE_TOO_WIDE: Kind(
        409, "State limits within those of the wider level that `detail` names, or have that level's changed."
    ),
    RefusalCode.OWN_REQUEST: Kind(409, "Let somebody else decide on the request."),
    RefusalCode.REQUEST_DECIDED: Kind(409, "Make a new request; `detail` says what became of this one."),
    RefusalCode.LEASE_ENDING: Kind(409, "Create another lease."),
    RefusalCode.POWER_NOT_OFFERED: Kind(
        409, "Do what the lease's `power.actions` name, or lease from a provider whose offers name it."
    ),
    RefusalCode.POWER_CONFLICT: Kind(409, "Do what `detail` says; `power` says what is being done."),
    RefusalCode.POWER_REQUESTS_TOO_MANY: Kind(
        409, "Wait; twenty requests to reboot, stop or start a machine are taken within an hour."
    ),
    RefusalCode.HAND_BACKS_TOO_MANY: Kind(
        409, "Wait, or ask us to look at it; three machines of a lease can be handed back within a day."
    ),
    RefusalCode.MACHINE_FIT: Kind(409, "Keep it, and ask us to look at it if it does not work."),
    RefusalCode.CREDIT_NOT_WAITING: Kind(409, "Choose one that GET /v1/finance/sla-credits lists."),
    RefusalCode.ENFORCEMENT_ENDED: Kind(409, "Leave it: the action has ended, and asks nothing any more."),
    RefusalCode.LEASE_HAS_MACHINE: Kind(
        409, "Change this only while the lease waits for a machine; afterwards create another lease."
    ),
    RefusalCode.RELEASE_TIME_PASSED: Kind(
        422, "Choose limits that are not reached yet, or release the lease.", "auto_release"
    ),
    RefusalCode.PRICE_ABOVE_CEILING: Kind(
        409, "Raise `price_usd_per_hour_max`, or choose another SKU.", "price_usd_per_hour_max"
    ),
    RefusalCode.PRICE_CEILING_MISSING: Kind(
        422, "Say the most that a spot lease may cost per hour.", "price_usd_per_hour_max"
    ),
    RefusalCode.REPLACEMENT_NEEDS_SPOT: Kind(
        422, "Ask for a lease that may be taken back, or leave `on_eviction` out.", "on_eviction"
    ),
    RefusalCode.SLA_NOT_OFFERED: Kind(422, "Choose a tier of GET /v1/sla-tiers, or leave it out.", "sla"),
    RefusalCode.PURCHASE_NOT_OFFERED: Kind(
        422, "Ask for it on demand, or choose a SKU for which GET /v1/skus has such a price.", "sku"
    ),
    RefusalCode.TERM_DIFFERS: Kind(422, "Ask for the term that GET /v1/skus has.", "committed_days"),
    RefusalCode.ENDS_WITH_TERM: Kind(422, "Leave it out, or ask for it on demand.", "auto_release"),
    RefusalCode.FEE_NOT_ACCEPTED: Kind(409, "Keep the lease, or accept the fee.", "accept_fee_usd"),
    RefusalCode.SKU_UNKNOWN: Kind(422, "Choose a SKU that GET /v1/skus lists.", "sku"),
    RefusalCode.SKU_NOT_OFFERED: Kind(
        422,
        "Choose a SKU that a provider offers; `detail` names the nearest, GET /v1/offers shows all.",
        "sku",
    ),
    RefusalCode.QUOTE_UNKNOWN: Kind(422, "Ask for another quote with `keep`, or leave it out.", "quote_id"),
    RefusalCode.QUOTE_EXPIRED: Kind(409, "Ask for another quote with `keep`, or leave it out.", "quote_id"),
    RefusalCode.QUOTE_DIFFERS: Kind(
        422, "Ask for what the quote says, or leave it out; `detail` names the field.", "quote_id"
    ),
    RefusalCode.QUOTE_WITHOUT_OFFERS: Kind(
        409, "Ask for another quote, or leave it out to wait for an offer at today's price.", "quote_id"
    ),
    RefusalCode.SSH_KEY_DUPLICATE: Kind(
        409, "Use the key that is stored already; `detail` names it.", "public_key"
    ),
    RefusalCode.API_KEYS_TOO_MANY: Kind(409, "Revoke an API key that is no longer used."),
    RefusalCode.SSH_KEYS_TOO_MANY: Kind(409, "Delete an SSH key that is no longer used."),
    RefusalCode.SSH_KEY_NOT_ADMITTED: Kind(
        409, "Use one of the SSH keys that the lease is limited to; `detail` names them."
    ),
    RefusalCode.SSH_CERTIFICATES_TOO_MANY: Kind(
        409, "Use a certificate until it ends, or wait until some have ended."
    ),
    RefusalCode.CONSOLES_TOO_MANY: Kind(
        409, "Wait a minute, and ask once; an answer can be read for ten minutes."
    ),
    RefusalCode.QUOTA_REQUESTS_TOO_MANY: Kind(
        409, "Withdraw a quota request that is no longer needed, or wait until some are decided."
    ),
    RefusalCode.LEASE_NOT_READY: Kind(
        409, "Wait until the lease is ready; one that has ended has no machine to log in to."
    ),
    RefusalCode.NAME_RESERVED: Kind(422, "Choose another name, or leave this one as it is.", "name"),
    RefusalCode.SSH_KEY_UNKNOWN: Kind(
        422, "Use the ids of your SSH keys; GET /v1/ssh-keys lists them.", "ssh_key_ids"
    ),
    RefusalCode.SSH_KEY_INVALID: Kind(422, "Send one line of an OpenSSH .pub file.", "public_key"),
    RefusalCode.REGION_NOT_SERVED: Kind(
        422, "Choose a region for which GET /v1/offers shows an offer.", "regions"
    ),
    RefusalCode.NETWORK_NOT_OFFERED: Kind(
        422,
        "Ask for less, or leave it out; GET /v1/offers shows the network of each offer.",
        "network_gbps_min",
    ),
    RefusalCode.SECRETS_NOT_CONFIGURED: Kind(
        409, "Configure a key manager: docs/operating.md, part Secrets and keys."
    ),
    RefusalCode.KEY_MANAGER_REFUSED: Kind(
        409, "Let the key manager's policy permit GenerateDataKey with the master key that `detail` names."
    ),
    RefusalCode.KEY_MANAGER_UNAVAILABLE: Kind(
        503, "Repeat the request with the same Idempotency-Key after `Retry-After` seconds."
    ),
    RefusalCode.ACCOUNT_UNKNOWN: Kind(
        422, "Use a provider account that GET /v1/operator/provider-accounts lists.", "account"
    ),
    RefusalCode.ORPHAN_UNKNOWN: Kind(
        422, "Use an account and provider ids that GET /v1/operator/orphans lists.", "provider_refs"
    ),
    RefusalCode.ORPHAN_NOT_ADOPTABLE: Kind(
        409, "End the orphan or leave it: `detail` says why its record cannot take it.", "provider_refs"
    ),
    RefusalCode.LIABILITY_TERMINATING: Kind(
        409, "Nothing: the machine is terminated without a decision, and `detail` says what that waits for."
    ),
    RefusalCode.LISTING_CHANGED: Kind(
        409,
        "Look at the account again: since you looked, its freeze ended or its list misses more.",
        "missing",
    ),
    RefusalCode.OVERPAYMENT: Kind(
        409, "Record no more than is owed as a payment, and the rest as a top-up.", "amount_usd"
    ),
    RefusalCode.PERIOD_NOT_OVER: Kind(409, "Close the period when its month is over.", "month"),
    RefusalCode.PERIOD_CLOSED: Kind(
        409, "Book a correction in an open period, or have the period reopened by two people.", "month"
    ),
    RefusalCode.PERIOD_NOT_CLOSED: Kind(409, "Close the period first; an open one needs no reopening."),
    RefusalCode.INVOICE_EXISTS: Kind(409, "Read the invoice that `detail` names: a month has one."),
    RefusalCode.NOTHING_TO_CREDIT: Kind(409, "Read the invoice: its credit notes cover all of it."),
    RefusalCode.LINE_NOT_CREDITABLE: Kind(
        409, "Choose a line of usage, or one that takes a credit back.", "lines"
    ),
    RefusalCode.CREDIT_EXCEEDS_LINE: Kind(
        409, "Credit no more than `detail` says is left of the line.", "lines"
    ),
    RefusalCode.NOTHING_TO_INVOICE: Kind(
        409, "Choose a month in which charges of the organization are booked."
    ),
    RefusalCode.BILLING_DETAILS_MISSING: Kind(409, "Set the organization's billing details first."),
    RefusalCode.PERIOD_INVOICED: Kind(
        409, "Leave the period closed: what arrives late is booked, and invoiced, in a later one."
    ),
    RefusalCode.PROJECT_UNKNOWN: Kind(
        422, "Use the name or the id of a project that GET /v1/projects lists, or leave it out.", "project"
    ),
    RefusalCode.PROVIDER_UNKNOWN: Kind(422, "Choose a provider that GET /v1/offers shows.", "providers"),
    # Signing in with an issuer: docs/signin.md.
    RefusalCode.SIGN_IN_NOT_CONFIGURED: Kind(
        409, "Use an API key, or let the operator configure an issuer: docs/signin.md."
    ),
    RefusalCode.SIGN_IN_REFUSED: Kind(401, "Start the sign-in again."),
    RefusalCode.ISSUER_UNAVAILABLE: Kind(503, "Try again in a minute; `detail` says what the issuer did."),
    RefusalCode.ID_TOKEN_MALFORMED: Kind(401, "Let the issuer answer with an ID token that is a signed JWT."),
    RefusalCode.ID_TOKEN_ALGORITHM: Kind(
        401, "Let the issuer sign ID tokens with an algorithm that `detail` names."
    ),
    RefusalCode.ID_TOKEN_SIGNATURE: Kind(401, "Let the issuer sign with a key that its `jwks_uri` lists."),
    RefusalCode.ID_TOKEN_ISSUER: Kind(401, "Configure the issuer exactly as its ID tokens name it in `iss`."),
    RefusalCode.ID_TOKEN_AUDIENCE: Kind(401, "Configure the client id to which the issuer issues ID tokens."),
    RefusalCode.ID_TOKEN_EXPIRED: Kind(401, "Sign in again; if it happens again, compare the clocks."),
    RefusalCode.ID_TOKEN_NOT_YET_VALID: Kind(401, "Correct the clocks: the issuer's is ahead of ours."),
    RefusalCode.ID_TOKEN_NONCE: Kind(401, "Sign in again, and use the newest page of your browser."),
    RefusalCode.ID_TOKEN_CLAIM_MISSING: Kind(401, "Let the issuer send the claim that `detail` names."),
    RefusalCode.EMAIL_UNVERIFIED: Kind(403, "Verify your email address at the issuer, and sign in again."),
    RefusalCode.EMAIL_DOMAIN: Kind(
        403, "Sign in with an email address of an organization that may use this API."
    ),
    RefusalCode.NOT_INVITED: Kind(
        403, "Let an administrator of your organization invite your email address."
    ),
    RefusalCode.SIGN_IN_STATE: Kind(400, "Start the sign-in again, and finish it in the same browser."),
    RefusalCode.DEVICE_NOT_FOUND: Kind(404, "Run `splitplane login` again, and type the code that it shows."),
    RefusalCode.DEVICES_TOO_MANY: Kind(429, "Confirm the terminals that wait, or let their codes expire."),
}


class ApiError(Exception):
    """An error with a code of the table."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
        permission: Permission | None = None,
        refused: Refused | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})
        self.permission = permission
        self.refused = refused
        """The refusal that it comes from; None for an error of another kind."""


def refusal(refused: Refused) -> ApiError:
    field = KINDS[refused.code].field
    errors = [FieldError(field, refused.why)] if field else []
    return ApiError(refused.code, refused.why, errors=errors, refused=refused)


def permission_denied(denied: Denied) -> ApiError:
    return ApiError("permission_denied", denied.why, permission=denied.permission)


def answer(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Turn whatever a request raised into problem details. This is the app's only exception handler."""
    known = error if isinstance(error, ApiError) else _translated(request, error)
    if known is None:
        observe.record_fault(request.scope, error)
        known = ApiError("internal", "Something failed on our side. It is logged under the request id.")
    observe.record_refusal(request.scope, known.code)
    return response(known, observe.request_id(request.scope))


def response(error: ApiError, request_id: str) -> Response[bytes]:
    kind = KINDS[error.code]
    problem = Problem(
        type=f"urn:splitplane:error:{error.code}",
        title=TITLES[kind.status],
        status=kind.status,
        detail=error.detail,
        code=error.code,
        request_id=request_id,
        errors=error.errors,
        permission=error.permission,
        refusals=refusals_of(error.refused),
    )
    headers = error.headers | ({"Retry-After": str(RETRY_AFTER_SECONDS)} if kind.status == 503 else {})
    return Response(
        msgspec.json.encode(problem), status_code=kind.status, media_type=MEDIA_TYPE, headers=headers
    )


def _translated(request: Request[Any, Any, Any], error: Exception) -> ApiError | None:
    """An error of the framework or the database as one of ours; None when it is a bug."""
    match error:
        case ValidationException():
            return _validation(request, error)
        case NotFoundException():
            return ApiError(
                "route_not_found", "There is no such endpoint; /schema/openapi.json lists them all."
            )
        case MethodNotAllowedException():
            return ApiError(
                "method_not_allowed", "The endpoint does not have this method.", headers=error.headers
            )
        case RequestEntityTooLarge():
            return ApiError("body_too_large", "The body is larger than 64 KiB.")
        case HTTPException() if 400 <= error.status_code < 500:
            return ApiError("bad_request", "The request cannot be understood.")
        case _ if health.is_database_trouble(error):
            return ApiError(
                "database_unavailable",
                "The database did not answer. The request took effect completely or not at all.",
            )
        case _ if health.is_bad_value(error):
            return ApiError("invalid_request", "A value cannot be stored.")
    return None


def _validation(request: Request[Any, Any, Any], error: ValidationException) -> ApiError:
    """A parameter that the framework could not convert. Bodies are decoded in requests.py."""
    found = [entry for entry in error.extra or () if isinstance(entry, dict)]
    if any(entry.get("key") == "data" for entry in found):
        return ApiError("malformed_json", "This endpoint needs a JSON body.")
    errors = [parameter_fault(request, str(entry.get("key"))) for entry in found]
    sentences = [f"`{fault.field}` {fault.detail}" for fault in errors] or ["A query parameter is invalid"]
    return ApiError(
        "invalid_parameter",
        " ".join(text if text.endswith("?") else f"{text}." for text in sentences),
        errors=errors,
    )
