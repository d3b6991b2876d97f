from __future__ import annotations

import pytest
from builders import make_node, make_spec

from topology.model import (
    HOSTNAME,
    LabelSelector,
    Requirement,
    SelectorTerm,
    Taint,
    Toleration,
)
from topology.selectors import (
    find_untolerated,
    matches_node_affinity,
    matches_requirement,
    matches_selector,
    matches_terms,
    tolerates,
)

LABELS = {"app": "train", "size": "8", "empty": ""}


@pytest.mark.parametrize(
    ("key", "operator", "values", "want"),
    [
        pytest.param("app", "In", ("serve", "train"), True, id="In, listed"),
        pytest.param("app", "In", ("serve",), False, id="In, not listed"),
        pytest.param("gone", "In", ("",), False, id="In, absent is not the empty value"),
        pytest.param("empty", "In", ("",), True, id="In, the empty value"),
        pytest.param("app", "NotIn", ("train",), False, id="NotIn, listed"),
        pytest.param("gone", "NotIn", ("train",), True, id="NotIn holds where the key is absent"),
        pytest.param("empty", "Exists", (), True, id="Exists, empty value"),
        pytest.param("gone", "Exists", (), False, id="Exists, absent"),
        pytest.param("gone", "DoesNotExist", (), True, id="DoesNotExist, absent"),
        pytest.param("empty", "DoesNotExist", (), False, id="DoesNotExist, empty value"),
        pytest.param("size", "Gt", ("7",), True, id="Gt, larger"),
        pytest.param("size", "Gt", ("8",), False, id="Gt, equal"),
        pytest.param("size", "Lt", ("9",), True, id="Lt, smaller"),
        pytest.param("size", "Gt", ("10",), False, id="Gt compares numbers, not text"),
        pytest.param("size", "Gt", ("-1",), True, id="Gt, negative"),
        pytest.param("size", "Gt", ("+7",), True, id="Gt, plus sign"),
        pytest.param("size", "Gt", ("007",), True, id="Gt, leading zeros"),
        pytest.param("size", "Gt", (f"{7:030}",), True, id="Gt, many leading zeros"),
        pytest.param("size", "Lt", (str(2**63 - 1),), True, id="the largest int64"),
        pytest.param("size", "Lt", (str(2**63),), False, id="one more is no int64"),
        pytest.param("size", "Gt", (str(-(2**63)),), True, id="the smallest int64"),
        pytest.param("size", "Gt", (str(-(2**63) - 1),), False, id="one less is no int64"),
        pytest.param("size", "Gt", ("7", "6"), False, id="Gt takes one value"),
        pytest.param("size", "Gt", (), False, id="Gt takes a value"),
        pytest.param("size", "Gt", ("7.5",), False, id="Gt, a fraction"),
        pytest.param("size", "Gt", ("1_0",), False, id="Gt, an underscore"),
        pytest.param("size", "Lt", (" 9",), False, id="Lt, a blank"),
        pytest.param("size", "Lt", ("9\n",), False, id="Lt, a line break"),
        pytest.param("size", "Lt", ("٩",), False, id="Lt, digits of another script"),
        pytest.param("app", "Lt", ("9",), False, id="Lt, the label is no number"),
        pytest.param("gone", "Lt", ("9",), False, id="Lt, absent"),
        pytest.param("app", "Like", ("train",), False, id="an operator that does not exist"),
    ],
)
def test_matches_requirement(key: str, operator: str, values: tuple[str, ...], want: bool) -> None:
    assert matches_requirement(Requirement(key, operator, values), LABELS) is want


TRAIN = Requirement("app", "In", ("train",))
SERVE = Requirement("app", "In", ("serve",))


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        pytest.param(None, False, id="null selects nothing"),
        pytest.param(LabelSelector(), True, id="empty selects everything"),
        pytest.param(LabelSelector((TRAIN,)), True, id="one requirement"),
        pytest.param(LabelSelector((TRAIN, SERVE)), False, id="all must hold"),
    ],
)
def test_matches_selector(selector: LabelSelector | None, want: bool) -> None:
    assert matches_selector(selector, LABELS) is want


HOST = Requirement(HOSTNAME, "In", ("n1",))
ELSEWHERE = Requirement(HOSTNAME, "NotIn", ("n1",))


def named(operator: str, *names: str, key: str = "metadata.name") -> SelectorTerm:
    return SelectorTerm(fields=(Requirement(key, operator, names),))


