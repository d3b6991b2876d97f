"""Re-packing: which running work to move where, and in which order."""
