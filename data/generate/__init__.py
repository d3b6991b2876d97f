"""Synthetic fleets for trials, demonstrations and benchmarks."""

from data.generate.checks import check_fleet, describe_fleet
from data.generate.distributions import MIXES
from data.generate.fleet import (
    DEFAULT_MIX,
    DEFAULT_UTILIZATION,
    FRAGMENTATIONS,
    generate_fleet,
)
from data.generate.presets import FLEET_SIZES, PRESETS, describe_presets

__all__ = [
    "DEFAULT_MIX",
    "DEFAULT_UTILIZATION",
    "FLEET_SIZES",
    "FRAGMENTATIONS",
    "MIXES",
    "PRESETS",
    "check_fleet",
    "describe_fleet",
    "describe_presets",
    "generate_fleet",
]
