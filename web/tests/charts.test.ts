import { describe, expect, test } from "vitest";
import { align } from "../src/charts/alignment";
import { axisLabel, logTicks, shortNumber, stepLabel, ticks, wantsLog } from "../src/charts/axes";
import { chartCsv } from "../src/charts/csv";
import { drawn, extent, type ChartContent, type Line } from "../src/charts/lines";
import { clusterMarks, type Mark } from "../src/charts/marks";
import { append, lastFinite, lostAt, moved, splice, type Points } from "../src/charts/points";
import { panned, readRange, within, writeRange, zoomed } from "../src/charts/ranges";
import { mayBeSmoothed, smooth } from "../src/charts/smoothing";
import { chartSvg, polyline } from "../src/charts/svg";

function points(x: number[], mean: number[], spread = 0): Points {
  const values = Float64Array.from(mean);
  return {
    x: Float64Array.from(x),
    mean: values,
    low: values.map((v) => v - spread),
    high: values.map((v) => v + spread),
    exact: spread === 0,
  };
}

const line = (own: Points, tag = "loss", smoothing = 0): Line => ({
  tag,
  label: tag,
  colour: "main",
  points: own,
  smoothing,
});

function content(lines: Line[], more: Partial<ChartContent> = {}): ChartContent {
  const usual = {
    title: "Loss",
    unit: "",
    log: false,
    range: null,
    whole: extent(lines),
    marks: [],
    phases: [],
    evaluations: [],
    levels: [],
  };
  return { ...usual, lines, xLabel: stepLabel, xName: "step", ...more };
}

describe("points", () => {
  test("fine points take the place of coarse ones between their ends", () => {
    const coarse = points([0, 10, 20, 30, 40], [0, 1, 2, 3, 4], 0.5);
    const both = splice(coarse, points([10, 15, 20, 25], [7, 7, 7, 7]));
    expect([...both.x]).toEqual([0, 10, 15, 20, 25, 30, 40]);
    expect([...both.mean]).toEqual([0, 7, 7, 7, 7, 3, 4]);
    expect(both.exact).toBe(false);
  });

  test("fine points that take the place of all are exact where they are", () => {
    expect(splice(points([5, 6], [1, 1], 1), points([5, 6], [2, 3])).exact).toBe(true);
  });

  test("without fine points nothing changes", () => {
    const coarse = points([1, 2], [3, 4]);
    expect(splice(coarse, points([], []))).toBe(coarse);
  });

  test("only later points are put behind", () => {
    const grown = append(points([1, 2, 3], [1, 2, 3]), points([2, 3, 4, 5], [9, 9, 4, 5]));
    expect([...grown.x]).toEqual([1, 2, 3, 4, 5]);
    expect([...grown.mean]).toEqual([1, 2, 3, 4, 5]);
  });

  test("nothing new leaves the very same points", () => {
    const own = points([1, 2], [1, 2]);
    expect(append(own, points([1, 2], [1, 2]))).toBe(own);
    expect([...append(points([], []), points([1], [2])).x]).toEqual([1]);
  });

  test("lost values are told with their places, and the last finite one is found before them", () => {
    const own = points([1, 2, 3], [5, NaN, Infinity]);
    expect(lostAt(own)).toEqual([2, 3]);
    expect(lastFinite(own.mean)).toBe(5);
    expect(lastFinite([NaN])).toBeNull();
  });

  test("points are moved to other places on the axis", () => {
    expect([...moved(points([1, 2], [3, 4]), (x) => 32 * x).x]).toEqual([32, 64]);
  });
});

describe("smoothing", () => {
  test("after one half-life an average is half way to a new level", () => {
    const own = points([0, 1, 2, 3, 4, 5, 6], [0, 1, 1, 1, 1, 1, 1]);
    expect(smooth(own, 2)[4]).toBeCloseTo(1 - 2 ** (-4 / 2), 12);
  });

  test("equals the average that a plain loop over all steps makes", () => {
    const values = Array.from({ length: 50 }, (_, i) => Math.sin(i) + i / 10);
    let expected = values[0];
    for (const value of values.slice(1)) expected = expected * 2 ** (-1 / 7) + value * (1 - 2 ** (-1 / 7));
    expect(smooth(points([...values.keys()], values), 7).at(-1)).toBeCloseTo(expected, 10);
  });

  test("there is no average where a value is lost, and it goes on behind it", () => {
    const smoothed = smooth(points([0, 1, 2], [4, NaN, 4]), 5);
    expect([...smoothed]).toEqual([4, NaN, 4]);
  });

  test("learning rates and settings are never smoothed", () => {
    expect(["lr", "lr@decoder", "amp/scale", "optimizer/beta1", "epoch"].map(mayBeSmoothed)).toEqual([
      false,
      false,
      false,
      false,
      false,
    ]);
    expect(["loss", "lrx", "grad/norm@lr.weight"].map(mayBeSmoothed)).toEqual([true, true, true]);
    expect(drawn(line(points([1, 2, 3], [1, 2, 3]), "lr", 5)).average).toBeNull();
    expect(drawn(line(points([1, 2, 3], [1, 2, 3]), "loss", 5)).average).not.toBeNull();
  });
});

