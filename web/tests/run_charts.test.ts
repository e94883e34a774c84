import { expect, test } from "vitest";
import type { Finding } from "../src/api/types";
import type { Points } from "../src/charts/points";
import { byEvidence, CHARTS, evaluationCharts, linesOf, LOSS } from "../src/views/run_charts";

const points = (mean: number[], x = mean.map((_, i) => i)): Points => {
  const values = Float64Array.from(mean);
  return { x: Float64Array.from(x), mean: values, low: values, high: values, exact: true };
};
const many = Array.from({ length: 60 }, (_, i) => 1 / (i + 1));

test("charts that show the evidence of the first cause come first", () => {
  const finding = { evidence: [{ tag: "time/data", step: 1, value: 1, expected: null }] } as unknown as Finding;
  const causes = [{ group: {} as never, symptoms: [finding] }];
  const titles = byEvidence(CHARTS, causes).map(({ title }) => title);
  expect(titles[0]).toBe("Time of a step");
  expect(titles.slice(1)).toEqual(CHARTS.map(({ title }) => title).filter((title) => title !== "Time of a step"));
  expect(byEvidence(CHARTS, [])).toEqual(CHARTS);
});

test("series without points make no lines, and the others keep their colours", () => {
  const lines = linesOf(
    LOSS,
    new Map([
      ["loss", points([])],
      ["val/loss", points([1, 2])],
    ]),
    5,
  );
  expect(lines.map(({ tag, colour }) => [tag, colour])).toEqual([["val/loss", "series-1"]]);
});

test("evaluations and few points are drawn one by one and never smoothed", () => {
  const [training, validation] = linesOf(
    LOSS,
    new Map([
      ["loss", points(many)],
      ["val/loss", points(many)],
    ]),
    5,
  );
  expect([training.smoothing, training.dots, validation.smoothing, validation.dots]).toEqual([5, false, 0, true]);
  expect(linesOf(LOSS, new Map([["loss", points([1, 2, 3])]]), 5)[0]).toMatchObject({ smoothing: 0, dots: true });
});

test("a gradient that is never clipped is one line", () => {
  const [plan] = CHARTS;
  const clipped = many.map((value) => value / 2);
  expect(
    linesOf(
      plan,
      new Map([
        ["grad/norm", points(many)],
        ["grad/norm_applied", points(many)],
      ]),
      0,
    ),
  ).toHaveLength(1);
  expect(
    linesOf(
      plan,
      new Map([
        ["grad/norm", points(many)],
        ["grad/norm_applied", points(clipped)],
      ]),
      0,
    ),
  ).toHaveLength(2);
});

test("metrics of evaluations have charts, the loss has its own already", () => {
  expect(evaluationCharts(["val/accuracy", "val/loss"]).map(({ tags }) => tags)).toEqual([["val/accuracy"]]);
});
