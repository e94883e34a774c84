/** Binary answers: the length of a header, the header as JSON, then columns of numbers as they lie in memory. */

export interface Columns {
  tag: string;
  /** Steps, or UTC seconds. */
  x: Float64Array;
  mean: Float64Array;
  low: Float64Array;
  high: Float64Array;
  /** Every point is one value, so that low and high are the mean. */
  exact: boolean;
  lastStep: number | null;
  /** Why there are no points. */
  reason: string;
}

export interface Matrix {
  rows: number;
  columns: number;
  values: Float32Array;
  steps: number[];
  names: string[];
  modules: (string | null)[];
  edges: number[];
}

interface SeriesHeader {
  tag: string;
  n: number;
  columns: string[];
  offset: number;
  exact: boolean;
  last_step: number | null;
  reason?: string;
}

interface MatrixHeader {
  rows: number;
  columns: number;
  offset: number;
  steps?: number[];
  names?: string[];
  modules?: (string | null)[];
  edges?: (number | string)[] | null;
}

export function readColumns(buffer: ArrayBuffer): Columns[] {
  const { header, start } = readHeader<{ series: SeriesHeader[] }>(buffer);
  return header.series.map((series) => {
    const column = (name: string, otherwise: string): Float64Array => {
      const place = series.columns.includes(name) ? series.columns.indexOf(name) : series.columns.indexOf(otherwise);
      return new Float64Array(buffer, start + series.offset + 8 * series.n * Math.max(place, 0), series.n);
    };
    return {
      tag: series.tag,
      x: column("step", "time"),
      mean: column("mean", "mean"),
      low: column("low", "mean"),
      high: column("high", "mean"),
      exact: series.exact,
      lastStep: series.last_step,
      reason: series.reason ?? "",
    };
  });
}

export function readMatrix(buffer: ArrayBuffer): Matrix {
  const { header, start } = readHeader<MatrixHeader>(buffer);
  const { rows, columns, offset, steps = [], names = [], modules = [], edges } = header;
  const values = new Float32Array(buffer, start + offset, rows * columns);
  return { rows, columns, values, steps, names, modules, edges: (edges ?? []).map(Number) };
}

function readHeader<T>(buffer: ArrayBuffer): { header: T; start: number } {
  const length = new DataView(buffer).getUint32(0, true);
  const text = new TextDecoder().decode(new Uint8Array(buffer, 4, length));
  return { header: JSON.parse(text) as T, start: 4 + length };
}
