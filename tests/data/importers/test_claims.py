from __future__ import annotations

from typing import Any

import pytest
from kube import complaints, find_pod, gang, pod, read, thing

from topology.devices import DeviceConstraint, DeviceRequest, RequestChoice
from topology.model import ClaimNeed, Requirement, SelectorTerm

Obj = dict[str, Any]
ON_N0 = (SelectorTerm((), (Requirement("metadata.name", "In", ("n0",)),)),)
CLASS = "gpu.example.com"


def request(count: int | None = 1, **fields: Any) -> Obj:
    exactly = {"deviceClassName": CLASS, **({"count": count} if count else {}), **fields}
    return {"name": "r", "exactly": exactly}


def claim(name: str = "c", *requests: Obj, status: Obj | None = None, **devices: Any) -> Obj:
    spec = {"devices": {"requests": list(requests) or [request()], **devices}}
    return thing("resource.k8s.io/v1/ResourceClaim", name, "ml", spec=spec, status=status or {})


def allocated(*terms: Obj) -> Obj:
    selector = {"nodeSelector": {"nodeSelectorTerms": list(terms)}} if terms else {}
    return {"allocation": {"devices": {"results": []}, **selector}}


def asks(*counts: int, **fields: Any) -> Any:
    """The requests r of a claim, by what each counts."""
    choices = [RequestChoice("r", (DeviceRequest("r", 0, n, **fields),)) for n in counts]
    return {"requests": tuple(choices)}


DEVICES = [
    thing("resource.k8s.io/v1/DeviceClass", CLASS, spec={}),
    thing(
        "resource.k8s.io/v1/ResourceSlice",
        "s",
        spec={
            "driver": CLASS,
            "nodeName": "n0",
            "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "a"}],
        },
    ),
]
ON_N0_WIRE = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}
BY_NAME = [{"name": "gpu", "resourceClaimName": "c"}]
BY_TEMPLATE = [{"name": "gpu", "resourceClaimTemplateName": "t"}]


@pytest.mark.parametrize(
    ("obj", "want", "want_unmodelled"),
    [
        pytest.param(claim(), ClaimNeed("gpu", "ml/c", **asks(1)), [], id="one device"),
        pytest.param(
            claim("c", request(None)),
            ClaimNeed("gpu", "ml/c", **asks(1)),
            [],
            id="1 is the default",
        ),
        pytest.param(
            claim("c", request(2), request(3)),
            ClaimNeed("gpu", "ml/c", **asks(2, 3)),
            [],
            id="two requests of a class",
        ),
        pytest.param(
            claim("c", {"name": "r", "deviceClassName": CLASS, "count": 2}),
            ClaimNeed("gpu", "ml/c", **asks(2)),
            [],
            id="v1beta1 request",
        ),
        pytest.param(
            claim("c", request(adminAccess=True)),
            ClaimNeed("gpu", "ml/c", **asks(1, is_admin=True)),
            [],
            id="case 61: admin access",
        ),
        pytest.param(
            claim("c", request(None, allocationMode="All")),
            ClaimNeed("gpu", "ml/c", **asks(0)),
            [],
            id="case 62: all devices",
        ),
        pytest.param(
            claim(
                "c",
                {
                    "name": "r",
                    "firstAvailable": [
                        {"name": "a", "deviceClassName": CLASS, "count": 2},
                        {"name": "b", "deviceClassName": CLASS},
                    ],
                },
            ),
            ClaimNeed(
                "gpu",
                "ml/c",
                requests=(
                    RequestChoice("r", (DeviceRequest("r/a", 0, 2), DeviceRequest("r/b", 0, 1))),
                ),
            ),
            [],
            id="first available",
        ),
        pytest.param(
            claim(
                "c",
                request(selectors=[{"cel": {"expression": "true"}}]),
                constraints=[{"matchAttribute": "a/b"}],
            ),
            ClaimNeed(
                "gpu",
                "ml/c",
                requests=(RequestChoice("r", (DeviceRequest("r", 1),)),),
                constraints=(DeviceConstraint("a/b"),),
            ),
            [],
            id="selectors and constraints",
        ),
        pytest.param(
            claim(status=allocated(ON_N0_WIRE)),
            ClaimNeed("gpu", "ml/c", allocated_nodes=ON_N0, **asks(1)),
            [],
            id="case 63: allocated on one node",
        ),
        pytest.param(
            claim(status=allocated()),
            ClaimNeed("gpu", "ml/c", allocated_nodes=(), **asks(1)),
            [],
            id="allocated, usable anywhere",
        ),
        pytest.param(
            claim("other"),
            ClaimNeed("gpu", "ml/c"),
            ["resource claim ml/c is not in the snapshot"],
            id="claim that is not there",
        ),
    ],
)
def test_claims_by_name(obj: Obj, want: ClaimNeed, want_unmodelled: list[str]) -> None:
    snapshot = read(obj, *DEVICES, pod("p", resourceClaims=BY_NAME))
    spec = find_pod(snapshot).spec
    assert spec.claims == (want,)
    assert list(spec.unmodelled) == want_unmodelled
    assert complaints(snapshot) == []


