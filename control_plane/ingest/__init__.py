"""The ingest process: it receives what the agents of machines measure, and adds it to the database.

Whoever sends is hostile. A credential of a lease is all that a sender has, and all that it can exhaust is its own
allowance (`limits.py`). The process may add samples and reads no table.
"""
