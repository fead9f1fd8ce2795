"""Collects the heartbeats of agents: the collector on the hub, and our side of it."""