@pytest.mark.parametrize(
    ("terms", "want"),
    [
        pytest.param((), False, id="no terms match no node"),
        pytest.param((SelectorTerm(),), False, id="an empty term matches no node"),
        pytest.param((SelectorTerm((HOST,)),), True, id="expression"),
        pytest.param((SelectorTerm((HOST, ELSEWHERE)),), False, id="expressions are joined by and"),
        pytest.param((SelectorTerm((ELSEWHERE,)), SelectorTerm((HOST,))), True, id="terms by or"),
        pytest.param((named("In", "n0", "n1"),), True, id="name"),
        pytest.param((named("NotIn", "n1"),), False, id="not this name"),
        pytest.param((named("NotIn", "n2"),), True, id="not another name"),
        pytest.param((named("Exists"),), False, id="names know In and NotIn only"),
        pytest.param((named("NotIn", "x", key="spec.x"),), False, id="no other field"),
        pytest.param(
            (SelectorTerm((ELSEWHERE,), named("In", "n1").fields),), False, id="both must hold"
        ),
    ],
)
def test_matches_terms(terms: tuple[SelectorTerm, ...], want: bool) -> None:
    node = make_node("n1")
    assert matches_terms(terms, node) is want
    assert matches_node_affinity(make_spec(node_terms=terms), node) is want


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        pytest.param((), True, id="none"),
        pytest.param((("pool", "a"),), True, id="equal"),
        pytest.param((("pool", "b"),), False, id="another value"),
        pytest.param((("gone", ""),), False, id="absent is not the empty value"),
        pytest.param((("pool", "a"), (HOSTNAME, "n2")), False, id="all must hold"),
    ],
)
def test_node_selector(selector: tuple[tuple[str, str], ...], want: bool) -> None:
    node = make_node("n1", labels={"pool": "a"})
    assert matches_node_affinity(make_spec(node_selector=selector), node) is want
    # Beside a term that matches, the selector still decides.
    both = make_spec(node_selector=selector, node_terms=(SelectorTerm((HOST,)),))
    assert matches_node_affinity(both, node) is want


@pytest.mark.parametrize(
    ("toleration", "taint", "want"),
    [
        pytest.param(Toleration("gpu"), Taint("gpu"), True, id="equal, no value"),
        pytest.param(Toleration("gpu", value="a"), Taint("gpu", "a"), True, id="equal value"),
        pytest.param(Toleration("gpu", value="a"), Taint("gpu", "b"), False, id="other value"),
        pytest.param(Toleration("gpu", ""), Taint("gpu"), True, id="no operator is Equal"),
        pytest.param(Toleration("gpu", "Exists"), Taint("gpu", "b"), True, id="Exists"),
        pytest.param(Toleration("gpu", "Exists"), Taint("cpu"), False, id="other key"),
        pytest.param(Toleration("", "Exists"), Taint("any", "x"), True, id="everything"),
        pytest.param(Toleration("", "Equal"), Taint("any"), False, id="no key needs Exists"),
        pytest.param(
            Toleration("gpu", "Exists", effect="NoExecute"), Taint("gpu"), False, id="other effect"
        ),
        pytest.param(
            Toleration("", "Exists", effect="NoExecute"),
            Taint("gpu", effect="NoExecute"),
            True,
            id="everything of an effect",
        ),
        pytest.param(Toleration("sla", "Gt", "900"), Taint("sla", "950"), True, id="Gt"),
        pytest.param(Toleration("sla", "Gt", "950"), Taint("sla", "950"), False, id="Gt, equal"),
        pytest.param(Toleration("sla", "Lt", "900"), Taint("sla", "800"), True, id="Lt"),
        pytest.param(Toleration("sla", "Lt", "900"), Taint("sla", "low"), False, id="no number"),
        pytest.param(Toleration("gpu", "Near"), Taint("gpu"), False, id="unknown operator"),
    ],
)
def test_tolerates(toleration: Toleration, taint: Taint, want: bool) -> None:
    assert tolerates(toleration, taint) is want


CORDON = Taint("node.kubernetes.io/unschedulable")
SOFT = Taint("soft", effect="PreferNoSchedule")


@pytest.mark.parametrize(
    ("taints", "cordoned", "tolerations", "want"),
    [
        pytest.param((), False, (), None, id="no taints"),
        pytest.param((Taint("a"), Taint("b")), False, (), Taint("a"), id="the first"),
        pytest.param(
            (Taint("a"), Taint("b")), False, (Toleration("a"),), Taint("b"), id="the one left over"
        ),
        pytest.param((SOFT,), False, (), None, id="PreferNoSchedule keeps nobody away"),
        pytest.param((), True, (), CORDON, id="cordoned"),
        pytest.param((), True, (Toleration(CORDON.key, "Exists"),), None, id="cordon tolerated"),
        pytest.param((Taint("a"),), True, (Toleration("a"),), CORDON, id="the cordon comes last"),
    ],
)
def test_find_untolerated(
    taints: tuple[Taint, ...],
    cordoned: bool,
    tolerations: tuple[Toleration, ...],
    want: Taint | None,
) -> None:
    node = make_node("n1", taints=taints, unschedulable=cordoned)
    assert find_untolerated(make_spec(tolerations=tolerations), node) == want
