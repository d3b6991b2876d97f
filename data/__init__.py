"""In and out: Kubernetes objects, Parquet snapshots, synthetic fleets. Imports topology only."""
