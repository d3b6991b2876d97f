from __future__ import annotations

import pytest

from data.importers.device_selector import DeviceFacts, parse_selector

GPU0 = DeviceFacts(
    "gpu.example.com",
    {
        "gpu.example.com/type": "gpu",
        "gpu.example.com/index": 3,
        "gpu.example.com/ecc": True,
        "other.com/pool": "a",
    },
    {"gpu.example.com/memory": "80Gi"},
)
TYPE = 'device.attributes["gpu.example.com"].type'
MEMORY = 'device.capacity["gpu.example.com"].memory'


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        pytest.param('device.driver == "gpu.example.com"', True, id="driver"),
        pytest.param("device.driver == 'gpu.example.com'", True, id="single quotes"),
        pytest.param('device.driver != "gpu.example.com"', False, id="other driver"),
        pytest.param(f'device.driver == "gpu.example.com" && {TYPE} == "gpu"', True, id="and"),
        pytest.param(f'{TYPE} == "mig" || {TYPE} == "gpu"', True, id="or"),
        pytest.param(f'{TYPE} in ["gpu", "mig"]', True, id="in"),
        pytest.param(f'!({TYPE} in ["mig"])', True, id="not in"),
        pytest.param('!(device.driver == "x") && !!true', True, id="double negation"),
        pytest.param('device.attributes["gpu.example.com"].index >= 3', True, id="integer"),
        pytest.param('device.attributes["gpu.example.com"]["index"] < 3', False, id="brackets"),
        pytest.param('device.attributes["gpu.example.com"].ecc', True, id="boolean alone"),
        pytest.param('device.attributes["other.com"].pool == "a"', True, id="other domain"),
        pytest.param(f'{MEMORY}.compareTo(quantity("40Gi")) >= 0', True, id="capacity enough"),
        pytest.param(f'{MEMORY}.compareTo(quantity("81920Mi")) == 0', True, id="capacity equal"),
        pytest.param(f'{MEMORY}.compareTo(quantity("141Gi")) >= 0', False, id="capacity short"),
        pytest.param('device.attributes["gpu.example.com"].model == "x"', False, id="lacks it"),
        pytest.param(f"{TYPE} == 5", False, id="types differ"),
        pytest.param('device.driver == "x" && whatever(1, 2)', False, id="false and unknown"),
        pytest.param('device.driver != "x" || whatever()', True, id="true or unknown"),
        pytest.param('device.driver != "x" && whatever()', False, id="unknown never selects"),
        pytest.param("!whatever()", False, id="not unknown never selects"),
    ],
)
def test_selects(expression: str, want: bool) -> None:
    assert parse_selector(expression).selects(GPU0) is want


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        pytest.param(f'{TYPE} == "gpu"', True, id="within the subset"),
        pytest.param(f'{TYPE}.matches("gpu.*")', False, id="method"),
        pytest.param(f'{TYPE} == "gpu" && device.name == "x"', False, id="other field"),
        pytest.param("", False, id="empty"),
        pytest.param("device.driver ==", False, id="cut short"),
        pytest.param('device.driver == "x" ? true : false', False, id="conditional"),
        pytest.param("(" * 5000, False, id="deep"),
        pytest.param("[" * 5000, False, id="deep lists"),
        pytest.param("!" * 1500 + "true", True, id="many negations"),
        pytest.param("true && " * 5000 + "true", False, id="too long"),
        pytest.param("a $ b", False, id="no token"),
    ],
)
def test_tells_whether_it_understood(expression: str, want: bool) -> None:
    assert parse_selector(expression).is_understood is want
