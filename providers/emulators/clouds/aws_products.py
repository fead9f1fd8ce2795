"""The price list of the emulated AWS, in the form of GetProducts: every type with what else it is sold as."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from providers.emulators.clouds.aws_account import PRICES, gpus_of, vcpus_of, zones_of

_ON_DEMAND = {
    "operatingSystem": "Linux",
    "preInstalledSw": "NA",
    "tenancy": "Shared",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}
_VARIANTS: tuple[tuple[Mapping[str, str], str], ...] = (
    ({}, ""),
    ({"operatingSystem": "Windows"}, "99.0000000000"),
    ({"preInstalledSw": "SQL Ent"}, "199.0000000000"),
    ({"tenancy": "Dedicated"}, "77.0000000000"),
    ({"capacitystatus": "UnusedCapacityReservation"}, "88.0000000000"),
    ({"marketoption": "CapacityBlock"}, "0.0000000000"),
)
"""What differs from a shared Linux machine on demand, and its price."""

USD_PER_GB_MONTH = {"gp2": "0.1000000000", "gp3": "0.0800000000"}


def products(region: str) -> Iterator[dict[str, Any]]:
    """Every product of a region."""
    for native_type, usd in PRICES.items():
        if not zones_of(native_type, region):
            continue
        for other, price in _VARIANTS:
            yield _product(
                "Compute Instance",
                _machine(native_type, region, {**_ON_DEMAND, **other}),
                price or usd,
                f"${price or usd} per On Demand {native_type} Instance Hour",
            )
    for volume, usd in USD_PER_GB_MONTH.items():
        attributes = {**_place(region), "volumeApiName": volume, "volumeType": "General Purpose"}
        yield _product("Storage", attributes, usd, f"${usd} per GB-month of {volume}", unit="GB-Mo")


def matching(filters: list[Mapping[str, str]]) -> list[str]:
    """The products that match every filter, each as a JSON text."""
    wanted = {each["Field"]: each["Value"] for each in filters if each["Type"] == "TERM_MATCH"}
    found = products(wanted.get("regionCode", "us-east-1"))
    return [json.dumps(each) for each in found if wanted.items() <= _fields(each).items()]


def _fields(product: Mapping[str, Any]) -> Mapping[str, str]:
    return {"productFamily": product["product"]["productFamily"], **product["product"]["attributes"]}


def _place(region: str) -> Mapping[str, str]:
    return {"regionCode": region, "locationType": "AWS Region", "servicecode": "AmazonEC2"}


def _machine(native_type: str, region: str, other: Mapping[str, str]) -> Mapping[str, str]:
    return {
        **_place(region),
        "instanceType": native_type,
        "instanceFamily": "GPU instance",
        "vcpu": str(vcpus_of(native_type)),
        "gpu": str(gpus_of(native_type)[1]),
        **other,
    }


def _product(
    family: str, attributes: Mapping[str, str], usd: str, description: str, *, unit: str = "Hrs"
) -> dict[str, Any]:
    sku = hashlib.sha256(f"{family} {sorted(attributes.items())}".encode()).hexdigest()[:16].upper()
    term, dimension = f"{sku}.JRTCKXETXF", f"{sku}.JRTCKXETXF.6YS6EN2CT7"
    price = {
        "unit": unit,
        "endRange": "Inf",
        "beginRange": "0",
        "description": description,
        "appliesTo": [],
        "rateCode": dimension,
        "pricePerUnit": {"USD": usd},
    }
    return {
        "product": {"productFamily": family, "sku": sku, "attributes": dict(attributes)},
        "serviceCode": "AmazonEC2",
        "terms": {
            "OnDemand": {
                term: {
                    "priceDimensions": {dimension: price},
                    "sku": sku,
                    "effectiveDate": "2026-11-01T00:00:00Z",
                    "offerTermCode": "JRTCKXETXF",
                    "termAttributes": {},
                }
            }
        },
        "version": "20261119000000",
        "publicationDate": "2026-11-19T00:00:00Z",
    }
