/** What a chart shows: lines, each of them a series in one colour. */

import type { Range } from "./ranges";
import { mayBeSmoothed, smooth } from "./smoothing";
import type { Points } from "./points";
import type { Mark } from "./marks";
import type { Phase } from "../api/types";

export interface Line {
  tag: string;
  label: string;
  /** The name of a colour of the style sheet. */
  colour: string;
  points: Points;
  /** Half-life of the smoothing, in units of x; 0 for none. */
  smoothing: number;
  /** Points are measured far apart: each one is drawn. */
  dots?: boolean;
  dashed?: boolean;
}

/** A level to compare with, such as what was expected. */
export interface Level {
  value: number;
  label: string;
}

export interface ChartContent {
  title: string;
  unit: string;
  lines: Line[];
  log: boolean;
  range: Range | null;
  whole: Range;
  marks: Mark[];
  phases: Phase[];
  evaluations: number[];
  levels: Level[];
  xLabel: (x: number) => string;
  xName: string;
}

/** A line as it is drawn: the values, a band from low to high where points stand for several steps, and the average. */
export interface DrawnLine {
  line: Line;
  average: ArrayLike<number> | null;
  band: { low: ArrayLike<number>; high: ArrayLike<number> } | null;
}

export const isSmoothed = (line: Line): boolean =>
  line.smoothing > 0 && mayBeSmoothed(line.tag) && line.points.x.length > 2;

/** Whether lines show the very same values, so that a chart need not be given them again. */
export function sameValues(before: Line[], now: Line[]): boolean {
  return (
    before.length === now.length &&
    before.every((line, i) => line.points === now[i].points && line.smoothing === now[i].smoothing)
  );
}

export function drawn(line: Line): DrawnLine {
  return {
    line,
    average: isSmoothed(line) ? smooth(line.points, line.smoothing) : null,
    band: line.points.exact ? null : { low: line.points.low, high: line.points.high },
  };
}

/** From the first to the last x of all lines. */
export function extent(lines: Line[]): Range {
  const filled = lines.filter((line) => line.points.x.length);
  if (!filled.length) return { from: 0, to: 1 };
  const from = Math.min(...filled.map((line) => line.points.x[0]));
  const to = Math.max(...filled.map((line) => line.points.x[line.points.x.length - 1]));
  return from < to ? { from, to } : { from: from - 0.5, to: to + 0.5 };
}
