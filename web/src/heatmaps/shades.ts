/** From values to shades: a palette that people of any colour vision read, and the scale by which values take its colours. */

import { wantsLog } from "../charts/axes";

export interface Shading {
  log: boolean;
  low: number;
  high: number;
}

/** What the outermost values may not stretch the scale by: this share of them on each side. */
const OUTLIERS = 0.005;

/** Stops of viridis (Smith and van der Walt, 2015), from low to high. */
const STOPS = [
  "#440154",
  "#482878",
  "#3e4a89",
  "#31688e",
  "#26828e",
  "#1f9e89",
  "#35b779",
  "#6dcd59",
  "#b4de2c",
  "#fde725",
];

/** Of exact zeros on a logarithmic scale, where they have no place: dead layers are black. */
export const NOTHING: [number, number, number] = [0, 0, 0];

/** 256 colours as [red, green, blue] each. */
export const PALETTE: Uint8ClampedArray = palette();

/** The scale of all finite values of a matrix; logarithmic where none is negative and those above zero are far apart. */
export function shadingOf(values: ArrayLike<number>): Shading {
  const finite = Float64Array.from(Array.from(values).filter(Number.isFinite)).sort();
  if (!finite.length) return { log: false, low: 0, high: 1 };
  const positive = finite.filter((value) => value > 0);
  const isLog =
    finite[0] >= 0 &&
    positive.length > 1 &&
    wantsLog([quantile(positive, OUTLIERS), quantile(positive, 1 - OUTLIERS)], 20);
  const shown = isLog ? positive : finite;
  const [low, high] = [quantile(shown, OUTLIERS), quantile(shown, 1 - OUTLIERS)];
  if (low < high) return { log: isLog, low, high };
  const [least, most] = [finite[0], finite[finite.length - 1]];
  if (least < most) return { log: false, low: least, high: most };
  return { log: false, low: least - (Math.abs(least) || 1), high: least + (Math.abs(least) || 1) };
}

/** Where a value lies between the lowest and the highest shade, from 0 to 1. */
export function share(value: number, { log, low, high }: Shading): number {
  const place = (x: number): number => (log ? Math.log(Math.max(x, Number.MIN_VALUE)) : x);
  return Math.min(Math.max((place(value) - place(low)) / (place(high) - place(low)), 0), 1);
}

/** The value at a share of the scale. */
export function valueAt(part: number, { log, low, high }: Shading): number {
  return log ? low * (high / low) ** part : low + part * (high - low);
}

/** Pixels of a matrix, a pixel a value; what was not measured is see-through, infinite values have the colour of loss. */
export function pixels(
  values: ArrayLike<number>,
  shading: Shading,
  lost: [number, number, number],
): Uint8ClampedArray<ArrayBuffer> {
  const painted = new Uint8ClampedArray(4 * values.length);
  for (let i = 0; i < values.length; i++) {
    const value = values[i];
    if (Number.isNaN(value)) continue;
    const at = 3 * Math.round(255 * share(value, shading));
    const isNothing = shading.log && value === 0;
    const [red, green, blue] = isNothing
      ? NOTHING
      : Number.isFinite(value)
        ? [PALETTE[at], PALETTE[at + 1], PALETTE[at + 2]]
        : lost;
    painted.set([red, green, blue, 255], 4 * i);
  }
  return painted;
}

/** The matrix on its side: rows become columns. */
export function transposed(values: Float32Array, rows: number, columns: number): Float32Array {
  const turned = new Float32Array(values.length);
  for (let row = 0; row < rows; row++)
    for (let column = 0; column < columns; column++) turned[column * rows + row] = values[row * columns + column];
  return turned;
}

function quantile(sorted: Float64Array, part: number): number {
  return sorted[Math.round(part * (sorted.length - 1))];
}

function palette(): Uint8ClampedArray {
  const channels = STOPS.map((stop) => [1, 3, 5].map((at) => parseInt(stop.slice(at, at + 2), 16)));
  const colours = new Uint8ClampedArray(3 * 256);
  for (let i = 0; i < 256; i++) {
    const place = (i / 255) * (STOPS.length - 1);
    const before = Math.min(Math.floor(place), STOPS.length - 2);
    for (let c = 0; c < 3; c++)
      colours[3 * i + c] = channels[before][c] + (place - before) * (channels[before + 1][c] - channels[before][c]);
  }
  return colours;
}