describe("ranges", () => {
  const whole = { from: 0, to: 100 };

  test("zooming in keeps the middle, zooming out ends at the whole", () => {
    expect(zoomed(null, whole, 0.5)).toEqual({ from: 25, to: 75 });
    expect(zoomed({ from: 25, to: 75 }, whole, 2)).toBeNull();
    expect(zoomed({ from: 0, to: 20 }, whole, 0.5, 0)).toEqual({ from: 0, to: 10 });
  });

  test("panning stops at the ends with the same length", () => {
    expect(panned({ from: 10, to: 30 }, whole, -1)).toEqual({ from: 0, to: 20 });
    expect(panned({ from: 70, to: 90 }, whole, 0.25)).toEqual({ from: 75, to: 95 });
    expect(panned(null, whole, 1)).toBeNull();
  });

  test("a range beside the whole is none", () => {
    expect(within({ from: 200, to: 300 }, whole)).toBeNull();
    expect(within({ from: -5, to: 50 }, whole)).toEqual({ from: 0, to: 50 });
  });

  test("an address keeps a range, rounded to what is seen", () => {
    const written = writeRange({ from: 12.3456789, to: 18.98765 });
    expect(written).toEqual({ from: "12.346", to: "18.988" });
    expect(readRange(new URLSearchParams(written as Record<string, string>))).toEqual({ from: 12.346, to: 18.988 });
    expect(writeRange(null)).toEqual({ from: null, to: null });
  });

  test.each(["from=5", "from=9&to=3", "from=x&to=y", ""])("%s is no range", (text) => {
    expect(readRange(new URLSearchParams(text))).toBeNull();
  });
});

describe("alignment", () => {
  test("series of different steps stand in one table, and what is missing is told from what is lost", () => {
    const table = align(
      [
        { x: [1, 2, 4], columns: [[10, NaN, 40]] },
        { x: [2, 3], columns: [[2, 3]] },
      ],
      false,
    );
    expect(table.x).toEqual([1, 2, 3, 4]);
    expect(table.columns).toEqual([
      [10, null, undefined, 40],
      [undefined, 2, 3, undefined],
    ]);
  });

  test("on a logarithmic axis only positive values have a place", () => {
    expect(align([{ x: [1, 2, 3], columns: [[0, -1, 5]] }], true).columns).toEqual([[null, null, 5]]);
  });

  test("a step that comes twice is one place", () => {
    expect(align([{ x: [1, 1, 2], columns: [[5, 6, 7]] }], false)).toEqual({ x: [1, 2], columns: [[5, 7]] });
  });
});

describe("axes", () => {
  test("ticks are round numbers within the range", () => {
    expect(ticks(0, 1, 5)).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
    expect(ticks(7, 43, 4)).toEqual([10, 20, 30, 40]);
    expect(ticks(3, 3, 4)).toEqual([3]);
  });

  test("logarithmic ticks are powers of ten over a wide range, and finer over a narrow one", () => {
    expect(logTicks(0.5, 2e5, 10)).toEqual([1, 10, 100, 1000, 10000, 100000]);
    expect(logTicks(0.8, 12, 5)).toEqual([1, 2, 5, 10]);
    expect(logTicks(1e-3, 1e9, 4).length).toBeLessThanOrEqual(5);
  });

  test("labels are short", () => {
    expect([stepLabel(9999), stepLabel(120000), shortNumber(2.5e6), shortNumber(2e-5), shortNumber(0)]).toEqual([
      "9,999",
      "120k",
      "2.5M",
      "2e-5",
      "0",
    ]);
    expect([axisLabel(0.25, "share"), axisLabel(0.002, "s"), axisLabel(2 ** 30, "bytes")]).toEqual([
      "25%",
      "2 ms",
      "1 GiB",
    ]);
  });

  test("a logarithmic scale is chosen for positive values that are far apart", () => {
    expect([
      wantsLog([1, 100]),
      wantsLog([1, 2]),
      wantsLog([0, 100]),
      wantsLog([-1, 100]),
      wantsLog([NaN, 1, 1000]),
    ]).toEqual([true, false, false, false, true]);
  });
});

test("marks that lie too close share one, as grave as the worst of them", () => {
  const mark = (x: number, severity: Mark["severity"]): Mark => ({ x, severity, label: "", link: "" });
  const clusters = clusterMarks(
    [mark(50, "info"), mark(0, "warning"), mark(4, "critical"), mark(12, "info")],
    (x) => 2 * x,
    10,
  );
  expect(clusters.map(({ x, severity, marks }) => [x, severity, marks.length])).toEqual([
    [0, "critical", 2],
    [12, "info", 1],
    [50, "info", 1],
  ]);
});

describe("files", () => {
  test("a CSV has the lowest and highest values where points stand for several steps", () => {
    const csv = chartCsv(content([line(points([1, 2], [5, 6], 1)), line(points([2], [0.1]), "lr")]));
    expect(csv).toBe("step,loss,loss (lowest),loss (highest),lr\r\n1,5,4,6,\r\n2,6,5,7,0.1\r\n");
  });

  test("a name that a spreadsheet would run as a formula is kept from it", () => {
    expect(chartCsv(content([line(points([1], [5]), '=HYPERLINK("x")')]))).toContain(`"'=HYPERLINK(""x"")"`);
  });

  test("an SVG shows names as text", () => {
    const svg = chartSvg(
      content([line(points([1, 2], [3, 4]), "<script>alert(1)</script>")], { title: 'a"<b>' }),
      () => "#000000",
    );
    expect(svg).not.toContain("<script>");
    expect(svg).toContain("a&quot;&lt;b&gt;");
  });

  test("a line begins anew behind what is lost", () => {
    expect(
      polyline(
        [0, 1, 2, 3],
        [1, 2, NaN, 4],
        (x) => x,
        (y) => y,
        false,
      ),
    ).toBe("M0.0 1.0L1.0 2.0M3.0 4.0");
  });
});
