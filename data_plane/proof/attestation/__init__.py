"""NVIDIA's attestation of a GPU, verified on our side and offline. `verdict.verify` is the door."""
