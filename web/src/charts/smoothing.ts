/** Smoothing of curves: how many steps count, not how many points, so that it looks the same at every zoom. */

import type { Points } from "./points";

/** The steps of the slider: half-lives as shares of the whole run. */
export const SMOOTHINGS = [0, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2];

/**
 * The exponential moving average with a half-life in units of x; it begins at the first finite value.
 *
 * NaN and infinite values are left out: there is no average there, and it goes on behind them.
 */
export function smooth(points: Points, halfLife: number): Float64Array {
  const smoothed = new Float64Array(points.x.length);
  let [average, before] = [NaN, 0];
  for (let i = 0; i < smoothed.length; i++) {
    const value = points.mean[i];
    if (Number.isFinite(value)) {
      const kept = Number.isNaN(average) ? 0 : 2 ** (-(points.x[i] - before) / halfLife);
      average = kept * (average || 0) + (1 - kept) * value;
      before = points.x[i];
    }
    smoothed[i] = Number.isFinite(value) ? average : NaN;
  }
  return smoothed;
}

/** Whether smoothing may touch a series: a learning rate, and what is set rather than measured, keeps its edges. */
export function mayBeSmoothed(tag: string): boolean {
  return !/^(lr|epoch|phase|amp\/scale|optimizer|clip\/limit)([/@]|$)/.test(tag);
}
