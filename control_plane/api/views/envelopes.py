"""Envelopes and quota requests on the wire, in both directions."""

from datetime import datetime
from uuid import UUID

from control_plane.api.errors import ApiError
from control_plane.api.views.money import money, money_or_none
from control_plane.domain.envelope import UNLIMITED, WIDEST_FIRST, Burst, Envelope
from control_plane.domain.gpu import GpuModel
from control_plane.domain.ids import Prefix, on_wire
from control_plane.domain.money import Nano, parse_usd
from control_plane.domain.proof import Tier
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.quota_request import QuotaRequest
from control_plane.domain.refusal import choose
from control_plane.services.envelopes import ShownEnvelope
from control_plane.wire.envelopes import (
    BurstView,
    EnvelopeRequest,
    EnvelopeView,
    LevelView,
    LimitsRequest,
    LimitsView,
    QuotaRequestView,
    UseView,
)
from control_plane.wire.problems import FieldError


def limits_of(data: LimitsRequest, field: str = "") -> Envelope:
    """The limits of a body as the domain's value. `field` is where they are in the body."""
    burst = data.burst if isinstance(data, EnvelopeRequest) else None
    return Envelope(
        gpus=data.gpus,
        gpus_of_model={_model(model, field): count for model, count in data.gpus_of_model.items()},
        spend_nano_per_hour=_nano(data.spend_usd_per_hour_max),
        spend_nano_per_month=_nano(data.spend_usd_per_month_max),
        skus=_set(data.skus),
        regions=_set(data.regions),
        providers=_set(data.providers),
        tiers=None if data.tiers is None else frozenset(Tier(tier) for tier in data.tiers),
        purchases=None
        if data.purchases is None
        else frozenset(PurchaseKind(each) for each in data.purchases),
        priority=data.priority_max,
        batch_size=data.batch_size_max,
        burst=None if burst is None else Burst(burst.over_percent, burst.seconds, burst.price_percent),
        ends_after_seconds=data.ends_after_seconds if isinstance(data, EnvelopeRequest) else None,
    )


def _model(word: str, field: str) -> GpuModel:
    try:
        return GpuModel(word)
    except ValueError as error:
        why = f"has an unknown GPU model {word[:60]!r}; {choose(word, GpuModel)}"
        name = f"{field}gpus_of_model"
        raise ApiError("invalid_request", f"`{name}` {why}.", errors=[FieldError(name, why)]) from error


def _nano(amount: str | None) -> Nano | None:
    return None if amount is None else parse_usd(amount)


def _set(words: tuple[str, ...] | None) -> frozenset[str] | None:
    return None if words is None else frozenset(words)


def limits_view(envelope: Envelope) -> LimitsView:
    burst = envelope.burst
    return LimitsView(
        gpus=envelope.gpus,
        gpus_of_model={model.value: count for model, count in sorted(envelope.gpus_of_model.items())},
        spend_per_hour_max=money_or_none(envelope.spend_nano_per_hour),
        spend_per_month_max=money_or_none(envelope.spend_nano_per_month),
        skus=_sorted(envelope.skus),
        regions=_sorted(envelope.regions),
        providers=_sorted(envelope.providers),
        tiers=_sorted(envelope.tiers),
        purchases=_sorted(envelope.purchases),
        priority_max=envelope.priority,
        batch_size_max=envelope.batch_size,
        burst=None if burst is None else BurstView(burst.over_percent, burst.seconds, burst.price_percent),
        ends_after_seconds=envelope.ends_after_seconds,
    )


def _sorted(
    words: frozenset[str] | frozenset[Tier] | frozenset[PurchaseKind] | None,
) -> tuple[str, ...] | None:
    return None if words is None else tuple(sorted(str(word) for word in words))


def envelope_view(shown: ShownEnvelope) -> EnvelopeView:
    stored, use, scope = shown.stored, shown.use, shown.scope
    return EnvelopeView(
        level=scope.level.value,
        project_id=_id(Prefix.PROJECT, scope.project_id),
        environment_id=_id(Prefix.ENVIRONMENT, scope.environment_id),
        limits=limits_view(UNLIMITED if stored is None else stored.limits),
        revision=0 if stored is None else stored.revision,
        set_at=None if stored is None else stored.set_at,
        use=UseView(
            gpus=use.gpus,
            gpus_of_model={model.value: count for model, count in sorted(use.gpus_of_model.items()) if count},
            spend_per_hour=money(use.nano_per_hour),
            spend_this_month=money(use.month_nano),
            over_since=use.over_since,
        ),
        within=tuple(
            LevelView(level.value, limits_view(limits))
            for level, limits in sorted(shown.within, key=lambda pair: WIDEST_FIRST.index(pair[0]))
        ),
    )


def quota_request_view(request: QuotaRequest, now: datetime) -> QuotaRequestView:
    return QuotaRequestView(
        id=on_wire(Prefix.QUOTA_REQUEST, request.id),
        organization_id=on_wire(Prefix.ORGANIZATION, request.organization_id),
        state=request.state_at(now).value,
        level=request.level.value,
        project_id=_id(Prefix.PROJECT, request.project_id),
        environment_id=_id(Prefix.ENVIRONMENT, request.environment_id),
        limits=limits_view(request.limits),
        reason=request.reason,
        asked_by=request.asked_by,
        asked_at=request.asked_at,
        expires_at=request.expires_at,
        decided_by=request.decided_by,
        decided_at=request.decided_at,
        answer=request.answer,
    )


def _id(prefix: Prefix, value: UUID | None) -> str | None:
    return None if value is None else on_wire(prefix, value)
