/** The part of an axis that is shown. */

export interface Range {
  from: number;
  to: number;
}

/** A part that is `factor` as long, with the same middle, within the whole; null where that is the whole. */
export function zoomed(range: Range | null, whole: Range, factor: number, middle?: number): Range | null {
  const { from, to } = range ?? whole;
  const at = middle ?? (from + to) / 2;
  return within({ from: at - (at - from) * factor, to: at + (to - at) * factor }, whole);
}

/** A part that is moved by a share of its length, as far as the whole reaches. */
export function panned(range: Range | null, whole: Range, share: number): Range | null {
  if (!range) return null;
  const wanted = (range.to - range.from) * share;
  const shift = Math.min(Math.max(wanted, whole.from - range.from), whole.to - range.to);
  return { from: range.from + shift, to: range.to + shift };
}

/** What of a part lies in the whole; null where that is all of it, or nothing is left. */
export function within(range: Range, whole: Range): Range | null {
  const from = Math.max(range.from, whole.from);
  const to = Math.min(range.to, whole.to);
  return to <= from || (from <= whole.from && to >= whole.to) ? null : { from, to };
}

/** The range in an address, where there is one. */
export function readRange(query: URLSearchParams): Range | null {
  const [from, to] = [Number(query.get("from") ?? NaN), Number(query.get("to") ?? NaN)];
  return Number.isFinite(from) && Number.isFinite(to) && to > from ? { from, to } : null;
}

/** A range as an address has it, rounded to what a screen can tell apart. */
export function writeRange(range: Range | null): { from: string | null; to: string | null } {
  if (!range) return { from: null, to: null };
  const digits = Math.max(0, 3 - Math.floor(Math.log10(range.to - range.from)));
  const round = (x: number): string => String(Number(x.toFixed(Math.min(digits, 6))));
  return { from: round(range.from), to: round(range.to) };
}
