/** A chart as an SVG file that needs nothing else: colours are written into it. */

import { axisLabel, logTicks, ticks } from "./axes";
import { drawn, type ChartContent, type DrawnLine } from "./lines";

const [WIDTH, HEIGHT] = [800, 360];
const BOX = { left: 64, top: 40, right: 784, bottom: 324 };

export function chartSvg(content: ChartContent, paint: (name: string) => string): string {
  const { from, to } = content.range ?? content.whole;
  const lines = content.lines.map(drawn);
  const [low, high] = limits(lines, from, to, content.log);
  const place = (value: number): number => (content.log ? Math.log10(value) : value);
  const x = (value: number): number => BOX.left + ((value - from) / (to - from || 1)) * (BOX.right - BOX.left);
  const y = (value: number): number =>
    BOX.bottom - ((place(value) - place(low)) / (place(high) - place(low) || 1)) * (BOX.bottom - BOX.top);
  const path = (xs: ArrayLike<number>, values: ArrayLike<number>): string => polyline(xs, values, x, y, content.log);
  const parts = [
    `<rect width="${WIDTH}" height="${HEIGHT}" fill="${paint("paper")}"/>`,
    `<text x="16" y="24" font-size="15" font-weight="600" fill="${paint("ink")}">${escaped(content.title)}</text>`,
    ...(content.log ? logTicks(low, high, 6) : ticks(low, high, 6)).map((value) => {
      const label = escaped(axisLabel(value, content.unit));
      return `<path d="M${BOX.left} ${round(y(value))}H${BOX.right}" stroke="${paint("grid")}"/><text x="${BOX.left - 8}" y="${round(y(value) + 4)}" text-anchor="end" fill="${paint("soft")}">${label}</text>`;
    }),
    ...ticks(from, to, 8).map(
      (value) =>
        `<text x="${round(x(value))}" y="${BOX.bottom + 20}" text-anchor="middle" fill="${paint("soft")}">${escaped(content.xLabel(value))}</text>`,
    ),
    `<clipPath id="box"><rect x="${BOX.left}" y="${BOX.top}" width="${BOX.right - BOX.left}" height="${BOX.bottom - BOX.top}"/></clipPath><g clip-path="url(#box)" fill="none">`,
    ...lines.flatMap((one) => linePaths(one, path, paint)),
    ...content.marks.map(
      (mark) =>
        `<path d="M${round(x(mark.x))} ${BOX.top}V${BOX.bottom}" stroke="${paint(mark.severity)}"><title>${escaped(mark.label)}</title></path>`,
    ),
    "</g>",
  ];
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="system-ui, sans-serif" font-size="11">${parts.join("")}</svg>`;
}

function linePaths(
  one: DrawnLine,
  path: (x: ArrayLike<number>, y: ArrayLike<number>) => string,
  paint: (name: string) => string,
): string[] {
  const stroke = paint(one.line.colour);
  const { x, mean } = one.line.points;
  const edges = one.band
    ? [one.band.low, one.band.high].map(
        (edge) => `<path d="${path(x, edge)}" stroke="${stroke}" stroke-opacity="0.3"/>`,
      )
    : [];
  const raw = `<path d="${path(x, mean)}" stroke="${stroke}" stroke-opacity="${one.average ? 0.4 : 1}"><title>${escaped(one.line.label)}</title></path>`;
  return [
    ...edges,
    raw,
    ...(one.average ? [`<path d="${path(x, one.average)}" stroke="${stroke}" stroke-width="2"/>`] : []),
  ];
}

/** Pieces of a line: where a value is missing, it begins anew. */
export function polyline(
  xs: ArrayLike<number>,
  values: ArrayLike<number>,
  x: (value: number) => number,
  y: (value: number) => number,
  log: boolean,
): string {
  let [path, isDown] = ["", false];
  for (let i = 0; i < xs.length; i++) {
    const isThere = Number.isFinite(values[i]) && (!log || values[i] > 0);
    if (isThere) path += `${isDown ? "L" : "M"}${round(x(xs[i]))} ${round(y(values[i]))}`;
    isDown = isThere;
  }
  return path;
}

export function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}

function limits(lines: DrawnLine[], from: number, to: number, log: boolean): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (const { line, band } of lines)
    for (const values of [line.points.mean, ...(band ? [band.low, band.high] : [])])
      for (let i = 0; i < values.length; i++) {
        const isShown =
          line.points.x[i] >= from && line.points.x[i] <= to && Number.isFinite(values[i]) && (!log || values[i] > 0);
        if (!isShown) continue;
        low = Math.min(low, values[i]);
        high = Math.max(high, values[i]);
      }
  if (low > high) return log ? [0.1, 1] : [0, 1];
  if (low === high)
    return log ? [low / 2, high * 2] : [low - (Math.abs(low) * 0.1 || 1), high + (Math.abs(high) * 0.1 || 1)];
  return [low, high];
}

const round = (value: number): string => value.toFixed(1);
