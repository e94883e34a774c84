/** Which rows of a long table are on the screen: only these are made. */

export function visibleRows(
  scrolled: number,
  height: number,
  rowHeight: number,
  num: number,
  margin = 8,
): { first: number; last: number } {
  const first = Math.max(0, Math.min(num, Math.floor(scrolled / rowHeight)) - margin);
  return { first, last: Math.min(num, Math.ceil((scrolled + height) / rowHeight) + margin) };
}

/** How far to scroll so that a row is seen; null where it is. */
export function scrollTo(row: number, scrolled: number, height: number, rowHeight: number): number | null {
  if (row * rowHeight < scrolled) return row * rowHeight;
  return (row + 1) * rowHeight > scrolled + height ? (row + 1) * rowHeight - height : null;
}
