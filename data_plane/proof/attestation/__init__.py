"""Verifies NVIDIA's attestation of a GPU, on our side and offline. The entry is `verdict.verify`."""
