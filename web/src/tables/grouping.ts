/** Rows under headings. */

import type { Value } from "./filtering";

export type Item<T> = { kind: "row"; row: T } | { kind: "heading"; key: string; rows: T[]; isOpen: boolean };

/** Rows as they are, or under a heading for each value, in the order in which the values come; closed headings hide theirs. */
export function grouped<T>(rows: T[], value: ((row: T) => Value) | null, closed: ReadonlySet<string>): Item<T>[] {
  if (!value) return rows.map((row) => ({ kind: "row", row }));
  const groups = new Map<string, T[]>();
  for (const row of rows) {
    const key = String(value(row) ?? "–");
    const members = groups.get(key);
    if (members) members.push(row);
    else groups.set(key, [row]);
  }
  return [...groups].flatMap(([key, members]) => {
    const isOpen = !closed.has(key);
    const heading: Item<T> = { kind: "heading", key, rows: members, isOpen };
    return isOpen ? [heading, ...members.map((row): Item<T> => ({ kind: "row", row }))] : [heading];
  });
}
