"""Host loops: candidates, destroy and repair, exact pieces. They own budgets and seeds."""
