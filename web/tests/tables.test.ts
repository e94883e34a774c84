import { describe, expect, test } from "vitest";
import { conditions, passes, type Value } from "../src/tables/filtering";
import { grouped } from "../src/tables/grouping";
import { lookup, searchText, settingNames } from "../src/tables/run_columns";
import { nextOrder, readOrder, sorted, writeOrder } from "../src/tables/sorting";
import { scrollTo, visibleRows } from "../src/tables/visible_rows";
import type { RunLine } from "../src/api/types";

const found = (line: string, row: Record<string, Value>, text = "Baseline run"): boolean =>
  passes(conditions(line), (name) => row[name], text);

describe("filtering", () => {
  test.each([
    ["base run", true],
    ["base -run", false],
    ['"line run"', true],
    ["missing", false],
    ["", true],
  ])("words: %s", (line, expected) => expect(found(line, {})).toBe(expected));

  test.each([
    ["lr>0.001", true],
    ["lr>=0.01", true],
    ["lr<0.01", false],
    ["lr=1e-2", true],
    ["lr!=0.01", false],
    ["opt:adam", true],
    ["opt=adam", false],
    ["-opt:sgd", true],
    ["absent>3", false],
    ["absent!=3", true],
    ["flag=true", true],
    ["lr>0.001 opt:sgd", false],
  ])("conditions: %s", (line, expected) => expect(found(line, { lr: 0.01, opt: "AdamW", flag: true })).toBe(expected));

  test("half a quote is a word that goes on to the end", () => expect(found('"line ru', {})).toBe(true));
});

describe("sorting", () => {
  const values = (list: Value[], descending: boolean): Value[] => sorted(list, (value) => value, descending);

  test("numbers by size, what is missing last in both directions", () => {
    expect(values([3, null, 1, NaN, 20], false)).toEqual([1, 3, 20, null, NaN]);
    expect(values([3, null, 1, 20], true)).toEqual([20, 3, 1, null]);
  });

  test("names with numbers as people count", () =>
    expect(values(["run10", "run9", "Run1"], false)).toEqual(["Run1", "run9", "run10"]));

  test("infinite values have their place", () =>
    expect(values([1, Infinity, -Infinity, Infinity], false)).toEqual([-Infinity, 1, Infinity, Infinity]));

  test("rows that are alike stay in their order", () => {
    const rows = [1, 2, 3].map((place) => ({ place, value: 0 }));
    expect(sorted(rows, (row) => row.value, true)).toEqual(rows);
  });

  test("a second click turns the order around, and an address keeps it", () => {
    const order = nextOrder({ column: "loss", descending: false }, "loss", false);
    expect(order).toEqual({ column: "loss", descending: true });
    expect(readOrder(writeOrder(order), { column: "x", descending: false })).toEqual(order);
    expect(readOrder(null, order)).toEqual(order);
  });
});

test("closed groups keep their heading and hide their rows", () => {
  const items = grouped([1, 2, 3, 4], (row) => (row % 2 ? "odd" : "even"), new Set(["odd"]));
  expect(items.map((item) => (item.kind === "heading" ? `${item.key} ${item.rows.length}` : item.row))).toEqual([
    "odd 2",
    "even 2",
    2,
    4,
  ]);
});

describe("rows on the screen", () => {
  test("of a thousand rows only those near the screen are made", () => {
    const { first, last } = visibleRows(3400, 680, 34, 1000, 8);
    expect([first, last]).toEqual([92, 128]);
  });

  test("a table that became shorter than it was scrolled shows its end", () =>
    expect(visibleRows(34_000, 680, 34, 10).last).toBe(10));

  test("a row is scrolled to only where it is not seen", () => {
    expect(scrollTo(5, 0, 340, 34)).toBeNull();
    expect(scrollTo(10, 0, 340, 34)).toBe(34);
    expect(scrollTo(2, 340, 340, 34)).toBe(68);
  });
});

describe("runs", () => {
  const run = (config: RunLine["config"], more: Partial<RunLine> = {}): RunLine => ({
    id: "a/b",
    name: "b",
    state: "ended",
    reason: "",
    verdict: "warning",
    alarms: { warning: 1, critical: 0 },
    steps: 5,
    loss: "NaN",
    spark: [],
    lr: 0.1,
    step_s: null,
    created: 0,
    updated: 0,
    config,
    tags: ["kept"],
    note: "look here",
    problem: null,
    ...more,
  });

  test("settings that tell runs apart come first", () => {
    const { all, telling } = settingNames([
      run({ lr: 1, seed: 0, depth: 3 }),
      run({ lr: 2, seed: 0 }),
      run({ lr: 3, seed: 0, depth: 4 }),
    ]);
    expect(all).toEqual(["depth", "lr", "seed"]);
    expect(telling).toEqual(["lr", "depth"]);
  });

  test("a filter knows verdicts, tags, settings and columns", () => {
    const one = run({ width: 64 });
    expect([
      lookup(one, "verdict"),
      lookup(one, "tag"),
      lookup(one, "width"),
      lookup(one, "config.width"),
      lookup(one, "steps"),
      lookup(one, "lr"),
    ]).toEqual(["warning", "kept", 64, 64, 5, 0.1]);
    expect(lookup(one, "loss")).toBeNaN();
    expect(searchText(one)).toContain("look here");
  });
});
