"""Topology requests of Kueue: the field of a pod set, or the annotations of a pod template.

Source: kubernetes-sigs/kueue, apis/kueue/v1beta2 (PodSetTopologyRequest) and pkg/util/tas.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from data.importers.base import ReadProblem
from data.importers.fields import read_int, read_list, read_text
from data.importers.topologies import Levels, make_path, make_terms
from topology.model import SliceTerm

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from data.importers.base import ImportedPod
    from topology.model import TopologyTerm

__all__ = [
    "TopologyRequest",
    "asks_for_topology",
    "find_ignored",
    "read_annotations",
    "read_request",
]

_PREFIX: Final = "kueue.x-k8s.io/podset-"
_REQUIRED: Final = _PREFIX + "required-topology"
_PREFERRED: Final = _PREFIX + "preferred-topology"
_UNCONSTRAINED: Final = _PREFIX + "unconstrained-topology"
_SLICE_KEY: Final = _PREFIX + "slice-required-topology"
_SLICE_SIZE: Final = _PREFIX + "slice-size"
_SLICES: Final = _PREFIX + "slice-required-topology-constraints"
_GROUP_NAME: Final = _PREFIX + "group-name"
_ASKS: Final = (_REQUIRED, _PREFERRED, _UNCONSTRAINED, _SLICE_KEY, _SLICES)


@dataclass(frozen=True, slots=True)
class TopologyRequest:
    """What a pod set asks of the topology, in node label keys."""

    required: str = ""
    preferred: str = ""
    group_name: str = ""
    """Pod sets that share it go into one domain."""
    slices: tuple[tuple[str, int], ...] = ()
    """(key, pods), outer to inner."""
    index_label: str = ""
    subgroup_label: str = ""
    """Label with the index of the run of pods (one child Job) the index label counts in."""
    subgroup_count: int = 0
    is_present: bool = False

    @property
    def keys(self) -> frozenset[str]:
        """Every node label it names."""
        return frozenset({self.required, self.preferred, *(key for key, _ in self.slices)} - {""})

    def make_terms(self, levels: Levels) -> tuple[tuple[TopologyTerm, ...], str]:
        """Return the terms on all pods, and why Kueue would refuse them, or ""."""
        return make_terms(levels, self.required, self.preferred)

    def make_slices(self, levels: Levels) -> tuple[tuple[SliceTerm, ...], str]:
        """Return the terms on runs of pods, and why Kueue would refuse them, or ""."""
        terms: list[SliceTerm] = []
        for key, size in self.slices:
            path = make_path(levels, key)
            if path is None:
                return (), f'no requested topology level: "{key}" is not in Topology {levels.name}'
            terms.append(SliceTerm(path, size))
        return tuple(terms), ""

    def rank_of(self, labels: Mapping[str, str], count: int, index: int) -> int:
        """Return the rank of a pod in its pod set.

        Args:
          labels: Of the pod.
          count: Pods of the pod set.
          index: Its index inside its run.
        """
        text = labels.get(self.subgroup_label, "") if self.subgroup_label else ""
        if index < 0 or not self.subgroup_count or not text.isdigit():
            return index
        return int(text[:9]) * (count // self.subgroup_count) + index


def asks_for_topology(annotations: Mapping[str, str]) -> bool:
    """Tell whether a pod (template) carries a topology request."""
    return any(key in annotations for key in _ASKS)


def find_ignored(pods: Iterable[ImportedPod]) -> tuple[str, ...]:
    """Return why a group of another API is only conditional: requests only a Workload explains."""
    if any(asks_for_topology(pod.annotations) for pod in pods):
        return ("Kueue topology annotations without a Workload in the snapshot are not followed",)
    return ()


def read_request(pod_set: Mapping[str, Any], at: str) -> TopologyRequest | None:
    """Read `topologyRequest` of a pod set, None when it has none."""
    if pod_set.get("topologyRequest") is None:
        return None
    request = pod_set["topologyRequest"]
    at = f"{at}.topologyRequest"
    layers = read_list(request, "podsetSliceRequiredTopologyConstraints", at=at)
    single = read_text(request, "podSetSliceRequiredTopology", at=at)
    if layers:
        slices = _read_layers(layers, f"{at}.podsetSliceRequiredTopologyConstraints")
    elif single:
        slices = ((single, read_int(request, "podSetSliceSize", minimum=1, at=at)),)
    else:
        slices = ()
    return TopologyRequest(
        required=read_text(request, "required", at=at),
        preferred=read_text(request, "preferred", at=at),
        group_name=read_text(request, "podSetGroupName", at=at),
        slices=slices,
        index_label=read_text(request, "podIndexLabel", at=at),
        subgroup_label=read_text(request, "subGroupIndexLabel", at=at),
        subgroup_count=read_int(request, "subGroupCount", 0, at=at),
        is_present=True,
    )


def read_annotations(annotations: Mapping[str, str], at: str) -> TopologyRequest:
    """Read the user's form: annotations of a pod or pod template.

    Args:
      annotations: All of the pod or template.
      at: Path of the annotations in their object, for messages.
    """
    slices: tuple[tuple[str, int], ...] = ()
    if _SLICES in annotations:
        field = f"{at}.{_SLICES}"
        try:
            layers = json.loads(annotations[_SLICES])
        except (ValueError, RecursionError) as error:
            raise ReadProblem(field, f"is not JSON ({error}); correct it") from error
        if not isinstance(layers, list) or not all(isinstance(x, dict) for x in layers):
            raise ReadProblem(field, "is not a JSON list of objects; make it one")
        slices = _read_layers(layers, field)
    elif _SLICE_KEY in annotations:
        text = annotations.get(_SLICE_SIZE, "")
        if not (text.isascii() and text.isdigit() and 0 < len(text) <= 9 and int(text)):
            raise ReadProblem(
                f"{at}.{_SLICE_SIZE}", f"is {text!r:.40}; set it to a positive number"
            )
        slices = ((annotations[_SLICE_KEY], int(text)),)
    return TopologyRequest(
        required=annotations.get(_REQUIRED, ""),
        preferred=annotations.get(_PREFERRED, ""),
        group_name=annotations.get(_GROUP_NAME, ""),
        slices=slices,
        is_present=asks_for_topology(annotations),
    )


def _read_layers(layers: list[dict[str, Any]], field: str) -> tuple[tuple[str, int], ...]:
    found: list[tuple[str, int]] = []
    for i, layer in enumerate(layers):
        at = f"{field}[{i}]"
        key, size = read_text(layer, "topology", at=at), read_int(layer, "size", minimum=1, at=at)
        if not key:
            raise ReadProblem(f"{at}.topology", "is missing; name a level of the Topology")
        if found and found[-1][1] % size:
            raise ReadProblem(
                f"{at}.size", f"is {size}, which does not divide {found[-1][1]} of the layer above"
            )
        found.append((key, size))
    return tuple(found)
