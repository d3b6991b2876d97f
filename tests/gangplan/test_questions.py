"""Words to requests."""

from __future__ import annotations

import pytest
from builders import make_group, make_node, make_pods, make_snapshot, make_spec

from gangplan.questions import choose_groups, parse_selector, split_objective
from topology.assemble import GroupRow
from topology.errors import RequestError
from topology.model import AffinityTerm, Group, LabelSelector, PodFlag, Requirement, Snapshot


@pytest.mark.parametrize(
    ("text", "want_requirements"),
    [
        pytest.param("a=b", [("a", "In", ("b",))], id="equal"),
        pytest.param("a==b", [("a", "In", ("b",))], id="double equal"),
        pytest.param("a!=b", [("a", "NotIn", ("b",))], id="not equal"),
        pytest.param("a=", [("a", "In", ("",))], id="empty value"),
        pytest.param("x.io/a in (b, c)", [("x.io/a", "In", ("b", "c"))], id="in a set"),
        pytest.param("a notin (b)", [("a", "NotIn", ("b",))], id="not in a set"),
        pytest.param("a", [("a", "Exists", ())], id="exists"),
        pytest.param("!a", [("a", "DoesNotExist", ())], id="absent"),
        pytest.param("in=b", [("in", "In", ("b",))], id="a key named in"),
        pytest.param(
            "a=b, c in (d,e) ,!f",
            [("a", "In", ("b",)), ("c", "In", ("d", "e")), ("f", "DoesNotExist", ())],
            id="several",
        ),
    ],
)
def test_parse_selector(
    text: str, want_requirements: list[tuple[str, str, tuple[str, ...]]]
) -> None:
    found = parse_selector(text)
    assert [(r.key, r.operator, r.values) for r in found.requirements] == want_requirements


@pytest.mark.parametrize("text", ["", "=b", "a in b", "a=b=c", "a in (b", "a b", ","])
def test_parse_selector_refuses(text: str) -> None:
    with pytest.raises(RequestError, match="--selector: cannot read"):
        parse_selector(text)


@pytest.mark.parametrize("text", ["priority", "most:priority", "max:speed", "", "max:priority,"])
def test_split_objective_refuses(text: str) -> None:
    with pytest.raises(RequestError, match="--objective: "):
        split_objective(text)


def make_fleet() -> Snapshot:
    """Two pending gangs, one of two subgroups, a running gang, and single pods."""
    labels = {"app": "train"}
    # A snapshot keeps the labels that selectors name, so some pod has to name `app`.
    term = AffinityTerm("zone", LabelSelector((Requirement("app", "Exists"),)))
    return make_snapshot(
        [make_node("n1")],
        make_pods("a", 2, group="ml/a", labels=labels),
        make_pods("b0", 1, group="ml/b#0"),
        make_pods("b1", 1, group="ml/b#1"),
        make_pods("run", 1, group="ml/run", on="n1"),
        make_pods("solo", 1, spec=make_spec(affinity=(term,)), labels=labels),
        make_pods("other", 1, namespace="dev"),
        make_pods("held", 1, namespace="dev", flags=PodFlag.GATED),
        groups=[
            make_group("ml/a", 2),
            make_group("ml/b", 2),
            make_group("ml/b#0", 1, parent="ml/b", kind="subgroup"),
            make_group("ml/b#1", 1, parent="ml/b", kind="subgroup"),
            make_group("ml/run", 1, parent="ml/tree"),
            GroupRow(Group("ml/tree", "composite", "v1beta1/CompositePodGroup")),
        ],
    )


@pytest.mark.parametrize(
    ("refs", "namespace", "selector", "want_groups"),
    [
        pytest.param([], None, None, None, id="everything pending"),
        pytest.param(["ml/b", "ml/a", "ml/b"], None, None, ("ml/a", "ml/b"), id="sorted, once"),
        pytest.param(["ml/tree"], None, None, ("ml/tree",), id="composite"),
        pytest.param(["dev/other-0"], None, None, ("dev/other-0",), id="a pod in no group"),
        pytest.param([], "ml", None, ("ml/a", "ml/b", "ml/solo-0"), id="namespace"),
        pytest.param([], None, "app=train", ("ml/a", "ml/solo-0"), id="selector"),
        pytest.param([], "dev", "!app", ("dev/other-0",), id="namespace and selector"),
        pytest.param(["a"], "ml", None, ("ml/a",), id="reference without namespace"),
        pytest.param([], "ml", "app=serve", (), id="nothing left"),
    ],
)
def test_choose_groups(
    refs: list[str],
    namespace: str | None,
    selector: str | None,
    want_groups: tuple[str, ...] | None,
) -> None:
    chosen = parse_selector(selector) if selector else None
    found = choose_groups(make_fleet(), refs, namespace=namespace, selector=chosen)
    assert found == want_groups


@pytest.mark.parametrize(
    ("refs", "namespace", "selector", "want_message"),
    [
        pytest.param(["ml/aa"], None, None, "did you mean ml/a", id="near miss"),
        pytest.param(["prod/run"], None, None, "did you mean ml/run", id="other namespace"),
        pytest.param(["ml/b#0"], None, None, "no such group", id="a subgroup"),
        pytest.param(["ml/a-0"], None, None, "is a pod of group ml/a; ask", id="a member"),
        pytest.param(["dev/held-0"], None, None, "for no node .gated.;", id="a gated pod"),
        pytest.param(["ml/a"], "dev", None, "leave no pending pod of it", id="outside -n"),
        pytest.param([], "dve", None, "did you mean dev", id="unknown namespace"),
        pytest.param([], None, "team=x", "has a label 'team'", id="label that was not kept"),
    ],
)
def test_choose_groups_refuses(
    refs: list[str], namespace: str | None, selector: str | None, want_message: str
) -> None:
    chosen = parse_selector(selector) if selector else None
    with pytest.raises(RequestError, match=want_message):
        choose_groups(make_fleet(), refs, namespace=namespace, selector=chosen)
