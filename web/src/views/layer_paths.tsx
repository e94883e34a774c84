/** The choice of a statistic of layers. */

import type { JSX } from "preact";
import type { LayerPath } from "../api/types";
import { setQuery } from "../routing/navigation";

/** Statistics that people look for first. */
export const FIRST_PATHS = [
  "grad/rms",
  "grad/norm",
  "update/ratio",
  "act/rms",
  "act/dead",
  "act/saturated",
  "act/zeros",
  "gain/block",
  "weight/norm",
  "weight/rms",
];

export function PathChoice({ paths, path }: { paths: LayerPath[]; path: string }): JSX.Element {
  const first = FIRST_PATHS.filter((one) => paths.some((known) => known.path === one));
  return (
    <div class="controls paths">
      {first.map((one) => (
        <button
          key={one}
          class={one === path ? "chosen" : ""}
          aria-pressed={one === path}
          onClick={() => setQuery({ path: one })}
        >
          {shortTitle(one)}
        </button>
      ))}
      <label class="choice">
        Any
        <select value={path} onChange={(event) => setQuery({ path: event.currentTarget.value })}>
          {paths.map((one) => (
            <option key={one.path} value={one.path}>
              {one.path} ({one.layers})
            </option>
          ))}
        </select>
      </label>
    </div>
  );
}

const SHORT: Record<string, string> = {
  "grad/rms": "Gradients",
  "grad/norm": "Gradient norm",
  "update/ratio": "Update ratio",
  "act/rms": "Activations",
  "act/dead": "Dead units",
  "act/saturated": "Saturation",
  "act/zeros": "Zeros",
  "gain/block": "Gain",
  "weight/norm": "Weight norm",
  "weight/rms": "Weights",
};

const shortTitle = (path: string): string => SHORT[path] ?? path;
