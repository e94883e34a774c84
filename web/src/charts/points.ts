/** Points of a series, each the mean of some steps with the lowest and the highest value among them. */

export interface Points {
  x: Float64Array;
  mean: Float64Array;
  low: Float64Array;
  high: Float64Array;
  exact: boolean;
}

type Column = "x" | "mean" | "low" | "high";

export const NO_POINTS: Points = {
  x: new Float64Array(),
  mean: new Float64Array(),
  low: new Float64Array(),
  high: new Float64Array(),
  exact: true,
};

/** The coarse points with finer ones in their place where there are some. */
export function splice(coarse: Points, fine: Points): Points {
  if (!fine.x.length) return coarse;
  const before = firstAtLeast(coarse.x, fine.x[0]);
  const after = firstAbove(coarse.x, fine.x[fine.x.length - 1]);
  const isReplaced = before === 0 && after === coarse.x.length;
  const join = (name: Column): Float64Array =>
    concatenate(coarse[name].subarray(0, before), fine[name], coarse[name].subarray(after));
  return {
    x: join("x"),
    mean: join("mean"),
    low: join("low"),
    high: join("high"),
    exact: fine.exact && (coarse.exact || isReplaced),
  };
}

/** Points with those behind them that are later. */
export function append(points: Points, more: Points): Points {
  const start = points.x.length ? firstAbove(more.x, points.x[points.x.length - 1]) : 0;
  if (start === more.x.length) return points;
  const join = (name: Column): Float64Array => concatenate(points[name], more[name].subarray(start));
  return { x: join("x"), mean: join("mean"), low: join("low"), high: join("high"), exact: points.exact && more.exact };
}

/** The same values at other places, such as samples in place of steps. */
export function moved(points: Points, place: (x: number) => number): Points {
  return { ...points, x: points.x.map(place) };
}

/** The first place in a sorted list at which a value of at least `limit` stands. */
export const firstAtLeast = (sorted: ArrayLike<number>, limit: number): number =>
  firstWhere(sorted, (value) => value >= limit);

/** The first place in a sorted list at which a value above `limit` stands. */
export const firstAbove = (sorted: ArrayLike<number>, limit: number): number =>
  firstWhere(sorted, (value) => value > limit);

/** The last value that is finite. */
export function lastFinite(values: ArrayLike<number>): number | null {
  for (let i = values.length - 1; i >= 0; i--) if (Number.isFinite(values[i])) return values[i];
  return null;
}

/** Where a series is NaN or infinite: measured, and lost. */
export function lostAt(points: Points): number[] {
  const lost: number[] = [];
  for (let i = 0; i < points.x.length; i++) if (!Number.isFinite(points.mean[i])) lost.push(points.x[i]);
  return lost;
}

function firstWhere(sorted: ArrayLike<number>, isBehind: (value: number) => boolean): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isBehind(sorted[middle])) high = middle;
    else low = middle + 1;
  }
  return low;
}

function concatenate(...parts: Float64Array[]): Float64Array {
  const all = new Float64Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}
