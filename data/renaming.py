"""Old names -> new ones, the same each time; which words are public and stay."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from topology.levels import is_topology_label
from topology.model import HOSTNAME, LabelSelector, Requirement

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from topology.model import SelectorTerm, Snapshot

__all__ = ["Renaming"]

_PUBLIC_DOMAINS: Final = (
    "kubernetes.io",
    "k8s.io",
    "x-k8s.io",
    "k8s.aws",
    "amazonaws.com",
    "amazon.com",
    "amd.com",
    "azure.com",
    "cambricon.com",
    "coreweave.cloud",
    "coreweave.com",
    "google.com",
    "habana.ai",
    "huawei.com",
    "intel.com",
    "karpenter.sh",
    "koordinator.sh",
    "kubeflow.org",
    "nvidia.com",
    "oraclecloud.com",
    "ray.io",
    "run.ai",
    "topograph.run",
    "volcano.sh",
    "hypernode",
)
"""Domains whose label keys, resources and device classes are the same for everybody."""
_PUBLIC_SCHEDULERS: Final = frozenset(
    {
        "default-scheduler",
        "kai-scheduler",
        "koord-scheduler",
        "scheduler-plugins-scheduler",
        "volcano",
    }
)
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}\Z")
_SEPARATORS: Final = re.compile(r"([/#])")


def _is_public(domain: str) -> bool:
    return any(domain == public or domain.endswith(f".{public}") for public in _PUBLIC_DOMAINS)


class _Names:
    """Numbers names in the order in which they are first seen."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._new: dict[str, str] = {}

    def __call__(self, old: str) -> str:
        """Return the new name; "" stands for none and stays."""
        if not old:
            return ""
        if old not in self._new:
            self._new[old] = self._pattern.format(len(self._new))
        return self._new[old]


class Renaming:
    """New names for the names of one snapshot.

    Each kind of name is replaced one to one; a number standing alone is an index and stays.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.namespace = _Names("namespace-{}")
        self.node = _Names("node-{}")
        self.queue = _Names("queue-{}")
        self.peers = _Names("peers-{}")
        self.claim = _Names("claim-{}")
        self.gone = _Names("gone-pod-{}")
        self.reason = _Names("not modelled (reason {})")
        self.device = _Names("device-{}")
        self.counter_set = _Names("counter-set-{}")
        self.counter = _Names("counter-{}")
        self.expression = _Names("expression {}")
        self._request = _Names("request-{}")
        self._pool = _Names("pool-{}")
        self._nodes = {node.name for node in snapshot.nodes}
        self._budget = _Names("budget-{}")
        self._group = _Names("group-{}")
        self._part = _Names("part-{}")
        self._key = _Names("example.com/key-{}")
        self._topology_domain = _Names("topology-{}.example.com")
        self._resource = _Names("resource-{}.example.com")
        self._class = _Names("class-{}.example.com")
        self._scheduler = _Names("scheduler-{}")
        self._values: dict[str, _Names] = {}
        self._compared = set(_find_compared_keys(snapshot))
        self._node_of_host: dict[str, str] = {}
        for node in snapshot.nodes:
            if HOSTNAME in node.labels:
                self._node_of_host.setdefault(node.labels[HOSTNAME], node.name)

    def key(self, key: str) -> str:
        """Return the new label or taint key; a level of the topology stays recognisable as one."""
        domain, _, last = key.rpartition("/")
        if not key or _is_public(domain):
            return key
        if is_topology_label(key):
            return f"{self._topology_domain(domain)}/{last}"
        return self._key(key)

    def value(self, key: str, value: str) -> str:
        """Return the new value of a label or taint with the (old) key.

        Integers stay where some selector asks which is greater.
        """
        if not value or (key in self._compared and _INTEGER.match(value)):
            return value
        if key == HOSTNAME and value in self._node_of_host:
            return self.node(self._node_of_host[value])
        if key not in self._values:
            last = self.key(key).rpartition("/")[2]
            word = last if is_topology_label(key) else "host" if key == HOSTNAME else "value"
            self._values[key] = _Names(f"{word}-{{}}")
        return self._values[key](value)

    def labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return the new labels."""
        return {self.key(k): self.value(k, v) for k, v in labels.items()}

    def requirement(self, requirement: Requirement) -> Requirement:
        """Return the new `matchExpressions` entry."""
        return Requirement(
            self.key(requirement.key),
            requirement.operator,
            tuple(self.value(requirement.key, v) for v in requirement.values),
        )

    def selector(self, selector: LabelSelector | None) -> LabelSelector | None:
        """Return the new label selector."""
        if selector is None:
            return None
        return LabelSelector(tuple(self.requirement(r) for r in selector.requirements))

    def part(self, name: str) -> str:
        """Return the new name of a subgroup, pod set or template."""
        return name if name.isdecimal() else self._part(name)

    def group_ref(self, ref: str) -> str:
        """Return the new reference: namespace, names of objects, and subgroups after "#"."""
        base, hash_, subgroup = ref.partition("#")
        namespace, *names = base.split("/")
        renamed = [n if n.isdecimal() else self._group(n) for n in names]
        parts = [
            text if text in ("/", "#") else self.part(text) for text in _SEPARATORS.split(subgroup)
        ]
        return "/".join([self.namespace(namespace), *renamed]) + hash_ + "".join(parts)

    def budget_ref(self, ref: str) -> str:
        """Return the new reference of a budget."""
        namespace, _, name = ref.partition("/")
        return f"{self.namespace(namespace)}/{self._budget(name)}"

    def claim_ref(self, ref: str) -> str:
        """Return the new name of a claim or claim template, with or without its namespace."""
        namespace, slash, name = ref.rpartition("/")
        return f"{self.namespace(namespace)}{slash}{self.claim(name)}"

    def resource(self, resource: str) -> str:
        """Return the new resource name; a whole accelerator stays recognisable as one."""
        domain, slash, last = resource.rpartition("/")
        if not slash or _is_public(domain):
            return resource
        return f"{self._resource(resource)}/{'gpu' if last == 'gpu' else 'piece'}"

    def device_class(self, name: str) -> str:
        """Return the new name of a DRA device class."""
        return name if _is_public(name) else self._class(name)

    def pool(self, name: str) -> str:
        """Return the new name of a device pool, which is mostly that of its node."""
        return self.node(name) if name in self._nodes else self._pool(name)

    def request(self, name: str) -> str:
        """Return the new name of a request of a claim, or of "request/subrequest"."""
        return "/".join(self._request(part) for part in name.split("/"))

    def scheduler(self, name: str) -> str:
        """Return the new scheduler name."""
        return name if name in _PUBLIC_SCHEDULERS else self._scheduler(name)


def _find_compared_keys(snapshot: Snapshot) -> Iterator[str]:
    """Yield the keys whose values are compared as numbers."""
    for spec in snapshot.pods.specs:
        yield from (t.key for t in spec.tolerations if t.operator in ("Gt", "Lt"))
        terms: list[SelectorTerm] = [*(spec.node_terms or ())]
        for claim in spec.claims:
            terms += claim.allocated_nodes or ()
        for term in terms:
            yield from (r.key for r in term.expressions if r.operator in ("Gt", "Lt"))
