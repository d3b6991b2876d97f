"""Jobs of a synthetic fleet: what runs where, and what waits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from data.generate.room import Level, Room
    from data.generate.shapes import JobShape, WeightedShape

__all__ = ["Job", "JobCutter", "PoolFill"]


@dataclass(slots=True)
class Job:
    """One job; it waits while it has no nodes."""

    pool: int
    gpus: int
    """GPUs a pod."""
    parts: tuple[int, ...]
    """Pods of each part: a group of its own below a composite when there are several."""
    level: Level = ""
    """Domain that each part must share."""
    shares_outer: bool = False
    """All parts together must share an outer domain."""
    nodes: list[int] = field(default_factory=list)
    """Node of each pod, part after part."""

    @property
    def pods(self) -> int:
        """Pods of the job."""
        return sum(self.parts)

    @property
    def total(self) -> int:
        """GPUs of the whole job."""
        return self.pods * self.gpus


@dataclass(slots=True)
class JobCutter:
    """Decides what a job of some shape must share, for one pool."""

    pool: int
    inner_nodes: int
    """Nodes of the largest inner domain of the pool."""
    outer_nodes: int
    tight: float
    """Share of the constrained gangs that ask for an inner domain if they fit in one."""
    constrained: float
    """Share of the gangs that must share a domain at all."""
    rng: random.Random

    def make_job(self, shape: JobShape) -> Job:
        """Return a job without nodes.

        A gang shares an outer domain, or an inner one where it fits. A gang too large for an
        outer domain is cut into parts of at most half of one, each with a domain of its own.
        """
        pods, part = shape.pods, shape.part
        if pods == 1 or (not part and self.rng.random() >= self.constrained):
            return Job(self.pool, shape.gpus, (pods,))
        if part:
            parts = (part,) * (pods // part)
            together = len(parts) > 1 and pods <= self.outer_nodes
            return Job(self.pool, shape.gpus, parts, "inner", together)
        if pods <= self.inner_nodes and self.rng.random() < self.tight:
            return Job(self.pool, shape.gpus, (pods,), "inner")
        if pods <= self.outer_nodes:
            return Job(self.pool, shape.gpus, (pods,), "outer")
        most = max(self.outer_nodes // 2, 1)
        count = -(-pods // most)
        # As even as can be: parts of one gang hardly ever differ.
        parts = tuple(pods // count + (i < pods % count) for i in range(count))
        return Job(self.pool, shape.gpus, parts, "outer")


class PoolFill:
    """Fills one pool with running jobs whose sizes follow a distribution."""

    def __init__(
        self,
        room: Room,
        shapes: tuple[WeightedShape, ...],
        cutter: JobCutter,
    ) -> None:
        self.room = room
        self.jobs: list[Job] = []
        self._shapes = shapes
        self._cutter = cutter
        self._of_shape: list[int] = []
        self._used_by_shape = [0] * len(shapes)

    @property
    def used(self) -> int:
        """GPUs in use."""
        return sum(self._used_by_shape)

    def fill(self, target: int) -> None:
        """Place jobs, largest first, until `target` GPUs are used in the shares wanted.

        What a shape cannot use (rounding, no room) is handed on to the next smaller one.
        """
        open_gpus = 0.0
        used = self.used
        for s, (shape, weight) in enumerate(self._shapes):
            open_gpus += weight * target - self._used_by_shape[s]
            while open_gpus >= shape.total / 2 and used + shape.total <= target:
                if not self._start(s, self._cutter.make_job(shape)):
                    break
                open_gpus -= shape.total
                used += shape.total
        # The rest goes to the shapes of a single pod, whatever their shares.
        for s, (shape, _) in enumerate(self._shapes):
            while shape.pods == 1 and used + shape.total <= target:
                if not self._start(s, self._cutter.make_job(shape)):
                    break
                used += shape.total

    def end_some(self, share: float, rng: random.Random) -> None:
        """End a share of the jobs, drawn by count."""
        self._end(rng.sample(range(len(self.jobs)), round(share * len(self.jobs))))

    def trim(self, target: int, rng: random.Random) -> None:
        """End jobs until no more than `target` GPUs are used, and hardly fewer.

        First those of shapes that have more than their share, the smallest first, so that holes
        are left on nodes as well; then any.
        """
        order = rng.sample(range(len(self.jobs)), len(self.jobs))
        by_size = sorted(order, key=lambda i: self.jobs[i].total)
        surplus = [u - w for u, w in zip(self._used_by_shape, self._share_out(target), strict=True)]
        excess = self.used - target
        ended: set[int] = set()
        for candidates, least in ((by_size, 1.0), (order, -math.inf)):
            for i in candidates:
                total, s = self.jobs[i].total, self._of_shape[i]
                if i not in ended and total <= excess and surplus[s] >= least * total:
                    ended.add(i)
                    excess -= total
                    surplus[s] -= total
        self._end(ended)
        if excess > 0:
            self._end([min(range(len(self.jobs)), key=lambda i: self.jobs[i].total)])
            self.fill(target)

    def _share_out(self, target: int) -> list[int]:
        """Return the GPUs of each shape in whole jobs, rounding handed on to the next smaller."""
        shares = []
        open_gpus = 0.0
        for shape, weight in self._shapes:
            open_gpus += weight * target
            shares.append(max(round(open_gpus / shape.total), 0) * shape.total)
            open_gpus -= shares[-1]
        return shares

    def _end(self, ended: Iterable[int]) -> None:
        gone = set(ended)
        for i in gone:
            job = self.jobs[i]
            self.room.release(job.nodes, job.gpus)
            self._used_by_shape[self._of_shape[i]] -= job.total
        kept = [i for i in range(len(self.jobs)) if i not in gone]
        self.jobs = [self.jobs[i] for i in kept]
        self._of_shape = [self._of_shape[i] for i in kept]

    def open_domains(self, domains: NDArray[np.int32]) -> None:
        """Start a pod with one GPU in each domain (i32[N]) that is still empty."""
        free = self.room.free_by_node(len(domains))
        members = np.flatnonzero(free)
        used = np.bincount(domains[members], weights=self.room.node_gpus - free[members])
        # A domain without free GPUs has no member here, one with some of them in use is open.
        firsts = {d: n for n, d in zip(members[::-1], domains[members[::-1]], strict=True)}
        for domain in sorted(firsts):
            if not used[domain]:
                node = int(firsts[domain])
                self.room.place_on(node, 1)
                self.jobs.append(Job(self._cutter.pool, 1, (1,), nodes=[node]))
                self._of_shape.append(len(self._shapes) - 1)
                self._used_by_shape[-1] += 1

    def split_idle(self, domains: NDArray[np.int32], level: Level) -> None:
        """Move one job into the domain (i32[N]) with the most idle GPUs, so that others get some.

        The largest job that leaves something idle in both; nothing happens where there is none.
        """
        free = self.room.free_by_node(len(domains))
        widest = int(np.bincount(domains, weights=free).argmax())
        inside = domains == widest
        for job in sorted(self.jobs, key=lambda job: -job.total):
            is_bound = job.pods > 1 and job.level not in ("", level)
            if is_bound or len(job.parts) > 1 or np.any(inside[job.nodes]):
                continue
            fits = np.flatnonzero(inside & (free >= job.gpus))[: job.pods]
            if len(fits) == job.pods and job.total < free[inside].sum():
                self.room.release(job.nodes, job.gpus)
                job.nodes = fits.tolist()
                for node in job.nodes:
                    self.room.place_on(node, job.gpus)
                return

    def _start(self, s: int, job: Job) -> bool:
        nodes = self._place(job)
        if nodes is None:
            return False
        job.nodes = nodes
        self.jobs.append(job)
        self._of_shape.append(s)
        self._used_by_shape[s] += job.total
        return True

    def _place(self, job: Job) -> list[int] | None:
        if job.pods == 1:
            node = self.room.place_pod(job.gpus)
            return None if node is None else [node]
        if len(job.parts) == 1:
            return self.room.place_gang(job.pods, job.level)
        if job.level == "inner":
            return self.room.place_parts(job.parts, share_outer=job.shares_outer)
        nodes: list[int] = []
        for part in job.parts:
            placed = self.room.place_gang(part, job.level)
            if placed is None:
                self.room.release(nodes, job.gpus)
                return None
            nodes += placed
        return nodes
