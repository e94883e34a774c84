/** A heat map on a canvas: names, shades, steps, and the values of the chosen step against the same rows. */

import { stepLabel, ticks } from "../charts/axes";
import { faded } from "../charts/plot";
import { colour } from "../theming/theme";
import { labelledRows, shortened } from "./geometry";
import type { HeatMapProps } from "./heat_map";
import { pixels, share, type Shading } from "./shades";

export interface MapContent extends HeatMapProps {
  shading: Shading;
  hover: { column: number; row: number } | null;
  width: number;
  height: number;
}

const AXIS_HEIGHT = 22;
const NARROW = 620;

/** Where names end, how wide the map is, and where the values of the chosen step begin and end. */
export function mapBox(width: number): { left: number; map: number; profile: number; right: number } {
  const isNarrow = width < NARROW;
  const left = isNarrow ? 92 : 190;
  const right = width - 6;
  const profile = right - (isNarrow ? 64 : 170);
  return { left, map: profile - left - 14, profile, right };
}

export function drawMap(canvas: HTMLCanvasElement, content: MapContent): void {
  const { width, height } = content;
  const ratio = devicePixelRatio;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round((height + AXIS_HEIGHT) * ratio);
  canvas.style.height = `${height + AXIS_HEIGHT}px`;
  const ctx = canvas.getContext("2d");
  if (!ctx) return;
  ctx.scale(ratio, ratio);
  ctx.font = "11px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
  drawShades(ctx, content);
  drawNames(ctx, content);
  drawSteps(ctx, content);
  drawChoice(ctx, content);
  drawProfile(ctx, content);
}

function drawShades(ctx: CanvasRenderingContext2D, content: MapContent): void {
  const { values, rows, columns, shading, width, height } = content;
  const { left, map } = mapBox(width);
  ctx.fillStyle = colour("unmeasured");
  ctx.fillRect(left, 0, map, height);
  if (!rows || !columns) return;
  const small = document.createElement("canvas");
  [small.width, small.height] = [columns, rows];
  const lost = [1, 3, 5].map((at) => parseInt(colour("critical").slice(at, at + 2), 16)) as [number, number, number];
  small.getContext("2d")?.putImageData(new ImageData(pixels(values, shading, lost), columns, rows), 0, 0);
  ctx.save();
  ctx.imageSmoothingEnabled = rows > height * devicePixelRatio; // else rows that share a pixel would hide each other
  ctx.imageSmoothingQuality = "high";
  if (content.upwards) {
    ctx.translate(0, height);
    ctx.scale(1, -1);
  }
  ctx.drawImage(small, left, 0, map, height);
  ctx.restore();
}

function drawNames(ctx: CanvasRenderingContext2D, content: MapContent): void {
  const { rows, height, names, width, row } = content;
  const { left } = mapBox(width);
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  const fits = (text: string): boolean => ctx.measureText(text).width <= left - 10;
  for (const labelled of labelledRows(rows, height, 13)) {
    ctx.fillStyle = colour(labelled === row ? "ink" : "soft");
    ctx.fillText(shortened(names[labelled] ?? "", fits), left - 6, Math.max(6, rowMiddle(content, labelled)));
  }
}

function drawSteps(ctx: CanvasRenderingContext2D, { width, height, steps, columns }: MapContent): void {
  const { left, map } = mapBox(width);
  ctx.textBaseline = "alphabetic";
  ctx.textAlign = "center";
  ctx.fillStyle = colour("soft");
  for (const place of ticks(0, Math.max(0, columns - 1), map / 90)) {
    const at = Math.round(place);
    if (at < columns) ctx.fillText(stepLabel(steps[at]), left + ((at + 0.5) / columns) * map, height + 16);
  }
}

function drawChoice(ctx: CanvasRenderingContext2D, content: MapContent): void {
  const { width, height, columns, rows, column, row, hover } = content;
  const { left, map } = mapBox(width);
  const x = left + ((column + 0.5) / columns) * map;
  ctx.strokeStyle = colour("ink");
  ctx.lineWidth = 1.5;
  ctx.strokeRect(Math.max(left, x - map / columns / 2), 0, Math.max(2, map / columns), height);
  const tall = Math.max(2, height / rows);
  for (const [marked, strength] of [
    [hover?.row ?? null, 0.6],
    [row, 1],
  ] as [number | null, number][]) {
    if (marked === null) continue;
    ctx.strokeStyle = faded(colour("ink"), strength);
    ctx.strokeRect(left, rowMiddle(content, marked) - tall / 2, map, tall);
  }
}

/** Values against rows: a bar for each, from the left. */
function drawProfile(ctx: CanvasRenderingContext2D, content: MapContent): void {
  const { width, height, rows, columns, values, column, row, shading, steps } = content;
  const { profile, right } = mapBox(width);
  ctx.fillStyle = colour("ground");
  ctx.fillRect(profile, 0, right - profile, height);
  const tall = height / rows;
  for (let at = 0; at < rows; at++) {
    const value = values[at * columns + column];
    if (Number.isNaN(value)) continue;
    if (shading.log && value === 0) continue;
    const length = Number.isFinite(value) ? Math.max(1.5, share(value, shading) * (right - profile)) : right - profile;
    ctx.fillStyle = colour(Number.isFinite(value) ? (at === row ? "second" : "main") : "critical");
    const bar = Math.max(tall > 4 ? tall - 2 : tall, 0.5);
    ctx.fillRect(profile, rowMiddle(content, at) - bar / 2, length, bar);
  }
  ctx.fillStyle = colour("soft");
  ctx.textAlign = "left";
  ctx.textBaseline = "alphabetic";
  ctx.fillText(`at ${stepLabel(steps[column] ?? 0)}`, profile, height + 16);
}

function rowMiddle({ rows, height, upwards = false }: MapContent, row: number): number {
  return ((upwards ? rows - 1 - row : row) + 0.5) * (height / rows);
}
