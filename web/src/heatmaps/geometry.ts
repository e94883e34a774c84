/** Where things lie on a heat map. */

/** Names of rows that fit without touching: their places, and how many pixels a row is high. */
export function labelledRows(rows: number, height: number, gap: number): number[] {
  const every = Math.max(1, Math.ceil(gap / (height / Math.max(rows, 1))));
  return Array.from({ length: Math.ceil(rows / every) }, (_, i) => i * every);
}

/** The cell under a point; null beside the map. */
export function cellAt(
  x: number,
  y: number,
  width: number,
  height: number,
  columns: number,
  rows: number,
): { column: number; row: number } | null {
  if (x < 0 || y < 0 || x >= width || y >= height || !rows || !columns) return null;
  return { column: Math.floor((x / width) * columns), row: Math.floor((y / height) * rows) };
}

/** The end of a long name, which tells more than its beginning. */
export function shortened(name: string, fits: (text: string) => boolean): string {
  if (fits(name)) return name;
  for (let cut = 1; cut < name.length; cut++) if (fits(`…${name.slice(cut)}`)) return `…${name.slice(cut)}`;
  return "…";
}

/** The place of the step nearest to one that is asked for. */
export function nearestColumn(steps: ArrayLike<number>, step: number): number {
  let nearest = 0;
  for (let i = 1; i < steps.length; i++) if (Math.abs(steps[i] - step) < Math.abs(steps[nearest] - step)) nearest = i;
  return nearest;
}

/** Height of a map: rows as high as names need, as long as the screen has room. */
export function mapHeight(rows: number, room: number): number {
  return Math.round(Math.max(Math.min(rows * 22, room), Math.min(140, room)));
}
