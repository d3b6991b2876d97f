from __future__ import annotations

import pytest

from data.importers.checkpoints import CheckpointReader


@pytest.mark.parametrize(
    ("text", "want_time", "want_bad"),
    [
        pytest.param("2026-11-30T10:00:00Z", 1_796_032_800, [], id="RFC 3339"),
        pytest.param("2026-11-30T12:00:00+02:00", 1_796_032_800, [], id="another zone"),
        pytest.param("1796032800", 1_796_032_800, [], id="seconds"),
        pytest.param("", -1, [], id="empty"),
        pytest.param("1796032800000", -1, ["ml/p"], id="milliseconds"),
        pytest.param("yesterday", -1, ["ml/p"], id="no time"),
        pytest.param("²", -1, ["ml/p"], id="digits of another kind"),
    ],
)
def test_reads_a_time(text, want_time, want_bad):
    reader = CheckpointReader("example.com/saved")
    assert reader.read("ml/p", {"example.com/saved": text}) == want_time
    assert reader.bad == want_bad


def test_counts_what_it_cannot_read():
    reader = CheckpointReader()
    assert reader.describe_bad() is None
    assert reader.read("ml/q", {}) == -1
    for ref in ("ml/q", "ml/p"):
        reader.read(ref, {"gangplan.io/last-checkpoint": "soon"})
    assert reader.describe_bad() == (
        "annotation gangplan.io/last-checkpoint says no time in 2 pods (first: ml/p); their work "
        "counts as never saved: write 2026-11-30T10:00:00Z or seconds since 1970"
    )
