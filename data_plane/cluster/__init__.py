"""Kubernetes clusters: the servers of ours that run them, what a tenant gets in one, and what becomes of nodes."""
