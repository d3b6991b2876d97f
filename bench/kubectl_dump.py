"""A large `kubectl get -o json` dump: a running fleet, a queue of gangs, and all that kubectl adds.

Run: python -m bench.kubectl_dump FILE [--nodes 5000] [--gangs 1000]
Pods are 6 to 8 kB and nodes 13 kB, indented as kubectl indents, most of it of no use to placement:
env, probes, volumes, conditions, container statuses, images, managed fields.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import numpy as np

from bench.fleets import join, make_gang
from bench.instances import make_spec
from data.encode import to_json
from data.generate import generate_fleet
from data.generate.manifests import to_objects
from topology.assemble import assemble_snapshot
from topology.model import TopologyTerm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topology.model import Snapshot

__all__ = ["make_queue", "write_dump"]

RACK: Final = "topology.example.com/rack"
UNIT: Final = "topology.example.com/su"
STAMP: Final = "2026-11-02T08:00:00Z"


def make_queue(gangs: int, seed: int) -> Snapshot:
    """Draw pending gangs: seven of ten want one rack (2 to 32 GPUs), the others one SU (16 to 32).

    Returns:
      A snapshot without nodes; the gangs ask for about 12 GPUs each.
    """
    rng = np.random.default_rng(seed)
    parts = []
    for g in range(gangs):
        if rng.random() < 0.7:
            key, size = RACK, int(rng.choice([2, 4, 8], p=[0.5, 0.35, 0.15]))
            gpus = int(rng.choice([1, 2, 4]))
        else:
            key, size, gpus = UNIT, int(rng.choice([2, 3, 4])), 8
        spec = make_spec(gpus, 8 * gpus)
        parts.append(make_gang(f"bench/gang-{g:05d}", size, spec, TopologyTerm((key,))))
    groups, pods = join(parts)
    return assemble_snapshot([], pods, groups)


def _add_pod_noise(obj: dict[str, Any]) -> None:
    status = obj["status"]
    fields: dict[str, Any] = {f"f:field{i}": {f"f:part{k}": {} for k in range(3)} for i in range(3)}
    obj["metadata"] |= {
        "uid": f"9f0f3c1e-0000-4000-8000-{crc32(obj['metadata']['name'].encode()):012d}",
        "resourceVersion": "918273645",
        "annotations": {"cni.example.com/podIP": "10.12.13.14/32", "note": "n" * 120},
        "managedFields": [
            {
                "apiVersion": "v1",
                "fieldsType": "FieldsV1",
                "fieldsV1": fields,
                "manager": manager,
                "operation": "Update",
                "time": STAMP,
            }
            for manager in ("controller", "kubelet")
        ],
    }
    refs = [
        {
            "name": f"NODE_{field}",
            "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"status.{field}"}},
        }
        for field in ("hostIP", "podIP")
    ]
    containers = obj["spec"]["containers"]
    for container in containers:
        container |= {
            "args": ["--config", "/etc/app/config.yaml", "--log-level", "info"],
            "env": [{"name": f"SETTING_{i}", "value": "v" * 32} for i in range(6)] + refs,
            "imagePullPolicy": "IfNotPresent",
            "livenessProbe": {
                "failureThreshold": 3,
                "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"},
                "periodSeconds": 10,
            },
            "terminationMessagePath": "/dev/termination-log",
            "volumeMounts": [
                {"mountPath": f"/mnt/volume-{i}", "name": f"volume-{i}", "readOnly": True}
                for i in range(2)
            ],
        }
    obj["spec"] |= {
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "restartPolicy": "Never",
        "securityContext": {"runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "serviceAccountName": "default",
        "volumes": [{"configMap": {"name": f"c{i}"}, "name": f"volume-{i}"} for i in range(2)],
    }
    status |= {"qosClass": "Burstable"}
    if status["phase"] == "Running":
        status |= {
            "conditions": [
                {"lastTransitionTime": STAMP, "status": "True", "type": kind}
                for kind in ("Ready", "PodScheduled")
            ],
            "containerStatuses": [
                {
                    "containerID": "containerd://" + "c" * 64,
                    "image": container["image"],
                    "imageID": "registry.example.com/app@sha256:" + "d" * 64,
                    "name": container["name"],
                    "ready": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": STAMP}},
                }
                for container in containers
            ],
            "hostIP": "10.0.0.1",
            "podIP": "10.12.13.14",
            "podIPs": [{"ip": "10.12.13.14"}],
        }


def _add_node_noise(obj: dict[str, Any]) -> None:
    obj["metadata"] |= {"resourceVersion": "5", "annotations": {"note": "n" * 400}}
    obj["status"] |= {
        "images": [
            {"names": [f"registry.example.com/app@sha256:{i:064d}"], "sizeBytes": 10**9 + i}
            for i in range(50)
        ],
        "nodeInfo": {"kernelVersion": "6.8.0", "kubeletVersion": "v1.37.0", "osImage": "Linux"},
    }


def _list_objects(nodes: int, gangs: int, seed: int) -> Iterator[dict[str, Any]]:
    # A short queue of the generator's own, so that single pods and its other job types wait too.
    fleet = generate_fleet(
        "dgx-h100", nodes=nodes, utilization=0.85, pending=0.05, mix="research", seed=seed
    )
    for snapshot in (fleet, make_queue(gangs, seed)):
        for obj in to_objects(snapshot):
            if obj["kind"] == "Pod":
                _add_pod_noise(obj)
            elif obj["kind"] == "Node":
                _add_node_noise(obj)
            yield obj


def write_dump(path: Path, nodes: int = 5000, gangs: int = 1000, seed: int = 0) -> None:
    """Write one List; the same arguments write the same bytes."""
    with path.open("wb") as file:
        file.write(b'{\n    "apiVersion": "v1",\n    "items": [\n')
        for i, obj in enumerate(_list_objects(nodes, gangs, seed)):
            file.write((b",\n" if i else b"") + to_json(obj, indent=4).rstrip())
        file.write(b'\n    ],\n    "kind": "List"\n}\n')


def main() -> int:
    """Write the dump."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--nodes", type=int, default=5000, help="default: 5000")
    parser.add_argument("--gangs", type=int, default=1000, help="default: 1000")
    args = parser.parse_args()
    write_dump(args.file, args.nodes, args.gangs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
