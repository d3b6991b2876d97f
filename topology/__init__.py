"""What a cluster is: model, plan, levels, graph and tensors. Imports nothing of ours."""
