"""The page in a real browser: silent, self-contained, and no wider than a phone."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from report_builders import make_fleet, make_full_plan

import gangplan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--virtual-time-budget=4000",
    "--dump-dom",
]
WIDTHS = (320, 400, 1280)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="needs Chromium"),
]

# Measures the page from outside in frames of each width, since the page itself allows no script.
FRAME = """<!DOCTYPE html><body><script>
const found = {};
for (const width of WIDTHS) {
  const frame = document.createElement("iframe");
  frame.style = `width:${width}px;height:800px;border:0`;
  frame.onload = () => {
    const page = frame.contentDocument;
    for (const fold of page.querySelectorAll("details")) fold.open = true;
    found[width] = {
      overflow: page.documentElement.scrollWidth - page.documentElement.clientWidth,
      pictures: page.querySelectorAll("svg[role=img]").length,
      names: [...page.querySelectorAll(".name")].filter(n => n.children.length).length,
    };
    document.title = JSON.stringify(found);
  };
  frame.src = "/page.html";
  document.body.append(frame);
}
</script>"""


@contextmanager
def serve(page: str, asked: list[str]) -> Iterator[int]:
    """Serve the page and the frame around it; note what is asked for, also as a proxy."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            path = re.sub(r"^http://[^/]*", "", self.path)
            body = {"/page.html": page, "/": FRAME.replace("WIDTHS", str(list(WIDTHS)))}.get(path)
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write((body or "").encode())

        do_CONNECT = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("name", "with_snapshot"),
    [
        pytest.param("", True, id="plan with its fleet"),
        pytest.param("", False, id="plan alone"),
        pytest.param(
            "<img src=http://example.com/x onerror=alert(1)>\"'", True, id="hostile names"
        ),
        pytest.param("x" * 10_000, True, id="very long names"),
        pytest.param("longwordwithoutbreak" * 8, False, id="long names"),
    ],
)
def test_page(name: str, with_snapshot: bool, tmp_path: Path) -> None:
    assert BROWSER is not None
    snapshot = make_fleet(name)
    page = gangplan.report(make_full_plan(snapshot, name), snapshot if with_snapshot else None)
    asked: list[str] = []
    with serve(page, asked) as port:
        ran = subprocess.run(
            [
                BROWSER,
                *FLAGS,
                f"--user-data-dir={tmp_path / 'profile'}",
                f"--proxy-server=http://127.0.0.1:{port}",
                "--proxy-bypass-list=<-loopback>",
                f"http://127.0.0.1:{port}/",
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
    title = re.search(r"<title>(.*?)</title>", ran.stdout, re.DOTALL)
    assert title is not None, ran.stdout[:500]
    found = json.loads(html.unescape(title[1]))
    want_pictures = 5 if with_snapshot else 4  # two maps, victims, waves, the tree
    assert found == {
        str(width): {"overflow": 0, "pictures": want_pictures, "names": 0} for width in WIDTHS
    }
    assert [line for line in ran.stderr.splitlines() if "CONSOLE" in line] == []
    # What the browser asks its maker for is not the page's doing; the proxy lets none of it out.
    asked = [path for path in asked if not re.search(r"\bgoogle(apis)?\.com\b", path)]
    paths = {re.sub(r"^http://127\.0\.0\.1:\d+", "", path) for path in asked}
    assert {"/", "/page.html"} <= paths <= {"/", "/page.html", "/favicon.ico"}
