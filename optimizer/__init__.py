"""Decisions: problems, kernels, searches, bounds, causes, and the independent verifier."""
