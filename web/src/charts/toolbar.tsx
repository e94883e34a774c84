/** What all charts of a view do together: the part of the run that is shown, and how smooth it is. */

import type { ComponentChildren, JSX } from "preact";
import { setQuery } from "../routing/navigation";
import { useKeys } from "../keyboard/keys";
import { number } from "../words/quantities";
import { stepLabel } from "./axes";
import { panned, writeRange, zoomed, type Range } from "./ranges";
import { SMOOTHINGS } from "./smoothing";

const ZOOM = 0.5;
const PAN = 0.25;

export const showRange = (range: Range | null): void => setQuery(writeRange(range));

interface ToolbarProps {
  range: Range | null;
  whole: Range;
  smoothing: number | null;
  xLabel?: (x: number) => string;
  children?: ComponentChildren;
}

export function Toolbar({ range, whole, smoothing, xLabel = stepLabel, children }: ToolbarProps): JSX.Element {
  const zoom = (factor: number): void => showRange(zoomed(range, whole, factor));
  const pan = (share: number): void => showRange(panned(range, whole, share));
  useKeys({
    "+": () => zoom(ZOOM),
    "=": () => zoom(ZOOM),
    "-": () => zoom(1 / ZOOM),
    "0": () => showRange(null),
    ArrowLeft: () => pan(-PAN),
    ArrowRight: () => pan(PAN),
  });
  const shown = range ?? whole;
  return (
    <div class="toolbar" role="toolbar" aria-label="Charts">
      <div class="buttons">
        <button title="Earlier (←)" aria-label="Earlier" disabled={!range} onClick={() => pan(-PAN)}>
          ←
        </button>
        <button title="Zoom out (-)" aria-label="Zoom out" disabled={!range} onClick={() => zoom(1 / ZOOM)}>
          −
        </button>
        <button title="Zoom in (+)" aria-label="Zoom in" onClick={() => zoom(ZOOM)}>
          +
        </button>
        <button title="Later (→)" aria-label="Later" disabled={!range} onClick={() => pan(PAN)}>
          →
        </button>
      </div>
      <span class="range">
        {xLabel(Math.round(shown.from))} – {xLabel(Math.round(shown.to))}
      </span>
      {range && (
        <button onClick={() => showRange(null)} title="Show all (0, or double-click a chart)">
          Show all
        </button>
      )}
      {smoothing !== null && <Smoothing smoothing={smoothing} whole={whole} />}
      {children}
    </div>
  );
}

function Smoothing({ smoothing, whole }: { smoothing: number; whole: Range }): JSX.Element {
  const place = Math.max(0, SMOOTHINGS.indexOf(smoothing));
  const steps = smoothing * (whole.to - whole.from);
  return (
    <label class="smoothing" title="Half-life of the average. Learning rates and settings are never smoothed.">
      Smoothing
      <input
        type="range"
        min={0}
        max={SMOOTHINGS.length - 1}
        value={place}
        onInput={(event) => setQuery({ smooth: SMOOTHINGS[Number(event.currentTarget.value)] })}
      />
      <output>{smoothing ? `${number(steps, 2)} ${steps === 1 ? "step" : "steps"}` : "off"}</output>
    </label>
  );
}

/** The smoothing in an address. */
export function readSmoothing(query: URLSearchParams, otherwise: number): number {
  const asked = query.get("smooth");
  return asked === null || !SMOOTHINGS.includes(Number(asked)) ? otherwise : Number(asked);
}
