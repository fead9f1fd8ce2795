"""Measures the GPUs of this machine and writes a report: `python -m data_plane.device_report`."""
