"""What-if scenarios: a file of changes -> snapshots in which they have happened."""
