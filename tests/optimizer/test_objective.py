from __future__ import annotations

import pytest

from optimizer.objective import (
    CRITERIA,
    Level,
    Placed,
    VictimLevel,
    build_levels,
    build_steps,
    parse_objective,
)
from topology.errors import RequestError

DEFAULT = ("max:priority", "max:gpusPlaced", "min:fragmentation")


@pytest.mark.parametrize("criterion", CRITERIA)
def test_every_criterion_has_two_directions(criterion: str) -> None:
    assert parse_objective([f"max:{criterion}"]) == (("max", criterion),)
    assert parse_objective([f"min:{criterion}"]) == (("min", criterion),)


@pytest.mark.parametrize(
    ("objective", "want_message"),
    [
        pytest.param([], "is empty; name at least one", id="nothing"),
        pytest.param([""], "'': write max:CRITERION", id="an empty word"),
        pytest.param(["gpusPlaced"], "'gpusPlaced': write max:CRITERION", id="no direction"),
        pytest.param(["most:gpusPlaced"], "write max:CRITERION or min:", id="another direction"),
        pytest.param(["Max:gpusPlaced"], "write max:CRITERION or min:", id="capitals"),
        pytest.param(["max:speed"], "unknown criterion 'speed'; use one of groups", id="unknown"),
        pytest.param(["max:"], "unknown criterion ''", id="no criterion"),
        pytest.param(["max:gpus:Placed"], "unknown criterion 'gpus:Placed'", id="two colons"),
        pytest.param(["max:moves", "min:moves"], "moves is named twice", id="twice"),
        pytest.param(["max:moves", "min:"], "unknown criterion ''", id="the second is wrong"),
    ],
)
def test_refuses(objective: list[str], want_message: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_objective(objective)
    assert str(caught.value).startswith("--objective: ")
    assert want_message in str(caught.value)


LOW, HIGH = Placed(5, groups=1, pods=8, gpus=64), Placed(10, groups=1, pods=1, gpus=1)
CPU = Placed(7, groups=1, pods=3, gpus=0)


@pytest.mark.parametrize(
    ("objective", "units", "want_levels"),
    [
        pytest.param(
            DEFAULT,
            [LOW, HIGH, LOW],
            [("priority", 1, 10), ("priority", 1, 5)],
            id="the default: a level for each priority, which settles the GPUs",
        ),
        pytest.param(
            DEFAULT,
            [LOW, CPU],
            [("priority", 1, 5), ("podsPlaced", 1, None)],
            id="units without GPUs: pods decide last",
        ),
        pytest.param(DEFAULT, [CPU], [("gpusPlaced", 1, None), ("podsPlaced", 1, None)], id="cpu"),
        pytest.param(DEFAULT, [], [("gpusPlaced", 1, None)], id="nothing to place"),
        pytest.param(
            ["max:gpusPlaced", "max:priority"],
            [LOW, HIGH],
            [("gpusPlaced", 1, None), ("priority", 1, 10), ("priority", 1, 5)],
            id="GPUs before priorities",
        ),
        pytest.param(
            ["max:groupsPlaced", "min:podsPlaced"],
            [LOW, CPU],
            [("groupsPlaced", 1, None), ("podsPlaced", -1, None)],
            id="named pods are not added again",
        ),
        pytest.param(
            ["max:weightedGpus"], [LOW], [("weightedGpus", 1, None)], id="priority times GPUs"
        ),
        pytest.param(
            ["min:moves", "min:victimPods"],
            [LOW],
            [("gpusPlaced", 1, None)],
            id="what does not depend on placing decides nothing",
        ),
    ],
)
def test_build_levels(
    objective: list[str], units: list[Placed], want_levels: list[tuple[str, int, int | None]]
) -> None:
    found = [(lv.criterion, lv.sign, lv.priority) for lv in build_levels(objective, units)]
    assert found == want_levels


@pytest.mark.parametrize(
    ("level", "want_value"),
    [
        pytest.param(Level("groupsPlaced"), 3, id="groups"),
        pytest.param(Level("podsPlaced"), 12, id="pods"),
        pytest.param(Level("gpusPlaced"), 65, id="GPUs"),
        pytest.param(Level("gpusPlaced", -1), -65, id="as few GPUs as can be"),
        pytest.param(Level("weightedGpus"), 330, id="5 x 64 + 10 x 1"),
        pytest.param(Level("priority", 1, 10), 1, id="GPUs of priority 10"),
        pytest.param(Level("priority", 1, 7), 0, id="no GPUs of priority 7"),
    ],
)
def test_value(level: Level, want_value: int) -> None:
    assert level.value([LOW, HIGH, CPU]) == want_value


@pytest.mark.parametrize(
    ("objective", "better", "worse"),
    [
        pytest.param(DEFAULT, [HIGH], [LOW], id="1 GPU of priority 10 before 64 of priority 5"),
        pytest.param(DEFAULT, [HIGH, LOW], [HIGH], id="then those of priority 5"),
        pytest.param(["max:gpusPlaced"], [LOW], [HIGH], id="GPUs alone"),
        pytest.param(["max:weightedGpus"], [LOW], [HIGH], id="320 before 10"),
        pytest.param(["min:gpusPlaced"], [HIGH], [LOW], id="as few GPUs as can be"),
        pytest.param(
            ["max:groupsPlaced", "max:gpusPlaced"], [HIGH, CPU], [LOW], id="groups before GPUs"
        ),
        pytest.param(DEFAULT, [LOW, CPU], [LOW], id="pods without GPUs, all else equal"),
        pytest.param(
            DEFAULT,
            [Placed(-1, gpus=8), Placed(2**31 - 1, gpus=1)],
            [Placed(-1, gpus=2**40)],
            id="the whole range of priorities",
        ),
    ],
)
def test_levels_compare_in_order(
    objective: list[str], better: list[Placed], worse: list[Placed]
) -> None:
    levels = build_levels(objective, better + worse)
    assert [lv.value(better) for lv in levels] > [lv.value(worse) for lv in levels]


WITH_GPUS = [Placed(10, 1, 2, 16), Placed(5, 1, 1, 8)]
WITHOUT = [Placed(10, 1, 2, 0)]
PODS = VictimLevel("victimPods")


@pytest.mark.parametrize(
    ("objective", "units", "want"),
    [
        pytest.param(
            ("max:priority", "min:victimUnits"),
            WITH_GPUS,
            (
                Level("priority", 1, 10),
                Level("priority", 1, 5),
                VictimLevel("victimUnits"),
                PODS,
            ),
            id="victim pods come last",
        ),
        pytest.param(
            ("min:weightedVictimGpus",),
            WITH_GPUS[:1],
            (Level("priority", 1, 10), VictimLevel("weightedVictimGpus"), PODS),
            id="placing comes first where it is not named",
        ),
        pytest.param(
            ("min:victimPods", "max:groupsPlaced"),
            WITH_GPUS,
            (PODS, Level("groupsPlaced")),
            id="as named",
        ),
        pytest.param(
            ("max:priority", "min:pdbViolations"),
            WITHOUT,
            (Level("gpusPlaced"), Level("podsPlaced"), VictimLevel("pdbViolations"), PODS),
            id="pods without GPUs are placed before victims count",
        ),
        pytest.param(
            ("max:groupsPlaced", "min:fragmentation", "min:moves"),
            WITH_GPUS,
            (Level("groupsPlaced"), PODS),
            id="what is not searched is left out",
        ),
    ],
)
def test_steps(objective: tuple[str, ...], units: list[Placed], want: tuple[object, ...]) -> None:
    assert build_steps(objective, units) == want


def test_victims_are_never_maximised() -> None:
    with pytest.raises(RequestError, match="max:victimPods: evictions are only ever made few"):
        build_steps(("max:groupsPlaced", "max:victimPods"), WITH_GPUS)
