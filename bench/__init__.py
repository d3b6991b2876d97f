"""Benchmarks: quality on instances with known optima, speed as ratios to named baselines."""
