"""Files of Kubernetes objects -> Snapshot.

What is wrong with one object costs that object alone and is reported in `Snapshot.errors`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import msgspec

from data.collect import Collection, collect, decode_pod, find_ref
from data.decode import read_items
from data.files import find_sources, read_source
from data.importers.base import ImportContext, ImportedPod, ReadProblem
from data.importers.checkpoints import CHECKPOINT_ANNOTATION, CheckpointReader
from data.importers.claims import read_claims, share_group_claims, warn_about_claims
from data.importers.core import (
    read_budgets,
    read_namespaces,
    read_priority_classes,
    warn_about_nodes,
)
from data.importers.coscheduling import import_coscheduling
from data.importers.dra import read_devices
from data.importers.dra_filters import read_classes
from data.importers.jobset import import_jobset
from data.importers.kai import import_kai
from data.importers.kuberay import import_kuberay
from data.importers.kueue import import_kueue
from data.importers.lws import import_lws
from data.importers.placement_groups import import_placement_groups
from data.importers.pod_spec import SpecBuilder
from data.importers.pods import read_pod
from data.importers.volcano import import_volcano
from data.importers.workload import import_workload
from data.remote import fetch_all, is_remote
from topology.assemble import assemble_snapshot
from topology.errors import SnapshotError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from topology.model import ObjectError, PodSpec, Snapshot

__all__ = ["format_error", "read_objects", "read_snapshot"]

# A pod belongs to the first that claims it.
_IMPORTERS: Final = (
    import_workload,
    import_kai,
    import_volcano,
    import_coscheduling,
    import_kueue,
    import_lws,
    import_jobset,
    import_kuberay,
    import_placement_groups,
)
_MANIFEST: Final = "manifest.json"
_LISTED_KINDS: Final = 5
_LARGE_YAML: Final = 16 << 20


def read_snapshot(
    paths: Sequence[str],
    *,
    strict: bool = False,
    pod_labels: Iterable[str] = (),
    checkpoint_annotation: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Snapshot:
    """Read files and folders as one snapshot.

    Args:
      paths: Files of Kubernetes objects (JSON or YAML, plain or gzip), KAI snapshot ZIPs, folders
        of such files, "-" for standard input; or a single folder that `gangplan snapshot` wrote.
        Each may be a URI (`s3://…`, `gs://…`, `file://…`).
      strict: Refuse the snapshot if any object is invalid.
      pod_labels: Label keys of pods to keep besides those that some selector mentions. A stored
        snapshot has those that were kept when it was written.
      checkpoint_annotation: Key of the pod annotation that says when work was last saved; None:
        `gangplan.io/last-checkpoint`. A stored snapshot has the times read when it was written.
      progress: Called with a line for each step that may take long.

    Returns:
      The snapshot; invalid objects are in its `errors`, doubts in its `warnings`.

    Raises:
      SnapshotError: A file cannot be read, nothing usable is left, or `strict` and an error.
    """
    if any(is_remote(path) for path in paths):
        with fetch_all(paths) as local:
            return read_snapshot(
                local,
                strict=strict,
                pod_labels=pod_labels,
                checkpoint_annotation=checkpoint_annotation,
                progress=progress,
            )
    stored = [p for p in paths if os.path.isfile(os.path.join(p, _MANIFEST))]
    if stored and len(paths) > 1:
        raise SnapshotError(
            f"{stored[0]}: is a stored snapshot, which cannot be joined with others; give it alone"
        )
    if stored:
        from data.store import read_store

        snapshot = read_store(stored[0])
    else:
        say = progress or (lambda line: None)
        checkpoints = CheckpointReader(checkpoint_annotation or CHECKPOINT_ANNOTATION)
        snapshot = _build(_collect_files(paths, say), pod_labels, checkpoints, say)
    if strict and snapshot.errors:
        raise SnapshotError(
            f"{format_error(snapshot.errors[0])} ({len(snapshot.errors)} invalid objects in all; "
            "--strict refuses them)"
        )
    return snapshot


def read_objects(objects: Sequence[Any], *, pod_labels: Iterable[str] = ()) -> Snapshot:
    """Read plain Kubernetes objects (or Lists of them), as YAML or JSON gives them.

    Raises:
      SnapshotError: None of them is of use.
    """
    found = Collection()
    for item in objects:
        collect(read_items(msgspec.json.encode(item), "manifest"), found, expects_objects=True)
    return _build(found, pod_labels, CheckpointReader(), lambda line: None)


def format_error(error: ObjectError) -> str:
    """Return an error as one line: file, kind and name, field, what is wrong; what to do."""
    parts = (error.file, f"{error.kind or 'object'} {error.object}", error.field, error.message)
    return " ".join(": ".join(part for part in parts if part).split())


def _collect_files(paths: Sequence[str], say: Callable[[str], None]) -> Collection:
    if not paths:
        raise SnapshotError("no snapshot given; name a file, a folder or - for standard input")
    found = Collection()
    num_skipped = 0
    for source in find_sources(paths):
        say(f"reading {source.path}")
        data = read_source(source)
        if not source.is_named and b"apiVersion" not in data:
            num_skipped += 1
            continue
        if not data.strip():
            raise SnapshotError(f"{source.path}: is empty; write it again")
        if len(data) > _LARGE_YAML and data[:64].lstrip()[:1] not in (b"{", b"["):
            say(
                f"{source.path} is YAML, which takes 90 times as long as JSON (kubectl get -o json)"
            )
        collect(read_items(data, source.path), found, expects_objects=source.is_named)
    if num_skipped or found.num_foreign:
        found.warnings.append(
            f"skipped {num_skipped} files and {found.num_foreign} documents that hold no "
            "Kubernetes objects"
        )
    if found.ignored:
        found.warnings.append(_describe_ignored(found))
    return found


def _describe_ignored(found: Collection) -> str:
    ranked = sorted(found.ignored.items(), key=lambda kind: (-kind[1], kind[0]))
    listed = ", ".join(f"{kind} ({count})" for kind, count in ranked[:_LISTED_KINDS])
    more = ", …" if len(ranked) > _LISTED_KINDS else ""
    return (
        f"ignored {found.ignored.total()} objects of {len(ranked)} kinds gangplan does not read: "
        f"{listed}{more}"
    )


def _build(
    found: Collection,
    pod_labels: Iterable[str],
    checkpoints: CheckpointReader,
    say: Callable[[str], None],
) -> Snapshot:
    context = _make_context(found)
    never_preempting = read_priority_classes(context)
    read_namespaces(context)
    filters = read_classes(context)
    claims = read_claims(context, filters)
    builder = SpecBuilder(claims, context.namespaces, never_preempting)
    context.build_spec = builder.build_template
    say(f"reading {len(found.pods)} pods")
    _read_pods(found, context, builder, checkpoints)
    read_budgets(context)
    warn_about_nodes(context)
    for import_family in _IMPORTERS:
        import_family(context)
    share_group_claims(context, claims)
    warn_about_claims(context, claims)
    read_devices(context, filters)
    if not context.nodes and not context.pods and not context.groups:
        reasons = [*map(format_error, context.errors), *context.warnings, "no objects at all"]
        raise SnapshotError(
            f"nothing usable was read: {reasons[0]}; give the output of kubectl get nodes,pods -A "
            "-o json"
        )
    if not context.nodes:
        context.warn("no Node objects were read, so nothing can be placed; add kubectl get nodes")
    say("assembling the snapshot")
    return assemble_snapshot(
        context.nodes.values(),
        (pod.row for pod in context.pods.values()),
        context.groups.values(),
        budgets=context.budgets,
        devices=context.devices,
        errors=context.errors,
        warnings=context.warnings,
        pod_keys=frozenset(pod_labels),
    )


def _make_context(found: Collection) -> ImportContext:
    def build_spec(template: object, namespace: str) -> PodSpec:
        raise AssertionError("templates are read after claims and namespaces")

    return ImportContext(
        found.nodes,
        {},
        {
            key: sorted(objects.values(), key=lambda o: (o.namespace, o.name))
            for key, objects in found.objects.items()
        },
        build_spec,
        errors=found.errors,
        warnings=found.warnings,
    )


def _read_pods(
    found: Collection,
    context: ImportContext,
    builder: SpecBuilder,
    checkpoints: CheckpointReader,
) -> None:
    for item, decoded in found.pods:
        name = ""
        try:
            wire = decode_pod(item, decoded)
            namespace, own = find_ref(wire.metadata)
            name = f"{namespace}/{own}"
            pod = read_pod(wire, namespace, own, context, builder)
            pod.row.checkpoint = checkpoints.read(name, pod.annotations)
            _add_pod(pod, item.file, context)
        except ReadProblem as problem:
            found.report(item, problem, name)
    found.pods.clear()
    if line := checkpoints.describe_bad():
        context.warn(line)


def _add_pod(pod: ImportedPod, file: str, context: ImportContext) -> None:
    first = context.pods.get(pod.row.ref)
    if first is None:
        pod.file = file
        context.pods[pod.row.ref] = pod
        return
    pod.file = first.file
    if first != pod:
        pod.file = file
        raise ReadProblem(
            "metadata.name",
            "is that of a pod read before, which differs; the first is kept: remove one",
        )
