/** Numbers with their units, as people read them: the same words as in Sonde's reports. */

import type { JsonNumber } from "../api/types";

const BYTES: [number, string][] = [
  [2 ** 40, "TiB"],
  [2 ** 30, "GiB"],
  [2 ** 20, "MiB"],
  [2 ** 10, "KiB"],
];
const TIMES: [number, string][] = [
  [86400, "d"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
];

/** Four significant digits; NaN and infinities by name. */
export function number(value: number, digits = 4): string {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return `${value < 0 ? "-" : ""}infinite`;
  const size = Math.abs(value);
  if (size >= 1000 && size < 1e6) return whole(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e6)) {
    const [mantissa, power] = value.toExponential(digits - 1).split("e");
    return `${Number(mantissa)}e${Number(power)}`;
  }
  return String(Number(value.toPrecision(digits)));
}

/** A number with its unit: "share" in per cent, "s" and "bytes" in the size that fits. */
export function quantity(value: number, unit = ""): string {
  if (!Number.isFinite(value)) return number(value);
  if (unit === "share") return `${number(Number((100 * value).toPrecision(3)))}%`;
  if (unit === "s") return seconds(value);
  if (unit === "bytes") {
    const [size, name] = BYTES.find(([size]) => Math.abs(value) >= size) ?? [1, "bytes"];
    return `${number(Number((value / size).toPrecision(3)))} ${name}`;
  }
  return unit ? `${number(value)} ${unit}` : number(value);
}

/** A time of any size, three digits below a minute. */
export function seconds(value: number): string {
  const size = Math.abs(value);
  if (size < 60) {
    const [unit, name]: [number, string] = size >= 1 ? [1, "s"] : size >= 1e-3 ? [1e-3, "ms"] : [1e-6, "µs"];
    return size === 0 ? "0 s" : `${Number((value / unit).toPrecision(3))} ${name}`;
  }
  let left = Math.trunc(value);
  const parts: string[] = [];
  for (const [unit, name] of TIMES) {
    const num = Math.floor(left / unit);
    left -= num * unit;
    if (num || parts.length) parts.push(num ? `${num} ${name}` : "");
  }
  return parts.slice(0, 2).filter(Boolean).join(" ");
}

/** How long ago a UTC time was, in its largest unit. */
export function ago(time: number, now: number): string {
  const past = Math.max(0, now - time);
  const [unit, name] = TIMES.find(([unit]) => past >= unit) ?? [1, "s"];
  return past < 2 ? "now" : `${Math.floor(past / unit)} ${name} ago`;
}

/** How many there are of something. */
export function count(num: number, noun: string, plural = `${noun}s`): string {
  return `${whole(num)} ${num === 1 ? noun : plural}`;
}

/** A share of certainty, in whole per cent. */
export const percent = (share: number): string => `${Math.round(100 * share)}%`;

export const whole = (value: number): string => Math.round(value).toLocaleString("en-US");

/** What JSON holds as text where it is not finite. */
export const fromJson = (value: JsonNumber | null | undefined): number | null =>
  value === null || value === undefined ? null : Number(value);

/** Any value of a configuration. */
export function plain(value: unknown): string {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : number(value, 6);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
