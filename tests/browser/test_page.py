"""The page as people use it, in a real browser."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.browser.conftest import Served, watched

import sonde

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=\"document.title='broken in'\"><script>document.title='broken in'</script>"


def wait(page: Page) -> None:
    """Until charts and findings are there."""
    expect(page.locator("figure.chart canvas").first).to_be_visible()


def range_shown(page: Page) -> str:
    return page.locator(".toolbar .range").inner_text()


def test_all_runs_are_listed_and_one_opens(served: Served, page: Page) -> None:
    page.goto(served.url())
    rows = page.locator(".rows .row")
    expect(rows).to_have_count(4)
    expect(page.locator('[data-run="exploding-gradients"]')).to_contain_text("critical")
    page.get_by_role("link", name="exploding-gradients").click()
    expect(page).to_have_url(re.compile(r"#/run/exploding-gradients$"))
    expect(page.get_by_role("heading", level=1)).to_have_text("exploding-gradients")


def test_runs_are_filtered_sorted_and_grouped_and_the_address_keeps_it(served: Served, page: Page) -> None:
    page.goto(served.url())
    expect(page.locator(".rows .row")).to_have_count(4)
    page.keyboard.press("/")
    page.keyboard.type("-healthy lr<0.01")
    expect(page.locator(".rows .row")).to_have_count(2)
    page.get_by_label("Group").select_option("verdict")
    expect(page.locator(".rows .heading")).to_have_count(1)
    page.locator(".head").get_by_role("button", name="Loss").click()
    expect(page.locator("[aria-sort=descending]")).to_contain_text("Loss")
    page.reload()
    expect(page.get_by_label("Filter runs")).to_have_value("-healthy lr<0.01")
    expect(page.locator(".rows .heading")).to_have_count(1)
    expect(page.locator("[aria-sort=descending]")).to_contain_text("Loss")


def test_first_screen_says_what_is_wrong_where_and_since_when(served: Served, page: Page) -> None:
    page.goto(served.url("#/run/dead-units"))
    diagnosis = page.get_by_label("Diagnosis")
    expect(diagnosis.locator(".verdict h2")).to_have_text("Warning: dead units")
    card = diagnosis.locator(".cause").first
    expect(card.locator(".since")).to_contain_text("since step")
    expect(card.locator(".place")).to_contain_text(".weight")
    expect(card.locator(".remedies li").first).to_be_visible()
    wait(page)
    for place in (diagnosis.locator(".verdict"), card.locator(".place"), page.locator('figure[data-title="Loss"]')):
        expect(place).to_be_in_viewport()
    assert page.locator('figure[data-title="Loss"] a.mark').count() >= 1


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize(
    "fragment", ["#/", "#/run/overfitting", "#/run/overfitting/layers", "#/run/overfitting/explore"]
)
def test_nothing_is_wider_than_the_screen(served: Served, page: Page, width: int, fragment: str) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(served.url(fragment))
    expect(page.locator("canvas, .rows .row, .notice").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_dragging_zooms_all_charts_and_the_address_has_it(served: Served, page: Page) -> None:
    page.goto(served.url("#/run/healthy"))
    wait(page)
    whole = range_shown(page)
    over = page.locator('figure[data-title="Loss"] .u-over')
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    with page.expect_response(lambda answer: "/series" in answer.url and "from=" in answer.url):
        page.mouse.move(box["x"] + box["width"] * 0.25, y)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.5, y, steps=5)
        page.mouse.up()
    expect(page).to_have_url(re.compile(r"from=\d+.*&to=\d+"))
    zoomed = range_shown(page)
    assert zoomed != whole
    page.reload()
    wait(page)
    assert range_shown(page) == zoomed
    page.keyboard.press("0")
    expect(page.locator(".toolbar .range")).to_have_text(whole)


def test_one_crosshair_goes_over_all_charts(served: Served, page: Page) -> None:
    page.goto(served.url("#/run/healthy"))
    wait(page)
    page.locator('figure[data-title="Loss"] .u-over').hover(position={"x": 200, "y": 60})
    told = page.locator('figure[data-title="Loss"] .at').inner_text()
    assert re.fullmatch(r"step \d+", told)
    expect(page.locator('figure[data-title="Learning rate"] .at')).to_have_text(re.compile(r"step \d+"))


def test_smoothing_is_kept_and_a_scale_can_be_switched(served: Served, page: Page) -> None:
    page.goto(served.url("#/run/healthy"))
    wait(page)
    page.locator(".smoothing input").fill("0")
    expect(page).to_have_url(re.compile("smooth=0"))
    expect(page.locator(".smoothing output")).to_have_text("off")
    menu = page.locator('figure[data-title="Gradient norm"] .menu')
    menu.locator("summary").click()
    first = menu.locator("button").first.inner_text()
    menu.locator("button").first.click()
    menu.locator("summary").click()
    expect(menu.locator("button").first).not_to_have_text(first)


def test_charts_are_saved_as_files(served: Served, page: Page, tmp_path: Path) -> None:
    page.goto(served.url("#/run/healthy"))
    wait(page)
    menu = page.locator('figure[data-title="Loss"] .menu')
    saved = {}
    for kind in ("PNG", "SVG", "CSV"):
        menu.locator("summary").click()
        with page.expect_download() as started:
            menu.get_by_role("button", name=kind).click()
        saved[kind] = tmp_path / started.value.suggested_filename
        started.value.save_as(saved[kind])
    assert saved["PNG"].read_bytes().startswith(b"\x89PNG")
    assert saved["SVG"].read_text().startswith("<svg")
    lines = saved["CSV"].read_text().splitlines()
    assert lines[0] == "step,training,validation"
    assert len(lines) > 100
    kept = sonde.load(served.folder / "healthy").series("loss")
    step, loss = lines[1].split(",")[:2]
    assert (int(step), float(loss)) == (int(kept.step[0]), float(kept.value[0]))


def test_heat_map_opens_the_layer_that_is_clicked(served: Served, page: Page) -> None:
    page.goto(served.url("#/run/healthy/layers?path=grad/rms"))
    canvas = page.locator("figure.heat canvas").first
    expect(canvas).to_be_visible()
    box = canvas.bounding_box()
    assert box is not None
    canvas.click(position={"x": 400, "y": 5})
    expect(page).to_have_url(re.compile(r"layer=0\.weight"))
    detail = page.locator(".layer-detail")
    expect(detail.locator("h2")).to_have_text("0.weight")
    expect(detail.locator("figure.chart canvas").first).to_be_visible()
    expect(detail.locator("figure.heat canvas")).to_be_visible()
    step = page.locator("figure.heat output").first.inner_text()
    page.keyboard.press(",")
    expect(page.locator("figure.heat output").first).not_to_have_text(step)
    page.keyboard.press("j")
    expect(detail.locator("h2")).to_have_text("0.bias")


def test_heat_map_has_the_values_of_the_run(served: Served, page: Page, tmp_path: Path) -> None:
    page.goto(served.url("#/run/healthy/layers?path=grad/rms"))
    menu = page.locator("figure.heat .menu").first
    menu.locator("summary").click()
    with page.expect_download() as started:
        menu.get_by_role("button", name="CSV").click()
    started.value.save_as(tmp_path / "map.csv")
    names, *rows = [line.split(",") for line in (tmp_path / "map.csv").read_text().splitlines()]
    assert names[1] == "0.weight"
    kept = sonde.load(served.folder / "healthy").series("grad/rms@0.weight")
    at = {int(step): value for step, value in zip(kept.step, kept.value, strict=True)}
    assert rows
    for row in rows:
        assert float(row[1]) == pytest.approx(at[int(row[0])], rel=1e-6)


def test_finding_shows_evidence_causes_remedies_and_its_rule(served: Served, page: Page) -> None:
    page.goto(served.url("#/run/exploding-gradients"))
    page.locator(".cause").first.locator(".finding-line").first.click()
    expect(page).to_have_url(re.compile(r"/finding/[A-Z]{3}\d{3}%40\d+$"))
    expect(page.locator(".suspects li").first).to_contain_text("sure")
    expect(page.locator(".remedies li").first).to_be_visible()
    expect(page.locator("figure.chart canvas").first).to_be_visible()
    rule = page.locator(".rule-page")
    expect(rule).to_contain_text("When it is wrong")
    expect(rule).to_contain_text("alarms")
    first = page.url
    page.keyboard.press("j")
    expect(page).not_to_have_url(first)
    page.keyboard.press("u")
    expect(page).to_have_url(re.compile(r"#/run/exploding-gradients$"))


def test_keys_walk_through_findings(served: Served, page: Page) -> None:
    page.goto(served.url("#/run/dead-units"))
    expect(page.locator(".cause").first).to_be_visible()
    page.keyboard.press("j")
    chosen = page.locator(".finding-line.chosen")
    expect(chosen).to_have_count(1)
    code = chosen.locator(".code").inner_text()
    page.keyboard.press("Enter")
    expect(page.locator("h1 .code")).to_have_text(code)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_muted_finding_does_not_count_until_it_is_unmuted(recorded: Path, own: Served, page: Page) -> None:
    shutil.copytree(recorded / "overfitting", own.folder / "mine")
    page.goto(own.url("#/run/mine"))
    page.locator(".cause .finding-line").first.click()
    page.get_by_role("button", name="Mute").click()
    expect(page.get_by_role("button", name="Unmute")).to_be_visible()
    page.keyboard.press("u")
    expect(page.locator(".folded", has_text="muted")).to_be_visible()
    expect(page.locator(".verdict h2")).not_to_contain_text("Warning")
    notes = [json.loads(line) for line in (own.folder / "mine" / "notes.jsonl").read_text().splitlines()]
    assert notes[-1]["kind"] == "mute"
    page.locator(".folded", has_text="muted").locator("summary").click()
    page.locator(".folded", has_text="muted").locator(".finding-line").click()
    page.get_by_role("button", name="Unmute").click()
    expect(page.get_by_role("button", name="Mute", exact=True)).to_be_visible()


def test_tags_and_notes_are_kept_with_the_run(recorded: Path, own: Served, page: Page) -> None:
    shutil.copytree(recorded / "healthy", own.folder / "mine")
    page.goto(own.url())
    row = page.locator('[data-run="mine"]')
    row.hover()
    row.get_by_label("Tags and note of").click()
    page.get_by_role("dialog").get_by_label("Tags").fill("baseline kept")
    page.get_by_role("dialog").get_by_label("Note", exact=True).fill("the one to beat")
    page.get_by_role("button", name="Save").click()
    expect(row).to_contain_text("baseline")
    page.reload()
    expect(row).to_contain_text("the one to beat")
    page.get_by_label("Filter runs").fill("tag:kept")
    expect(row).to_be_visible()


def test_selected_runs_are_compared(served: Served, page: Page) -> None:
    page.goto(served.url("#/?sort=name"))
    expect(page.locator(".rows .row")).to_have_count(4)
    for key in ("j", "x", "j", "j", "j", "x", "c"):
        page.keyboard.press(key)
    expect(page).to_have_url(re.compile(r"#/compare\?run=dead-units&run=overfitting"))
    expect(page.locator('figure[data-title="Training loss"] canvas')).to_be_visible()
    expect(page.locator(".differences")).to_contain_text("lr")
    expect(page.locator(".parting")).to_contain_text("first different at step")
    for axis in ("time", "samples"):
        page.get_by_label("By").select_option(axis)
        expect(page).to_have_url(re.compile(f"by={axis}"))
        expect(page.locator('figure[data-title="Training loss"] canvas')).to_be_visible()


def test_explored_series_are_in_the_address(served: Served, page: Page) -> None:
    page.goto(served.url("#/run/healthy/explore"))
    page.get_by_label("Pattern of series").fill("weight/norm@*.bias")
    page.get_by_label("Pattern of series").press("Enter")
    expect(page.locator("figure.chart canvas")).to_have_count(1)
    page.get_by_label("Pattern of series").fill("grad/norm_applied")
    page.locator(".tag-list li button", has_text="grad/norm_applied").click()
    expect(page.locator("figure.chart canvas")).to_have_count(2)
    page.reload()
    expect(page.locator("figure.chart canvas")).to_have_count(2)
    expect(page.locator("figure.chart .title").first).to_have_text("weight/norm@*.bias")
    page.get_by_label("Remove weight/norm").click()
    expect(page.locator("figure.chart canvas")).to_have_count(1)


def test_dark_and_light_are_chosen_and_kept(served: Served, page: Page) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(served.url("#/run/healthy"))
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.keyboard.press("t")
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_live_steps_and_findings_arrive(own: Served, page: Page) -> None:
    with sonde.record(own.folder / "live", config={"lr": 0.1}) as writer:
        for step in range(1, 11):
            writer.log({"loss": 1 / step, "lr": 0.1}, step=step)
        writer.flush()
        page.goto(own.url("#/run/live"))
        wait(page)
        expect(page.locator(".run-facts")).to_contain_text("running")
        for step in range(11, 41):
            writer.log({"loss": 1 / step, "lr": 0.1}, step=step)
        writer.flush()
        expect(page.locator(".run-facts .facts")).to_contain_text("steps40")
        expect(page.locator(".toolbar .range")).to_have_text("0 – 40")
        expect(page.locator('figure[data-title="Loss"] .readout')).to_have_text("0.025")  # 1 / 40
        page.keyboard.press("l")
        expect(page.locator(".follow")).to_have_text("Held still")
        for step in range(41, 61):
            writer.log({"loss": 1 / step, "lr": 0.1}, step=step)
        writer.event("finding", step=60, data=finding("the loss is stuck"))
        writer.flush()
        expect(page.locator(".diagnosis")).to_contain_text("loss-stuck")
        expect(page.locator(".toolbar .range")).to_have_text("0 – 40")
        page.keyboard.press("l")
        for step in range(61, 81):
            writer.log({"loss": 1 / step, "lr": 0.1}, step=step)
    expect(page.locator(".run-facts")).to_contain_text("ended")
    expect(page.locator('figure[data-title="Loss"] .readout')).to_have_text("0.0125")  # 1 / 80


def test_new_run_appears_in_the_table_and_a_deleted_one_goes(own: Served, page: Page) -> None:
    record(own.folder / "first")
    page.goto(own.url())
    expect(page.locator(".rows .row")).to_have_count(1)
    record(own.folder / "second")
    expect(page.locator(".rows .row")).to_have_count(2)
    shutil.rmtree(own.folder / "first")
    expect(page.locator(".rows .row")).to_have_count(1)
    expect(page.locator('[data-run="second"]')).to_be_visible()


def test_two_tabs_see_each_others_notes(own: Served, browser: Browser, page: Page) -> None:
    record(own.folder / "shared")
    problems: list[str] = []
    other = watched(browser.new_page(), problems)
    for tab in (page, other):
        tab.goto(own.url())
        expect(tab.locator('[data-run="shared"]')).to_be_visible()
    row = page.locator('[data-run="shared"]')
    row.hover()
    row.get_by_label("Tags and note of").click()
    page.get_by_role("dialog").get_by_label("Tags").fill("seen")
    page.get_by_role("button", name="Save").click()
    expect(row).to_contain_text("seen")
    expect(other.locator('[data-run="shared"]')).to_contain_text("seen")
    other.close()
    assert not problems


def test_page_goes_on_after_the_server_was_restarted(own: Served, page: Page) -> None:
    record(own.folder / "before")
    page.goto(own.url())
    expect(page.locator(".rows .row")).to_have_count(1)
    own.stop()
    expect(page.locator(".connection")).to_have_text("server away, trying again")
    record(own.folder / "meanwhile")
    own.start()
    expect(page.locator(".connection")).to_have_text("live")
    expect(page.locator(".rows .row")).to_have_count(2)


def test_run_that_is_deleted_while_it_is_shown_says_so(own: Served, page: Page) -> None:
    record(own.folder / "short-lived")
    page.goto(own.url("#/run/short-lived"))
    wait(page)
    shutil.rmtree(own.folder / "short-lived")
    expect(page.locator(".gone")).to_contain_text("was deleted")
    expect(page.locator("figure.chart canvas").first).to_be_visible()


def test_run_that_is_not_there_says_what_to_do(own: Served, page: Page) -> None:
    page.goto(own.url("#/run/never"))
    expect(page.get_by_role("alert")).to_be_visible()
    page.goto(own.url("#/nowhere/at/all"))
    expect(page.locator(".notice")).to_contain_text("no such view")
    page.goto(own.url())
    expect(page.locator(".notice")).to_contain_text("No runs yet")


def test_thousand_runs_make_only_the_rows_on_the_screen(own: Served, page: Page) -> None:
    record(own.folder / "run-0000")
    for number in range(1, 1000):
        name = f"run-{number:04}"
        shutil.copytree(own.folder / "run-0000", own.folder / name)
        info = own.folder / name / "run.json"
        info.write_text(info.read_text().replace("run-0000", name))
    page.goto(own.url("#/?sort=name"))
    expect(page.locator(".summary")).to_contain_text("1,000 runs")
    expect(page.locator('[data-run="run-0000"]')).to_be_visible()
    assert page.locator(".rows .row").count() < 60
    page.locator(".grid").evaluate("grid => grid.scrollTo(0, grid.scrollHeight)")
    expect(page.locator('[data-run="run-0999"]')).to_be_visible()
    assert page.locator(".rows .row").count() < 60
    page.get_by_label("Filter runs").fill("run-0500")
    expect(page.locator(".rows .row")).to_have_count(1)
    expect(page.locator('[data-run="run-0500"]')).to_be_visible()


def test_names_settings_findings_and_notes_are_text(own: Served, page: Page) -> None:
    folder = own.folder / HOSTILE.replace("/", "_").replace('"', "'")
    with sonde.record(folder, name=HOSTILE, config={"optimiser": HOSTILE, HOSTILE: 1}) as writer:
        for step in range(1, 30):
            writer.log({"loss": 1 / step, f"grad/rms@{HOSTILE}": step}, step=step)
        writer.event("finding", step=20, data=finding(HOSTILE, where=[HOSTILE], cause=HOSTILE))
    page.goto(own.url())
    page.locator(".of-name a").click()
    expect(page.locator("h1")).to_contain_text("<script>")
    wait(page)
    expect(page.locator(".diagnosis")).to_contain_text("<img src=x")
    run = page.url.split("#")[1]
    page.locator(".finding-line").first.click()
    expect(page.locator(".finding-view .message").first).to_contain_text("<script>")
    for view in ("layers", "explore"):
        page.goto(own.url(f"#{run}/{view}"))
        expect(page.locator("canvas, .notice, .tag-list li").first).to_be_visible()
    page.goto(own.url(f"#{run}/explore?tag=grad/rms@*"))
    expect(page.locator("figure.chart canvas")).to_be_visible()
    assert page.title() != "broken in"
    assert page.locator("img, main script").count() == 0


def export(run: Path, file: Path) -> None:
    command = [sys.executable, "-m", "sonde", "ui", str(run), "--export", str(file)]
    subprocess.run(command, check=True, capture_output=True)


def test_snapshot_shows_the_run_without_a_server(recorded: Path, page: Page, tmp_path: Path) -> None:
    file = tmp_path / "snapshot.html"
    export(recorded / "overfitting", file)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    wait(page)
    expect(page.locator(".verdict h2")).to_have_text("Warning: overfitting")
    page.locator(".finding-line").first.click()
    expect(page.locator(".rule-page")).to_contain_text("When it is wrong")
    expect(page.locator("figure.chart canvas").first).to_be_visible()
    page.get_by_role("button", name="Mute").click()
    expect(page.locator(".mute")).to_contain_text("snapshot")
    page.goto(f"{file.as_uri()}#/run/overfitting/layers")
    expect(page.locator("figure.heat canvas")).to_be_visible()
    assert {url.split("#")[0] for url in asked} == {file.as_uri()}


def test_snapshot_of_hostile_names_runs_nothing_of_them(page: Page, tmp_path: Path) -> None:
    with sonde.record(tmp_path / "run", name="</script>" + HOSTILE, config={"note": "</script>" + HOSTILE}) as writer:
        for step in range(1, 30):
            writer.log({"loss": 1 / step}, step=step)
        writer.event("finding", step=20, data=finding("</script>" + HOSTILE))
    export(tmp_path / "run", tmp_path / "snapshot.html")
    page.goto((tmp_path / "snapshot.html").as_uri())
    wait(page)
    expect(page.locator("h1")).to_contain_text("</script>")
    expect(page.locator(".diagnosis")).to_contain_text("<img src=x")
    assert page.title() != "broken in"
    assert page.locator("img").count() == 0


def test_snapshot_of_several_runs_is_refused(recorded: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sonde", "ui", str(recorded), "--export", str(tmp_path / "snapshot.html")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "a snapshot is of one run" in done.stderr
    assert not (tmp_path / "snapshot.html").exists()


def test_page_is_small_and_fetches_nothing_from_elsewhere(served: Served, page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for fragment in ("#/", "#/run/healthy", "#/run/healthy/layers"):
        page.goto(served.url(fragment))
        expect(page.locator("canvas, .rows .row").first).to_be_visible()
    elsewhere = [url for url in asked if not url.startswith((served.url(""), "blob:"))]
    assert elsewhere == []


def finding(message: str, *, where: list[str] | None = None, cause: str = "plateau") -> dict[str, object]:
    return {
        "code": "LOS004",
        "name": "loss-stuck",
        "severity": "warning",
        "first_step": 20,
        "last_step": 20,
        "open": True,
        "where": where or [],
        "message": message,
        "evidence": [{"tag": "loss", "step": 20, "value": 0.05, "expected": None}],
        "causes": [{"cause": "plateau", "confidence": 0.8, "because": cause}],
        "remedies": [{"action": "lower-lr", "args": {"factor": 0.3}, "safety": "advice", "text": message}],
    }


def record(folder: Path) -> None:
    with sonde.record(folder, config={"lr": 0.1}) as writer:
        for step in range(1, 41):
            writer.log({"loss": 1 / step, "lr": 0.1}, step=step)
