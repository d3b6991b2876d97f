from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.quantities import format_quantity, parse_nanos, parse_quantity, round_nanos


@pytest.mark.parametrize(
    ("text", "resource", "want"),
    [
        pytest.param("0.0005", "cpu", 1, id="case 68: half a milli-core rounds up"),
        pytest.param("1.5Gi", "memory", 1_610_612_736, id="case 68: binary fraction"),
        pytest.param("128974848000m", "memory", 128_974_848, id="case 68: milli-bytes"),
        pytest.param("100m", "memory", 1, id="a tenth of a byte rounds up"),
        pytest.param("63500m", "cpu", 63_500, id="milli-cores"),
        pytest.param("1e2", "cpu", 100_000, id="lower exponent"),
        pytest.param("1E3", "memory", 1_000, id="upper exponent with digits"),
        pytest.param("1E", "memory", 10**18, id="exa, not an exponent"),
        pytest.param("1e-3", "memory", 1, id="negative exponent rounds up"),
        pytest.param("129e6", "memory", 129_000_000, id="129e6"),
        pytest.param("2M", "memory", 2_000_000, id="mega"),
        pytest.param("2m", "cpu", 2, id="milli"),
        pytest.param("5n", "cpu", 1, id="nano rounds up"),
        pytest.param("1500u", "cpu", 2, id="micro rounds up"),
        pytest.param("1.5Ti", "memory", 1_649_267_441_664, id="1.5Ti"),
        pytest.param("7Ei", "memory", 7 << 60, id="7Ei"),
        pytest.param(".5", "cpu", 500, id="no digit before the point"),
        pytest.param("5.", "cpu", 5_000, id="no digit after the point"),
        pytest.param("+3", "pods", 3, id="plus sign"),
        pytest.param("-0", "pods", 0, id="minus zero"),
        pytest.param(2, "cpu", 2_000, id="JSON integer"),
        pytest.param(0.1, "cpu", 100, id="JSON float by its shortest form"),
        pytest.param(1e3, "memory", 1_000, id="JSON float 1e3"),
        pytest.param("9223372036854775807", "memory", 2**63 - 1, id="largest"),
    ],
)
def test_parses(text: str | int | float, resource: str, want: int) -> None:
    assert parse_quantity(text, resource) == want


@pytest.mark.parametrize(
    ("text", "want_message"),
    [
        pytest.param("1K", "no quantity", id="case 68: K alone"),
        pytest.param("", "no quantity", id="empty"),
        pytest.param(".", "no quantity", id="point alone"),
        pytest.param(" 5 ", "no quantity", id="spaces"),
        pytest.param("1_000", "no quantity", id="underscore"),
        pytest.param("٣", "no quantity", id="other digits"),
        pytest.param("NaN", "no quantity", id="NaN"),
        pytest.param("0x10", "no quantity", id="hexadecimal"),
        pytest.param("1Gi\n", "no quantity", id="line break"),
        pytest.param("1e", "no quantity", id="exponent without digits"),
        pytest.param("-1", "negative", id="negative"),
        pytest.param(-1, "negative", id="negative number"),
        pytest.param(True, "is True", id="boolean"),
        pytest.param(float("inf"), "is inf", id="infinite"),
        pytest.param(float("nan"), "is nan", id="not a number"),
        pytest.param("1e99", "range", id="huge"),
        pytest.param(10**400, "range", id="huge number"),
        pytest.param("1e100000000", "exponent", id="exponent bomb"),
        pytest.param("1e-999999999", "exponent", id="negative exponent bomb"),
        pytest.param("9223372036854775808", "range", id="one above int64"),
        pytest.param("8Ei", "range", id="8Ei"),
        pytest.param("9" * 10_000_000, "characters", id="ten million digits"),
    ],
)
def test_refuses_in_one_line(text: str | int | float, want_message: str) -> None:
    start = time.perf_counter()
    with pytest.raises(ValueError, match=want_message) as caught:
        parse_quantity(text, "memory")
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)
    assert time.perf_counter() - start < 1


def test_cpu_beyond_int64_in_milli_cores_is_refused() -> None:
    with pytest.raises(ValueError, match="range"):
        parse_quantity("9223372036854775807", "cpu")


def test_sums_are_rounded_once() -> None:
    two_parts = parse_nanos("400m") + parse_nanos("400m")
    assert round_nanos(two_parts, "memory") == 1


@pytest.mark.parametrize(
    ("amount", "resource", "want"),
    [
        pytest.param(15_890, "cpu", "15890m", id="milli-cores"),
        pytest.param(16_000, "cpu", "16", id="whole cores"),
        pytest.param(120 << 30, "memory", "120Gi", id="binary"),
        pytest.param(1_649_267_441_664, "memory", "1536Gi", id="largest suffix that stays whole"),
        pytest.param(1_000, "memory", "1000", id="not a multiple of 1024"),
        pytest.param(4 << 20, "hugepages-2Mi", "4Mi", id="huge pages"),
        pytest.param(1024, "nvidia.com/gpu", "1024", id="pieces take no suffix"),
        pytest.param(0, "memory", "0", id="zero"),
        pytest.param(-2048, "memory", "-2Ki", id="overcommitted memory"),
        pytest.param(-1500, "cpu", "-1500m", id="overcommitted cpu"),
        pytest.param(1 << 70, "memory", "1024Ei", id="no suffix beyond Ei"),
    ],
)
def test_formats(amount: int, resource: str, want: str) -> None:
    assert format_quantity(amount, resource) == want


@given(st.integers(0, 2**53), st.sampled_from(["cpu", "memory", "pods", "hugepages-2Mi"]))
def test_round_trip(amount: int, resource: str) -> None:
    assert parse_quantity(format_quantity(amount, resource), resource) == amount
