/** The order of rows. */

import type { Value } from "./filtering";

export interface Order {
  column: string;
  descending: boolean;
}

/** Rows by a value: numbers by size, text as people sort it; rows without a value come last, whichever the direction. */
export function sorted<T>(rows: T[], value: (row: T) => Value, descending: boolean): T[] {
  const direction = descending ? -1 : 1;
  return rows
    .map((row, place) => ({ row, place, value: value(row) }))
    .sort((a, b) => {
      const [aIsThere, bIsThere] = [isThere(a.value), isThere(b.value)];
      if (!aIsThere || !bIsThere) return Number(bIsThere) - Number(aIsThere) || a.place - b.place;
      return direction * compare(a.value, b.value) || a.place - b.place;
    })
    .map(({ row }) => row);
}

/** A click on a column's head: the other direction where it is sorted by already. */
export function nextOrder(order: Order, column: string, startsDescending: boolean): Order {
  return order.column === column ? { column, descending: !order.descending } : { column, descending: startsDescending };
}

export const readOrder = (text: string | null, otherwise: Order): Order =>
  text ? { column: text.replace(/^-/, ""), descending: text.startsWith("-") } : otherwise;

export const writeOrder = ({ column, descending }: Order): string => `${descending ? "-" : ""}${column}`;

const isThere = (value: Value): boolean =>
  value !== null && value !== undefined && value !== "" && !Number.isNaN(value);

const collator = new Intl.Collator("en", { numeric: true });

function compare(a: Value, b: Value): number {
  if (typeof a === "number" && typeof b === "number") return a < b ? -1 : Number(a > b);
  return collator.compare(String(a), String(b));
}
