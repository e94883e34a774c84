/** Series with different places on the x axis as columns of one table, as uPlot wants them. */

/** A value, null where a series was measured and has no value to draw, undefined where it was not measured. */
export type Cell = number | null | undefined;

export interface Placed {
  x: ArrayLike<number>;
  columns: ArrayLike<number>[];
}

/** The x of all series, sorted, and each column of each series at these places. */
export function align(series: Placed[], onlyPositive: boolean): { x: number[]; columns: Cell[][] } {
  const x = union(series.map((one) => one.x));
  const columns = series.flatMap((one) => one.columns.map((column) => placed(x, one.x, column, onlyPositive)));
  return { x, columns };
}

function placed(x: number[], own: ArrayLike<number>, values: ArrayLike<number>, onlyPositive: boolean): Cell[] {
  const cells: Cell[] = new Array<Cell>(x.length);
  let at = 0;
  for (let i = 0; i < x.length && at < own.length; i++) {
    if (own[at] !== x[i]) continue;
    cells[i] = Number.isFinite(values[at]) && (!onlyPositive || values[at] > 0) ? values[at] : null;
    while (own[at] === x[i]) at++;
  }
  return cells;
}

function union(lists: ArrayLike<number>[]): number[] {
  if (lists.length === 1) return [...new Set(Array.from(lists[0]))];
  const all = Float64Array.from(new Set(lists.flatMap((list) => Array.from(list))));
  return [...all.sort()];
}
