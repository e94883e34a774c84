/** The charts of a run's overview: which series stand together, and what they are called. */

import type { Points } from "../charts/points";
import type { SeriesMap } from "../charts/series";
import type { Line } from "../charts/lines";
import type { Cause } from "../findings/groups";
import { meaning, splitTag } from "../words/meanings";

export interface ChartPlan {
  title: string;
  unit: string;
  explained: string;
  tags: string[];
  labels: string[];
  log: boolean | "auto";
}

const plan = (title: string, tags: string[], labels: string[] = tags, log: boolean | "auto" = false): ChartPlan => {
  const { unit, explained } = meaning(tags[0]);
  return { title, unit, explained, tags, labels, log };
};

export const LOSS = plan("Loss", ["loss", "val/loss"], ["training", "validation"], "auto");

export const CHARTS: ChartPlan[] = [
  plan("Gradient norm", ["grad/norm", "grad/norm_applied"], ["before clipping", "applied"], "auto"),
  plan("Update ratio", ["update/ratio"], ["update ÷ weight"], "auto"),
  plan("Learning rate", ["lr"]),
  plan("Throughput", ["throughput/samples_per_s"], ["samples/s"]),
  plan(
    "Time of a step",
    ["time/data", "time/forward", "time/loss", "time/backward", "time/optimizer", "time/other"],
    ["data", "forward", "loss", "backward", "optimiser", "other"],
  ),
  plan("Memory", ["memory/allocated", "memory/peak", "host/rss"], ["GPU in use", "GPU peak", "process"]),
];

export const COLOURS = ["series-0", "series-1", "series-2", "series-3", "series-4", "series-5", "series-6", "series-7"];

/** So few points are drawn one by one, and say more without smoothing. */
export const SPARSE = 40;

/** Series of which evaluations are made, and so few points come. */
const isEvaluated = (tag: string): boolean => tag.startsWith("val/") || tag.startsWith("epoch/");

/** A chart for each metric of evaluations but the loss, which has one. */
export function evaluationCharts(tags: string[]): ChartPlan[] {
  return tags.filter((tag) => tag !== "val/loss").map((tag) => plan(meaning(tag).title, [tag]));
}

/** The charts that show the evidence of the gravest cause first, the rest in its usual order. */
export function byEvidence(plans: ChartPlan[], causes: Cause[]): ChartPlan[] {
  const evidence = new Set(
    causes[0]?.symptoms.flatMap((finding) => finding.evidence.map(({ tag }) => splitTag(tag).path)),
  );
  const isEvidence = ({ tags }: ChartPlan): boolean => tags.some((tag) => evidence.has(tag));
  return plans.toSorted((one, other) => Number(isEvidence(other)) - Number(isEvidence(one)));
}

/** The lines of a chart that have points, in the colours of the plan. */
export function linesOf({ tags, labels }: ChartPlan, series: SeriesMap, smoothing: number): Line[] {
  return tags.flatMap((tag, i) => {
    const points = series.get(tag);
    if (!points?.x.length || isRepeated(tags, i, series)) return [];
    const isSparse = points.x.length < (isEvaluated(tag) ? 200 : SPARSE);
    const line = { tag, label: labels[i] ?? tag, colour: COLOURS[i % COLOURS.length], points };
    return [{ ...line, smoothing: isEvaluated(tag) || isSparse ? 0 : smoothing, dots: isSparse }];
  });
}

/** A gradient that is never clipped is applied as it was: one line tells both. */
function isRepeated(tags: string[], place: number, series: SeriesMap): boolean {
  if (tags[place] !== "grad/norm_applied") return false;
  const [before, applied] = [series.get("grad/norm"), series.get("grad/norm_applied")];
  return before !== undefined && applied !== undefined && sameValues(before, applied);
}

function sameValues(one: Points, other: Points): boolean {
  return (
    one.mean.length === other.mean.length &&
    one.mean.every(
      (value, i) => Object.is(value, other.mean[i]) || Math.abs(value - other.mean[i]) < 1e-6 * Math.abs(value),
    )
  );
}
