"""The price book of a cloud with emulated machines: the shipped one, but its SKUs demand no proof."""

from pathlib import Path

SKU = "h100-sxm.1x"
PROVEN_SKU = "h100-sxm-proven.1x"
"""The same SKU, but it demands proof, so no emulated machine can serve it."""


def price_book() -> str:
    """In TOML."""
    shipped = Path("control_plane/price_book.toml").read_text()
    _, *entries = shipped.split("[[sku]]")
    first = next(entry for entry in entries if f'name = "{SKU}"' in entry)
    listed = [f'[[sku]]\nproof = "listed"{entry.rstrip()}\n' for entry in entries]
    proven = f'[[sku]]\nproof = "proven"{first.rstrip().replace(SKU, PROVEN_SKU)}\n'
    return "\n".join([*listed, proven])
