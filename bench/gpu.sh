#!/usr/bin/env bash
# Kernels on the accelerator of this machine against the CPU of the same machine: a few minutes.
#
#   bash bench/gpu.sh [--quick]
#
# Needs Python 3.11 or later with JAX (and its CUDA plugin), NumPy, SciPy and networkx; nothing
# else of ours: no Ray, no msgspec, no pydantic. PYTHON chooses the interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."
export XLA_PYTHON_CLIENT_PREALLOCATE=${XLA_PYTHON_CLIENT_PREALLOCATE:-false}
exec "${PYTHON:-python3}" -m bench.gpu "$@"
