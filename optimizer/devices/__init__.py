"""Devices of Dynamic Resource Allocation: which devices claims get on a node, and how many pods."""
