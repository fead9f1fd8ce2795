"""Prometheus remote write 1.0: samples of machines as time series."""
