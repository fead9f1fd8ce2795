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


def products(region: str) -> Iterator[dict[str, Any]]:
    """Every product of a region."""
    for native_type, usd in PRICES.items():
        if not zones_of(native_type, region):
            continue
        for other, price in _VARIANTS:
            yield _product(native_type, region, {**_ON_DEMAND, **other}, price or usd)


def matching(filters: list[Mapping[str, str]]) -> list[str]:
    """The products that match every filter, each as a JSON text."""
    wanted = {each["Field"]: each["Value"] for each in filters if each["Type"] == "TERM_MATCH"}
    found = products(wanted.get("regionCode", "us-east-1"))
    return [json.dumps(each) for each in found if wanted.items() <= each["product"]["attributes"].items()]


def _product(native_type: str, region: str, attributes: Mapping[str, str], usd: str) -> dict[str, Any]:
    sku = (
        hashlib.sha256(f"{native_type} {region} {sorted(attributes.items())}".encode())
        .hexdigest()[:16]
        .upper()
    )
    term, dimension = f"{sku}.JRTCKXETXF", f"{sku}.JRTCKXETXF.6YS6EN2CT7"
    price = {
        "unit": "Hrs",
        "endRange": "Inf",
        "beginRange": "0",
        "description": f"${usd} per On Demand {attributes['operatingSystem']} {native_type} Instance Hour",
        "appliesTo": [],
        "rateCode": dimension,
        "pricePerUnit": {"USD": usd},
    }
    return {
        "product": {
            "productFamily": "Compute Instance",
            "sku": sku,
            "attributes": {
                "instanceType": native_type,
                "instanceFamily": "GPU instance",
                "regionCode": region,
                "locationType": "AWS Region",
                "servicecode": "AmazonEC2",
                "vcpu": str(vcpus_of(native_type)),
                "gpu": str(gpus_of(native_type)[1]),
                **attributes,
            },
        },
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
