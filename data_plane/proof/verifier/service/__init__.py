"""The verifier as a process of its own: the same checks as in process, over gRPC, on as many machines as it takes."""
