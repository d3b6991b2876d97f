"""Every kernel is lowered for CUDA, on machines without one too."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING, Any

import jax
import jax.export
import pytest

import optimizer.kernels
from bench.kernel_calls import KernelCall, list_calls

if TYPE_CHECKING:
    from collections.abc import Callable


@cache
def small_calls() -> dict[Callable[..., Any], KernelCall]:
    return {call.function: call for call in list_calls(40, candidates=4, gangs=8)}


def list_kernels() -> list[str]:
    """Return MODULE.NAME of every jitted function in optimizer/kernels."""
    found = []
    for module in pkgutil.iter_modules(optimizer.kernels.__path__, "optimizer.kernels."):
        for name, value in vars(importlib.import_module(module.name)).items():
            # Imported ones are found where they are at home.
            if isinstance(value, jax.stages.Wrapped) and value.__module__ == module.name:
                found.append(f"{module.name}.{name}")
    return found


def get_call(kernel: str) -> KernelCall:
    module, name = kernel.rsplit(".", 1)
    function = getattr(importlib.import_module(module), name)
    assert function in small_calls(), f"{kernel} has no call in bench/kernel_calls.py"
    return small_calls()[function]


def test_the_kernels_are_found() -> None:
    want_kernels = {
        "optimizer.kernels.gangs.roll_out_gangs",
        "optimizer.kernels.lattice.roll_out_lattice",
        "optimizer.kernels.lattice.roll_out_variants",
        "optimizer.kernels.victim_subsets.enumerate_subsets",
        "optimizer.kernels.victims.exchange",
        "optimizer.kernels.victims.prefix_give_back",
    }
    assert set(list_kernels()) == want_kernels


@pytest.mark.parametrize("kernel", list_kernels())
def test_lowers_for_cuda(kernel: str) -> None:
    call = get_call(kernel)
    lowered = jax.export.export(call.function, platforms=["cuda"])(*call.arguments)
    assert lowered.platforms == ("cuda",)
    # A custom call is code of one platform; kernels are plain operations that XLA compiles.
    assert "custom_call" not in lowered.mlir_module()
    # Integers only, so that two platforms can be compared bit for bit.
    assert {aval.dtype.name for aval in lowered.out_avals} <= {"int32", "bool"}


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", list_kernels())
def test_finds_the_same_on_the_accelerator(kernel: str) -> None:
    """Run with JAX_PLATFORMS=cuda,cpu; bench/gpu.sh does the same at scale."""
    from bench.gpu import find_devices, is_same

    devices = find_devices()
    if len(devices) == 1:
        pytest.skip("JAX finds no accelerator")
    call = get_call(kernel)
    found = [call.function(*jax.device_put(call.arguments, device)) for device in devices]
    assert is_same(*(jax.device_get(each) for each in found))
