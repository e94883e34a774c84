"""The page's script in a browser: it may run, and it shows the values under the pointer."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from sonde.reports.charts import Chart, Curve
from sonde.reports.document import Document, Figure, Figures
from sonde.reports.html import html

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or ""
STEPS = np.arange(1.0, 201.0)
VALUES = np.exp(-STEPS / 30)

pytestmark = pytest.mark.skipif(not BROWSER, reason="chromium is not installed")

POINT = """<script>
const svg = document.querySelector("svg[data-plot]"), box = svg.getBoundingClientRect();
const [left, right] = svg.dataset.plot.split(" ").map(Number);
const x = box.left + (left + (right - left) * SHARE) * box.width / svg.viewBox.baseVal.width;
svg.dispatchEvent(new PointerEvent("pointermove", { clientX: x, clientY: box.top + 90, bubbles: true }));
</script></body>"""


def _page(*, is_log: bool) -> str:
    curves = tuple(
        Curve(label=name, step=STEPS, value=values, series=i)
        for i, (name, values) in enumerate((("<b>loss", VALUES), ("other", 1 - 0.5 * VALUES)))
    )
    figure = Figure(Chart(y_label="Loss", curves=curves, is_log=is_log), ("Loss",))
    return html(Document("title", "subtitle", (Figures((figure,)),)))


def _shown(page: str, folder: Path) -> str:
    """What the browser has made of a page once its scripts ran."""
    file = folder / "page.html"
    file.write_text(page, encoding="utf-8")
    words = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'browser'}", "--dump-dom"]
    done = subprocess.run([BROWSER, *words, file.as_uri()], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout


def test_the_policy_of_a_page_lets_its_script_run(tmp_path: Path) -> None:
    assert _shown(_page(is_log=True), tmp_path).count('class="tip"') == 1


@pytest.mark.parametrize("is_log", [False, True], ids=["straight", "log"])
def test_the_values_under_the_pointer_are_those_of_the_curves(tmp_path: Path, is_log: bool) -> None:
    page = re.sub(
        r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", _page(is_log=is_log)
    )  # our pointer is a script
    shown = _shown(page.replace("</body>", POINT.replace("SHARE", "0.4")), tmp_path)
    found = re.search(
        r'<div class="tip"[^>]*>([\d,.]+)<div[^>]*>&lt;b&gt;loss ([\d.e-]+)</div><div[^>]*>other ([\d.]+)', shown
    )
    assert found is not None
    step = float(found[1])
    assert step == pytest.approx(1 + 0.4 * 199, abs=1)
    assert float(found[2]) == pytest.approx(np.exp(-step / 30), abs=0.003)
    assert float(found[3]) == pytest.approx(1 - 0.5 * np.exp(-step / 30), abs=0.003)
