/** A small curve in a row of a table. */

import type { JSX } from "preact";
import { polyline } from "./svg";

const [WIDTH, HEIGHT] = [96, 22];

export function Sparkline({ values, label }: { values: (number | null)[]; label: string }): JSX.Element | null {
  const numbers = values.map((value) => value ?? NaN);
  const finite = numbers.filter(Number.isFinite);
  if (finite.length < 2) return null;
  const [low, high] = [Math.min(...finite), Math.max(...finite)];
  const x = (i: number): number => 1 + (i / (numbers.length - 1)) * (WIDTH - 2);
  const y = (value: number): number => HEIGHT - 2 - ((value - low) / (high - low || 1)) * (HEIGHT - 4);
  return (
    <svg
      class="sparkline"
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      width={WIDTH}
      height={HEIGHT}
      role="img"
      aria-label={label}
    >
      <path
        d={polyline(
          numbers.map((_, i) => i),
          numbers,
          x,
          y,
          false,
        )}
      />
    </svg>
  );
}
