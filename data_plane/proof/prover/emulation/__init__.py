"""The honest emulation of GPUs, for machines without any."""
