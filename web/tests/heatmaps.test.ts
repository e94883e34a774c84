import { describe, expect, test } from "vitest";
import { cellAt, labelledRows, mapHeight, nearestColumn, shortened } from "../src/heatmaps/geometry";
import { NOTHING, PALETTE, pixels, shadingOf, share, transposed, valueAt } from "../src/heatmaps/shades";

describe("shades", () => {
  test("values far apart are told by their logarithms, with zeros apart", () => {
    const shading = shadingOf([1e-6, 1e-3, 1, 0, NaN]);
    expect(shading).toEqual({ log: true, low: 1e-6, high: 1 });
    expect(share(1e-3, shading)).toBeCloseTo(0.5, 9);
    expect(valueAt(0.5, shading)).toBeCloseTo(1e-3, 9);
  });

  test("signed values and those close together are told as they are", () => {
    expect(shadingOf([-1, 100]).log).toBe(false);
    expect(shadingOf([1, 2, 3])).toEqual({ log: false, low: 1, high: 3 });
  });

  test("one single value, or none, has a scale as well", () => {
    for (const values of [[5, 5], [0, 0], [NaN], []]) {
      const { low, high } = shadingOf(values);
      expect(low).toBeLessThan(high);
    }
  });

  test("a few outliers do not flatten all the rest", () => {
    const values = Array.from({ length: 1000 }, (_, i) => -500 + i);
    expect(shadingOf([...values, 1e9]).high).toBeLessThan(1000);
  });

  test("one layer that alone is far off keeps its shade apart", () => {
    const rows = [...Array.from({ length: 90 }, () => 0.5), ...Array.from({ length: 10 }, () => -8)];
    expect(shadingOf(rows)).toEqual({ log: false, low: -8, high: 0.5 });
  });

  test("what was not measured is see-through, infinite values are lost, zeros black on a logarithmic scale", () => {
    const painted = pixels([NaN, Infinity, 0, 1], { log: true, low: 1e-3, high: 1 }, [9, 8, 7]);
    expect([...painted.slice(0, 4)]).toEqual([0, 0, 0, 0]);
    expect([...painted.slice(4, 8)]).toEqual([9, 8, 7, 255]);
    expect([...painted.slice(8, 12)]).toEqual([...NOTHING, 255]);
    expect([...painted.slice(12, 16)]).toEqual([...PALETTE.slice(-3), 255]);
  });

  test("the palette grows lighter from step to step, so that it can be read without colours", () => {
    const light = Array.from(
      { length: 256 },
      (_, i) => 0.2126 * PALETTE[3 * i] + 0.7152 * PALETTE[3 * i + 1] + 0.0722 * PALETTE[3 * i + 2],
    );
    for (let i = 8; i < 256; i += 8) expect(light[i]).toBeGreaterThan(light[i - 8]);
  });

  test("a matrix is laid on its side", () =>
    expect([...transposed(Float32Array.of(1, 2, 3, 4, 5, 6), 2, 3)]).toEqual([1, 4, 2, 5, 3, 6]));
});

describe("geometry", () => {
  test("a point is in the cell under it, and in none beside the map", () => {
    expect(cellAt(99, 0, 100, 50, 10, 5)).toEqual({ column: 9, row: 0 });
    expect(cellAt(50, 49.9, 100, 50, 10, 5)).toEqual({ column: 5, row: 4 });
    expect(cellAt(100, 10, 100, 50, 10, 5)).toBeNull();
    expect(cellAt(-1, 10, 100, 50, 10, 5)).toBeNull();
  });

  test("a thousand names leave room for each other", () => {
    const rows = labelledRows(1000, 500, 13);
    expect(rows.length).toBeLessThanOrEqual(39);
    expect(labelledRows(5, 100, 13)).toEqual([0, 1, 2, 3, 4]);
  });

  test("long names keep their end", () =>
    expect(shortened("blocks.11.attention.qkv.weight", (text) => text.length <= 12)).toBe("….qkv.weight"));
  test("the nearest measured step is chosen", () =>
    expect([0, 14, 16, 99].map((step) => nearestColumn([10, 20, 30], step))).toEqual([0, 0, 1, 2]));
  test("a map is never higher than its room", () =>
    expect([mapHeight(1000, 600), mapHeight(3, 600), mapHeight(3, 90)]).toEqual([600, 140, 90]));
});
