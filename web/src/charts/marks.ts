/** Findings on a chart: those that lie too close to be told apart share one mark. */

import type { Severity } from "../api/types";

export interface Mark {
  x: number;
  severity: Severity;
  label: string;
  link: string;
}

export interface MarkCluster {
  x: number;
  severity: Severity;
  marks: Mark[];
}

const RANKS: Record<Severity, number> = { info: 0, warning: 1, critical: 2 };

export const isWorse = (one: Severity, other: Severity): boolean => RANKS[one] > RANKS[other];

/** Marks closer than `gap` pixels together, each cluster at its first mark and as grave as its worst. */
export function clusterMarks(marks: Mark[], pixel: (x: number) => number, gap: number): MarkCluster[] {
  const clusters: MarkCluster[] = [];
  for (const mark of marks.toSorted((a, b) => a.x - b.x)) {
    const last = clusters.at(-1);
    if (!last || pixel(mark.x) - pixel(last.x) > gap)
      clusters.push({ x: mark.x, severity: mark.severity, marks: [mark] });
    else {
      last.marks.push(mark);
      if (isWorse(mark.severity, last.severity)) last.severity = mark.severity;
    }
  }
  return clusters;
}
