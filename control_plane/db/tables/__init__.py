"""The tables, a file per wing. They hold no methods and no queries; CHECKs come from the domain's enums.

A table's marks (`marks.py`) say who owns its rows, whether it is append-only, and what the API may write.
"""