TEMPLATE = thing(
    "resource.k8s.io/v1/ResourceClaimTemplate",
    "t",
    "ml",
    spec={"spec": {"devices": {"requests": [request(4)]}}},
)


@pytest.mark.parametrize(
    ("status", "want"),
    [
        pytest.param({}, (ClaimNeed("gpu", "", "ml/t", **asks(4)),), id="still to be made"),
        pytest.param(
            {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]},
            (ClaimNeed("gpu", "", "ml/t", **asks(1)),),
            id="made",
        ),
        pytest.param({"resourceClaimStatuses": [{"name": "gpu"}]}, (), id="not needed"),
    ],
)
def test_claims_by_template(status: Obj, want: tuple[ClaimNeed, ...]) -> None:
    snapshot = read(
        *DEVICES, claim(), TEMPLATE, pod("p", resourceClaims=BY_TEMPLATE, status=status)
    )
    assert find_pod(snapshot).spec.claims == want


def test_pods_of_a_template_still_to_be_used_share_a_spec() -> None:
    pods = [pod(f"p{i}", resourceClaims=BY_TEMPLATE) for i in range(3)]
    assert len(read(TEMPLATE, *pods).pods.specs) == 1


@pytest.mark.parametrize(
    ("source", "entries", "want"),
    [
        pytest.param(
            {"resourceClaimName": "c"},
            BY_NAME,
            ClaimNeed("gpu", "ml/c", shared_by_group=True, **asks(1)),
            id="same claim",
        ),
        pytest.param(
            {"resourceClaimTemplateName": "t"},
            BY_TEMPLATE,
            ClaimNeed("gpu", "ml/made", "ml/t", True, ON_N0, **asks(1)),
            id="claim made for the group",
        ),
        pytest.param(
            {"resourceClaimTemplateName": "other"},
            BY_TEMPLATE,
            ClaimNeed("gpu", "", "ml/t", **asks(4)),
            id="same name, other source",
        ),
    ],
)
def test_members_share_the_claim_of_their_group(
    source: Obj, entries: list[Obj], want: ClaimNeed
) -> None:
    group = gang("g", resourceClaims=[{"name": "gpu", **source}])
    group["status"] = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "made"}]}
    snapshot = read(
        group,
        *DEVICES,
        claim(),
        claim("made", status=allocated(ON_N0_WIRE)),
        TEMPLATE,
        pod("p", group="g", resourceClaims=entries),
    )
    assert find_pod(snapshot).spec.claims == (want,)


@pytest.mark.parametrize(
    ("obj", "want_field"),
    [
        pytest.param(
            claim("c", {"name": "r", "exactly": {}}),
            "spec.devices.requests[0].exactly.deviceClassName",
            id="no class",
        ),
        pytest.param(
            claim("c", request(-1)), "spec.devices.requests[0].exactly.count", id="negative count"
        ),
        pytest.param(
            claim(status=allocated({"matchFields": 5})),
            "status.allocation.nodeSelector",
            id="selector",
        ),
    ],
)
def test_bad_claims_are_reported(obj: Obj, want_field: str) -> None:
    assert complaints(read(obj)) == [("ml/c", want_field)]


@pytest.mark.parametrize(
    ("objects", "want_warning"),
    [
        pytest.param(
            [], "1 pods use resource claims or templates that are not in the snapshot", id="claim"
        ),
        pytest.param(
            [claim(), DEVICES[0]], "1 resource claims ask for device classes", id="no slices"
        ),
        pytest.param([claim(), DEVICES[1]], "1 resource claims ask for", id="no device class"),
    ],
)
def test_says_what_is_missing(objects: list[Obj], want_warning: str) -> None:
    snapshot = read(*objects, pod("p", resourceClaims=BY_NAME))
    assert any(want_warning in w for w in snapshot.warnings)
    assert find_pod(snapshot).spec.claims == (ClaimNeed("gpu", "ml/c"),)
    assert len(find_pod(snapshot).spec.unmodelled) == 1
