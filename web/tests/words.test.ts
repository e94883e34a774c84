import { describe, expect, test } from "vitest";
import { causeMeaning, causeTitle, meaning, sentence, splitTag } from "../src/words/meanings";
import { ago, count, fromJson, number, percent, plain, quantity, seconds } from "../src/words/quantities";

describe("quantities", () => {
  // As `sonde.core.quantities` says them.
  test.each([
    [0.281249, "0.2812"],
    [2e-5, "2e-5"],
    [12071, "12,071"],
    [1.5e9, "1.5e9"],
    [NaN, "NaN"],
    [-Infinity, "-infinite"],
    [0, "0"],
    [100, "100"],
    [-0.5, "-0.5"],
    [999.96, "1000"],
  ])("number %s", (value, text) => expect(number(value)).toBe(text));

  test.each([
    [0.0213, "s", "21.3 ms"],
    [3 * 2 ** 30, "bytes", "3 GiB"],
    [0.0004, "share", "0.04%"],
    [31.5, "samples/s", "31.5 samples/s"],
    [NaN, "bytes", "NaN"],
  ])("quantity %s %s", (value, unit, text) => expect(quantity(value, unit)).toBe(text));

  test("seconds of any size", () =>
    expect([12e-6, 0.0213, 52.04, 190, 90061, 0].map(seconds)).toEqual([
      "12 µs",
      "21.3 ms",
      "52 s",
      "3 min 10 s",
      "1 d 1 h",
      "0 s",
    ]));

  test("how long ago", () =>
    expect([100, 90, 40, -4000, 900].map((time) => ago(time, 100))).toEqual([
      "now",
      "10 s ago",
      "1 min ago",
      "1 h ago",
      "now",
    ]));

  test("counts and shares", () =>
    expect([count(1, "step"), count(1200, "step"), count(2, "series", "series"), percent(0.876)]).toEqual([
      "1 step",
      "1,200 steps",
      "2 series",
      "88%",
    ]));

  test("numbers that JSON holds as text", () =>
    expect([fromJson("-Infinity"), fromJson(null), fromJson(3)]).toEqual([-Infinity, null, 3]));

  test("values of a configuration", () =>
    expect([plain(null), plain(3), plain(0.1 + 0.2), plain([1, 2]), plain(false)]).toEqual([
      "–",
      "3",
      "0.3",
      "[1,2]",
      "false",
    ]));
});

describe("meanings", () => {
  test("a tag of a layer names the layer", () =>
    expect(meaning("grad/rms@head.weight").title).toBe("Gradient size (RMS) of head.weight"));
  test("an unknown tag stands for itself", () =>
    expect(meaning("val/accuracy")).toEqual({ title: "val/accuracy", unit: "", explained: "" }));
  test("a layer's name may hold an at", () => expect(splitTag("a@b@c")).toEqual({ path: "a", where: "b@c" }));
  test("causes are spoken", () => {
    expect(causeTitle("lr-too-high")).toBe("Learning rate too high");
    expect(causeTitle(null)).toBe("Cause not known");
    expect(causeMeaning("lr-too-high")).toContain("steps overshoot");
    expect(causeMeaning("of-a-package")).toBe("");
  });
  test("sentences end once", () =>
    expect([sentence("the loss rises"), sentence("Why?")]).toEqual(["The loss rises.", "Why?"]));
});
