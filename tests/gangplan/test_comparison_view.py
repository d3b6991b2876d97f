"""Both plans side by side, as a table."""

from __future__ import annotations

from asking import ask
from kube import gang, node
from replaying import crowd, wait

from gangplan.comparison_view import show_comparison
from optimizer.objective import PREEMPT_OBJECTIVE


def test_victims_of_both() -> None:
    """What one plan evicts and the other spares stands in one row."""
    objects = [node("a"), node("b"), *crowd("a", 2, "a", gpus=4, priority=1)]
    objects += crowd("b", 2, "b", gpus=4, priority=3)
    objects += [gang("g", 2, priority=10), *wait(2, gpus=4, priority=10)]
    plan = ask(*objects, policy="compare", preempt=True, objective=PREEMPT_OBJECTIVE)
    assert plan.comparison is not None
    assert (
        show_comparison(plan, plan.comparison, wide=False)
        == """\
CRITERION               OPTIMIZE   KUBE-SCHEDULER 1.37   SAVED
groupsPlaced            1          1                     0
podsPlaced              2          2                     0
gpusPlaced              8          8                     0
weightedGpus            80         80                    0
victimPods              2          2                     0
victimUnits             2          2                     0
victimGpus              8          8                     0
weightedVictimGpus      8          16                    8
highestVictimPriority   1          3                     2
pdbViolations           0          0                     0

WOULD EVICT   OPTIMIZE   KUBE-SCHEDULER 1.37   NODES
ml/a0         1 pod      <none>                a
ml/a1         1 pod      1 pod                 a
ml/b1         <none>     1 pod                 b"""
    )


def test_groups_that_differ() -> None:
    """Nobody is evicted: no rows about victims."""
    objects = [node("n0"), node("n1"), gang("g", 9), *wait(8), *wait(1, start=8, gpus=8)]
    plan = ask(*objects, policy="compare")
    assert plan.comparison is not None
    assert (
        show_comparison(plan, plan.comparison, wide=True)
        == """\
CRITERION      OPTIMIZE   KUBE-SCHEDULER 1.37   SAVED
groupsPlaced   1          0                     1
podsPlaced     9          0                     9
gpusPlaced     16         0                     16
weightedGpus   0          0                     0

DIFFERS   PRIORITY   OPTIMIZE      KUBE-SCHEDULER 1.37   WHY NOT
ml/g      0          9 of 9 pods   0 of 9 pods           one greedy pass \
reaches 8 of the 9 it needs"""
    )
