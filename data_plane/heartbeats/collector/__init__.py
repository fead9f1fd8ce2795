"""The collector: a process on the hub that agents report to. It has no secret, and needs nothing but Python."""
