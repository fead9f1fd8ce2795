"""The tables, a file per wing. No methods, no queries; CHECKs come from the domain's enums.

A table's marks (`marks.py`) say whose rows it holds, whether it is append-only, and what the API may write.
"""
