"""Kubernetes clusters: what a tenant gets in one, and what becomes of its nodes."""
