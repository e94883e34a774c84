/** The points of a chart as comma-separated values, a row for each x. */

import { align } from "./alignment";
import type { ChartContent } from "./lines";

export function chartCsv({ lines, xName }: ChartContent): string {
  const names = lines.flatMap(({ label, points }) =>
    points.exact ? [label] : [label, `${label} (lowest)`, `${label} (highest)`],
  );
  const series = lines.map(({ points }) => ({
    x: points.x,
    columns: points.exact ? [points.mean] : [points.mean, points.low, points.high],
  }));
  const { x, columns } = align(series, false);
  return table(
    [xName, ...names],
    x.map((place, i) => [place, ...columns.map((column) => column[i] ?? "")]),
  );
}

export function table(head: string[], rows: (string | number)[][]): string {
  return [head, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

/** Quoted where needed; what a spreadsheet would run as a formula is kept from it. */
function cell(value: string | number): string {
  if (typeof value === "number") return String(value);
  const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
