"""A GPU at hand, measured: what `python -m data_plane.device_report` does, and the report it writes."""
