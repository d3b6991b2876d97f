"""What kube-scheduler itself would do: greedy, in its order, one frozen assignment for victims."""
