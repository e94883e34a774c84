/** Numbers on axes: short, and told apart from each other. */

import { number, quantity } from "../words/quantities";

const LARGE: [number, string][] = [
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

/** A value on the y axis. */
export function axisLabel(value: number, unit: string): string {
  if (unit === "share" || unit === "s" || unit === "bytes") return quantity(Number(value.toPrecision(4)), unit);
  return shortNumber(value);
}

/** A step: exact up to 9,999, then in thousands and millions. */
export function stepLabel(step: number): string {
  return Math.abs(step) < 10_000 ? number(step, 6) : shortNumber(step);
}

export function shortNumber(value: number): string {
  const size = Math.abs(value);
  if (size >= 1e12 || (size > 0 && size < 1e-3))
    return value
      .toExponential(2)
      .replace(/\.?0+e/, "e")
      .replace("e+", "e");
  const [unit, name] = LARGE.find(([unit]) => size >= unit) ?? [1, ""];
  return `${Number((value / unit).toPrecision(4))}${name}`;
}

/** Places of about `num` round numbers in a range. */
export function ticks(from: number, to: number, num: number): number[] {
  const rough = (to - from) / Math.max(1, num);
  if (!(rough > 0) || !Number.isFinite(rough)) return [from];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10) * power;
  const places: number[] = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to * (1 + 1e-12) + step * 1e-9; i++)
    places.push(Number((i * step).toPrecision(12)));
  return places;
}

/** Places on a logarithmic axis: whole powers of ten where there are two or more, else 1, 2 and 5 times such. */
export function logTicks(from: number, to: number, num: number): number[] {
  const [low, high] = [Math.floor(Math.log10(from)), Math.ceil(Math.log10(to))];
  const factors = high - low > 3 ? [1] : [1, 2, 5];
  const every = Math.max(1, Math.ceil((high - low) / Math.max(1, num)));
  const places: number[] = [];
  for (let power = low; power <= high; power += every)
    for (const factor of factors) places.push(Number((factor * 10 ** power).toPrecision(12)));
  return places.filter((place) => place >= from * (1 - 1e-9) && place <= to * (1 + 1e-9));
}

/** Whether values are told better by their logarithms: all positive, and far apart. */
export function wantsLog(values: ArrayLike<number>, ratio = 50): boolean {
  let [low, high] = [Infinity, 0];
  for (let i = 0; i < values.length; i++) {
    if (!Number.isFinite(values[i])) continue;
    if (values[i] <= 0) return false;
    low = Math.min(low, values[i]);
    high = Math.max(high, values[i]);
  }
  return high > ratio * low;
}
