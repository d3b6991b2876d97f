"""Words of `repack` to a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from builders import RACK, make_group, make_node, make_pods, make_snapshot

from gangplan.move_questions import choose_drained, choose_movers, parse_free
from topology.errors import RequestError
from topology.move_request import FreeGoal

if TYPE_CHECKING:
    from topology.model import Snapshot


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("x.io/rack:2", FreeGoal("x.io/rack", None, 2), id="any two"),
        pytest.param("x.io/rack=r1:1", FreeGoal("x.io/rack", "r1", 1), id="one by name"),
        pytest.param("x.io/rack=r1", FreeGoal("x.io/rack", "r1", 1), id="by name, number left out"),
    ],
)
def test_parse_free(text: str, want: FreeGoal) -> None:
    assert parse_free(text) == want


@pytest.mark.parametrize(
    "text", ["", "rack", "rack:", ":1", "rack:x", "rack:-1", "rack=:1", "=a:1", "rack=a:2", "r:²"]
)
def test_parse_free_refuses(text: str) -> None:
    with pytest.raises(RequestError, match="--free"):
        parse_free(text)


def make_fleet() -> Snapshot:
    return make_snapshot(
        [make_node(name, rack=name[0]) for name in ("a0", "a1", "b0")],
        make_pods("g", 2, group="ml/g", on=["a0", "a1"]),
        make_pods("wait", 1),
        make_pods("o", 1, on="b0", namespace="other"),
        groups=[make_group("ml/g", 2)],
    )


@pytest.mark.parametrize(
    ("texts", "want"),
    [
        pytest.param(["a0"], ("a0",), id="a node"),
        pytest.param(["b0,a0"], ("a0", "b0"), id="two nodes"),
        pytest.param([f"{RACK}=a"], ("a0", "a1"), id="labels"),
        pytest.param([f"{RACK}=a", "b0"], ("a0", "a1", "b0"), id="both"),
    ],
)
def test_choose_drained(texts: list[str], want: tuple[str, ...]) -> None:
    assert choose_drained(make_fleet(), texts) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("node", "write a name, or labels", id="no such node"),
        pytest.param(f"{RACK}=z", "no node that was read has these labels", id="no such label"),
        pytest.param("pool in (a", "--drain: cannot read", id="half a selector"),
    ],
)
def test_choose_drained_refuses(text: str, want: str) -> None:
    with pytest.raises(RequestError, match=want):
        choose_drained(make_fleet(), [text])


def choose(**options: Any) -> dict[str, Any]:
    defaults: dict[str, Any] = {"movable": None, "movable_groups": None, "keep": ()}
    return choose_movers(make_fleet(), **{**defaults, **options})


def test_choose_movers_in_a_namespace() -> None:
    assert choose(namespace="other")["movable"] == ("other/o-0",)
    assert choose(namespace="ml")["movable"] == ("ml/g-0", "ml/g-1")
    assert choose(namespace="ml", movable_groups=["ml/g"])["movable"] == ("ml/g-0", "ml/g-1")


@pytest.mark.parametrize(
    ("options", "want"),
    [
        pytest.param({"movable": ["ml/x"]}, "--movable ml/x: no such pod", id="no pod"),
        pytest.param({"movable": ["ml/wait-0"]}, "no such running pod", id="waits itself"),
        pytest.param({"movable_groups": ["ml/x"]}, "--movable-groups ml/x", id="no group"),
        pytest.param({"keep": ["ml/x"]}, "--keep ml/x: no such pod or group", id="nothing to keep"),
    ],
)
def test_choose_movers_refuses(options: dict[str, Any], want: str) -> None:
    with pytest.raises(RequestError, match=want):
        choose(**options)
