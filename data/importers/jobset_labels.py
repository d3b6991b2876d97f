"""Labels that JobSet puts on the pods of its Jobs."""

from __future__ import annotations

from typing import Final

__all__ = ["JOB_INDEX", "NAME", "ROLE"]

_PREFIX: Final = "jobset.sigs.k8s.io/"
NAME: Final = _PREFIX + "jobset-name"
ROLE: Final = _PREFIX + "replicatedjob-name"
JOB_INDEX: Final = _PREFIX + "job-index"
