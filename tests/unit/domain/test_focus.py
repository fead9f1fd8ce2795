"""A charge becomes a row of FOCUS 1.2."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.domain import focus
from control_plane.domain.focus import COLUMNS, FOCUS_COLUMNS, NAMES, Kind, Row, Value
from control_plane.domain.money import NANO_PER_USD, Nano
from control_plane.domain.purchase import PurchaseKind
from control_plane.domain.sku import CapacityShape
from control_plane.domain.sla import SlaTier
from tests.support.charges import FACTS, PRICE, SELLER, START, ChargeFacts, lease_charges, usage_row


def named(row: Row) -> dict[str, Value]:
    return dict(zip(NAMES, row, strict=True))


def row_of(**changes: object) -> dict[str, Value]:
    return named(usage_row(replace(FACTS, **changes), seller=SELLER))  # type: ignore[arg-type] # Each case names real fields.


def number(value: Value) -> Decimal:
    assert isinstance(value, int)
    return Decimal(value).scaleb(-focus.DECIMAL_PLACES)


def test_a_row_has_the_57_columns_of_the_specification_in_its_order_and_then_ours() -> None:
    names = [column.name for column in FOCUS_COLUMNS]
    assert len(names) == 57
    assert names == sorted(names)
    assert all(name.startswith("x_") for name in NAMES[57:])
    assert len(usage_row(FACTS, seller=SELLER)) == len(COLUMNS) == len(set(NAMES))


def test_a_column_that_must_not_be_null_never_is_and_every_value_has_the_type_of_its_column() -> None:
    types = {Kind.TEXT: str, Kind.JSON: str, Kind.DECIMAL: int, Kind.TIME: datetime}
    for column, value in zip(COLUMNS, usage_row(FACTS, seller=SELLER), strict=True):
        assert value is None or isinstance(value, types[column.kind]), column.name
        assert value is not None or column.nullable, column.name
        assert value != "", column.name


def test_costs_and_prices_are_exact_dollars() -> None:
    row = row_of()
    assert number(row["BilledCost"]) == number(row["EffectiveCost"]) == Decimal("19.92")
    assert number(row["ContractedCost"]) == number(row["ListCost"]) == Decimal("19.92")
    assert number(row["ContractedUnitPrice"]) == number(row["ListUnitPrice"]) == Decimal("2.49")


def test_a_price_other_than_the_price_books_shows_in_list_and_contracted_of_one_row() -> None:
    row = row_of(nano_per_unit_hour=Nano(2_000_000_000), amount_nano=Nano(16_000_000_000))
    assert number(row["ListUnitPrice"]) == Decimal("2.49")
    assert number(row["ListCost"]) == Decimal("19.92")
    assert number(row["ContractedUnitPrice"]) == 2
    assert number(row["ContractedCost"]) == number(row["BilledCost"]) == 16


def test_gpus_are_priced_by_the_hour_and_measured_by_the_second() -> None:
    row = row_of()
    assert (number(row["PricingQuantity"]), row["PricingUnit"]) == (Decimal(8), "GPU-Hours")
    assert (number(row["ConsumedQuantity"]), row["ConsumedUnit"]) == (Decimal(28_800), "GPU-Seconds")
    assert row["SkuMeter"] == "GPU Time"
    assert (
        row["SkuPriceDetails"]
        == '{"GpuCount":1,"InstanceType":"h100-sxm.8x","x_GpuModel":"h100-sxm-80gb","x_SlaTier":"bronze"}'
    )


def test_a_machine_without_gpus_is_counted_as_a_machine() -> None:
    (charge,) = lease_charges([1_800], gpu_count=0)
    row = named(usage_row(replace(charge, sku="cpu-8"), seller=SELLER))
    assert (number(row["PricingQuantity"]), row["PricingUnit"]) == (Decimal("0.5"), "Machine-Hours")
    assert (number(row["ConsumedQuantity"]), row["ConsumedUnit"]) == (Decimal(1_800), "Machine-Seconds")
    assert row["ResourceType"] == "Machine Lease"
    assert row["SkuPriceDetails"] == '{"InstanceType":"cpu-8","x_SlaTier":"bronze"}'


def test_spot_is_dynamic_pricing_of_the_same_sku_at_another_sku_price() -> None:
    standard, spot = row_of(), row_of(purchase=PurchaseKind.SPOT)
    assert (standard["PricingCategory"], spot["PricingCategory"]) == ("Standard", "Dynamic")
    assert standard["SkuId"] == spot["SkuId"]
    assert (standard["SkuPriceId"], spot["SkuPriceId"]) == (
        "h100-sxm.8x/on_demand/bronze",
        "h100-sxm.8x/spot/bronze",
    )


def test_a_lease_for_a_term_is_its_own_commitment_whose_rest_is_one_unused_row() -> None:
    used = row_of(purchase=PurchaseKind.COMMITTED)
    rest = row_of(purchase=PurchaseKind.COMMITTED, unused=True, ended_at=START, unit_seconds_before=28_800)
    commitment = "le_0000000000000000000000000000000d/commitment"
    for row, status in ((used, "Used"), (rest, "Unused")):
        assert row["PricingCategory"] == "Committed"
        assert (row["CommitmentDiscountId"], row["CommitmentDiscountName"]) == (commitment, "train-1")
        assert (row["CommitmentDiscountCategory"], row["CommitmentDiscountType"]) == (
            *("Usage",),
            "Committed GPU Lease",
        )
        assert row["CommitmentDiscountStatus"] == status
        assert row["CommitmentDiscountQuantity"] == row["PricingQuantity"]
        assert row["CommitmentDiscountUnit"] == row["PricingUnit"]
        assert (row["ChargeCategory"], row["BilledCost"]) == ("Usage", used["BilledCost"])
    assert (used["ResourceId"], rest["ResourceId"]) == (commitment.partition("/")[0], commitment)
    assert rest["ConsumedQuantity"] is rest["ConsumedUnit"] is None
    assert used["ConsumedUnit"] == "GPU-Seconds"
    assert "28800 GPU-seconds of the term that were not used" in str(rest["ChargeDescription"])
    nameless = row_of(purchase=PurchaseKind.COMMITTED, lease=None)
    assert nameless["CommitmentDiscountName"] == commitment


def test_the_time_of_a_stopped_machine_has_a_meter_and_a_sku_price_of_its_own() -> None:
    row = row_of(stopped=True)
    assert row["SkuMeter"] == "Stopped GPU Time"
    assert row["SkuPriceId"] == "h100-sxm.8x/on_demand/bronze/stopped"


def test_the_sku_price_stays_the_same_in_another_price_book_whose_version_has_its_own_column() -> None:
    assert row_of(price_book=3)["SkuPriceId"] == row_of(price_book=4)["SkuPriceId"]
    assert row_of(price_book=4)["x_PriceBookVersion"] == "v4"


def test_the_organization_pays_the_project_is_its_sub_account_and_the_lease_its_resource() -> None:
    row = row_of()
    assert row["BillingAccountId"] == "org_0000000000000000000000000000000b"
    assert (row["BillingAccountName"], row["BillingAccountType"]) == ("Heliotrope", "Organization")
    assert row["SubAccountId"] == "prj_0000000000000000000000000000000c"
    assert (row["SubAccountName"], row["SubAccountType"]) == ("research", "Project")
    assert row["ResourceId"] == "le_0000000000000000000000000000000d"
    assert (row["ResourceName"], row["ResourceType"]) == ("train-1", "GPU Lease")
    assert row["x_ChargeId"] == "ch_00000000000000000000000000000001"


def test_the_seller_is_provider_publisher_and_issuer_and_the_host_has_a_column_of_ours() -> None:
    row = row_of()
    assert row["ProviderName"] == row["PublisherName"] == row["InvoiceIssuerName"] == SELLER
    assert row["x_HostProviderName"] == "lambda_cloud"


def test_labels_are_tags_as_json_in_order_of_their_names() -> None:
    assert (
        row_of(labels={"b": 'a "quoted"\nline', "a": "ä"})["Tags"] == '{"a":"ä","b":"a \\"quoted\\"\\nline"}'
    )
    assert row_of(labels={})["Tags"] == "{}"


def test_what_was_erased_is_null() -> None:
    row = row_of(lease=None, project=None, labels={})
    assert row["ResourceName"] is None
    assert row["SubAccountName"] is None


def test_a_bare_metal_machine_is_no_virtual_machine() -> None:
    assert row_of()["ServiceSubcategory"] == "Virtual Machines"
    bare = row_of(capacity=CapacityShape.BAREMETAL)
    assert (bare["ServiceName"], bare["ServiceSubcategory"]) == ("Bare Metal Leases", "Other (Compute)")


def test_a_charge_belongs_to_the_month_that_it_is_booked_in_and_corrects_an_earlier_one() -> None:
    last = datetime(2026, 12, 31, 23, tzinfo=UTC)
    december, january = datetime(2026, 12, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    for booked, until, kind in (
        (december, january, None),
        (january, datetime(2027, 2, 1, tzinfo=UTC), "Correction"),
    ):
        row = row_of(period=booked, started_at=last, ended_at=last + timedelta(hours=1))
        assert (row["BillingPeriodStart"], row["BillingPeriodEnd"]) == (booked, until)
        assert (row["ChargePeriodStart"], row["ChargePeriodEnd"]) == (last, last + timedelta(hours=1))
        assert row["ChargeClass"] == kind


def test_a_charge_names_its_invoice_once_it_is_issued() -> None:
    assert row_of()["InvoiceId"] is None
    assert row_of(invoice="INV-2026-000001")["InvoiceId"] == "INV-2026-000001"


def test_nothing_is_said_of_commitments_or_reservations() -> None:
    null = {name for name, value in row_of().items() if value is None}
    assert null == {
        *(
            "AvailabilityZone",
            "CapacityReservationId",
            "CapacityReservationStatus",
            "ChargeClass",
            "InvoiceId",
        ),
        *(
            f"CommitmentDiscount{part}"
            for part in ("Category", "Id", "Name", "Quantity", "Status", "Type", "Unit")
        ),
        *("x_CorrectsInvoiceId", "x_CorrectsInvoiceLine", "x_NodePoolName"),
    }


def test_prices_and_costs_in_the_pricing_currency_are_those_of_the_bill() -> None:
    row = row_of(list_nano_per_unit_hour=Nano(3_000_000_000))
    assert row["PricingCurrency"] == row["BillingCurrency"] == "USD"
    for name in ("ContractedUnitPrice", "EffectiveCost", "ListUnitPrice"):
        assert row[f"PricingCurrency{name}"] == row[name]


def test_a_decimal_is_written_with_all_its_places_and_read_back() -> None:
    assert focus.decimal_text(3_600 * 10**12) == "3600.000000000000"
    assert focus.decimal_text(-1) == "-0.000000000001"
    for value in (0, 1, -1, 2_490_000_000_000, -(10**30)):
        assert focus.parse_decimal(focus.decimal_text(value)) == value


@pytest.mark.parametrize("text", ["", "1", "1.5", "+1.000000000000", "1.00000000000a", ".000000000000"])
def test_other_spellings_of_a_decimal_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a decimal"):
        focus.parse_decimal(text)


prices = st.integers(0, 50 * NANO_PER_USD).map(Nano)
cuts = st.lists(st.integers(1, 7_200), min_size=1, max_size=8).map(lambda steps: [sum(steps[: n + 1]) for n in range(len(steps))])  # fmt: skip


@given(cuts=cuts, price=prices, list_price=prices)
def test_the_rows_of_a_lease_sum_to_the_same_however_its_time_is_cut(
    cuts: list[int], price: Nano, list_price: Nano
) -> None:
    def sums(charges: list[ChargeFacts]) -> dict[str, int]:
        rows = [named(usage_row(charge, seller=SELLER)) for charge in charges]
        return {name: sum(int(number(row[name]).scaleb(12)) for row in rows) for name in focus.SUMMED}

    parts = lease_charges(cuts, price=price, list_price=list_price)
    assert sums(parts) == sums(lease_charges(cuts[-1:], price=price, list_price=list_price))
    assert sums(parts)["BilledCost"] == focus.usd(Nano(sum(part.amount_nano for part in parts)))


@given(cuts=cuts, price=prices, list_price=prices)
def test_price_times_quantity_is_the_cost_but_for_the_rounding_of_two_totals(
    cuts: list[int], price: Nano, list_price: Nano
) -> None:
    for charge in lease_charges(cuts, price=price, list_price=list_price):
        row = named(usage_row(charge, seller=SELLER))
        for kind in ("List", "Contracted"):
            unit_price = row[f"{kind}UnitPrice"]
            product = number(unit_price) * number(row["PricingQuantity"])
            assert isinstance(unit_price, int)
            allowed = number(focus.product_tolerance(focus.Scaled(unit_price)))
            assert abs(product - number(row[f"{kind}Cost"])) <= allowed


def test_whole_hours_at_a_price_in_cents_have_no_rounding_at_all() -> None:
    for charge in lease_charges([3_600, 7_200], price=PRICE):
        row = named(usage_row(charge, seller=SELLER))
        assert number(row["ContractedUnitPrice"]) * number(row["PricingQuantity"]) == number(
            row["ContractedCost"]
        )
    assert charge.started_at == START + timedelta(hours=1)


def test_a_tier_is_another_sku_price_of_the_same_sku_and_stands_in_its_details() -> None:
    gold = row_of(sla=SlaTier.GOLD)
    assert (gold["SkuId"], gold["SkuPriceId"]) == ("h100-sxm.8x", "h100-sxm.8x/on_demand/gold")
    assert '"x_SlaTier":"gold"' in str(gold["SkuPriceDetails"])
    assert "on demand, gold, in" in str(gold["ChargeDescription"])
