/** A matrix as shades: rows by name, columns by step, and at the right the values of the chosen step. */

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { stepLabel } from "../charts/axes";
import { table } from "../charts/csv";
import { save, savePng } from "../charts/downloads";
import { escaped } from "../charts/svg";
import { Menu } from "../parts/menu";
import { useTheme } from "../theming/theme";
import { quantity } from "../words/quantities";
import { cellAt, mapHeight } from "./geometry";
import { drawMap, mapBox, type MapContent } from "./drawing";
import { PALETTE, shadingOf, valueAt, type Shading } from "./shades";

export interface HeatMapProps {
  title: string;
  unit: string;
  values: Float32Array;
  rows: number;
  columns: number;
  names: string[];
  steps: number[];
  column: number;
  row: number | null;
  onPick: (column: number, row: number | null) => void;
  room?: number;
  /** Rows in the order of a scale, such as bins: the first one lies at the bottom. */
  upwards?: boolean;
}

export function HeatMap(props: HeatMapProps): JSX.Element {
  const { title, unit, values, rows, columns, names, steps, column, row, onPick, room = usualRoom() } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [hover, setHover] = useState<{ column: number; row: number } | null>(null);
  const shownTheme = useTheme();
  const shading = shadingOf(values);
  const height = mapHeight(rows, room);
  const content: MapContent = { ...props, shading, hover, width, height };
  useEffect(() => {
    if (!canvas.current) return;
    const observer = new ResizeObserver(([entry]) => setWidth(Math.round(entry.contentRect.width)));
    observer.observe(canvas.current);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    if (canvas.current && width) drawMap(canvas.current, content);
  }, [values, width, height, column, row, hover, shownTheme, rows, columns]);

  const find = (event: MouseEvent): { column: number; row: number } | null => {
    const { left, map } = mapBox(width);
    const cell = cellAt(event.offsetX - left, event.offsetY, map, height, columns, rows);
    return cell && props.upwards ? { ...cell, row: rows - 1 - cell.row } : cell;
  };
  const told = hover ?? (row === null ? null : { column, row });
  return (
    <figure class="heat" data-title={title}>
      <figcaption>
        <span class="title">{title}</span>
        <div class="readout">{told && tell(told, props)}</div>
        <Menu label={`More of ${title}`}>
          <button onClick={() => canvas.current && savePng(canvas.current, title)}>Save as PNG</button>
          <button
            onClick={() => canvas.current && save(mapSvg(canvas.current, title), `${title}.svg`, "image/svg+xml")}
          >
            Save as SVG
          </button>
          <button onClick={() => save(mapCsv(props), `${title}.csv`, "text/csv")}>Save as CSV</button>
        </Menu>
      </figcaption>
      <canvas
        ref={canvas}
        role="img"
        aria-label={`${title}: ${names.length} rows, steps ${steps[0]} to ${steps[steps.length - 1]}`}
        onMouseMove={(event) => setHover(find(event))}
        onMouseLeave={() => setHover(null)}
        onClick={(event) => {
          const cell = find(event);
          if (cell) onPick(cell.column, cell.row);
        }}
      />
      <div class="time">
        <input
          type="range"
          aria-label="Step"
          min={0}
          max={Math.max(0, columns - 1)}
          value={column}
          onInput={(event) => onPick(Number(event.currentTarget.value), row)}
        />
        <output>step {stepLabel(steps[column] ?? 0)}</output>
        <Scale shading={shading} unit={unit} hasLost={values.some((value) => Math.abs(value) === Infinity)} />
      </div>
    </figure>
  );
}

/** So high that what is below the map can be seen to be there. */
const usualRoom = (): number => Math.max(260, Math.min(620, innerHeight * 0.58));

function tell(
  cell: { column: number; row: number },
  { names, steps, values, columns, unit }: HeatMapProps,
): JSX.Element {
  const value = values[cell.row * columns + cell.column];
  return (
    <>
      <span class="at">{names[cell.row]}</span>
      <span>step {stepLabel(steps[cell.column])}</span>
      <span class="value">{Number.isNaN(value) ? "not measured" : quantity(value, unit)}</span>
    </>
  );
}

/** The shades with the values at their ends. */
function Scale({ shading, unit, hasLost }: { shading: Shading; unit: string; hasLost: boolean }): JSX.Element {
  const stops = Array.from({ length: 24 }, (_, i) => Math.round((i / 23) * 255));
  return (
    <div class="scale" title={shading.log ? "logarithmic" : "linear"}>
      {hasLost && (
        <span title="NaN or infinite">
          <i class="lost" /> NaN
        </span>
      )}
      {shading.log && (
        <span title="Exactly zero">
          <i class="zero" /> 0
        </span>
      )}
      <span>{quantity(Number(valueAt(0, shading).toPrecision(2)), unit)}</span>
      <svg viewBox="0 0 24 1" preserveAspectRatio="none" aria-hidden="true">
        {stops.map((at, i) => (
          <rect
            key={i}
            x={i}
            y={0}
            width={1.05}
            height={1}
            fill={`rgb(${PALETTE[3 * at]} ${PALETTE[3 * at + 1]} ${PALETTE[3 * at + 2]})`}
          />
        ))}
      </svg>
      <span>{quantity(Number(valueAt(1, shading).toPrecision(2)), unit)}</span>
    </div>
  );
}

function mapCsv({ names, steps, values, columns }: HeatMapProps): string {
  const cell = (value: number): number | string => (Number.isNaN(value) ? "" : value);
  return table(
    ["step", ...names],
    steps.map((step, i) => [step, ...names.map((_, row) => cell(values[row * columns + i]))]),
  );
}

function mapSvg(canvas: HTMLCanvasElement, title: string): string {
  const [width, height] = [canvas.width / devicePixelRatio, canvas.height / devicePixelRatio];
  const picture = `<image href="${canvas.toDataURL()}" y="24" width="${width}" height="${height}"/>`;
  const heading = `<text x="4" y="16" font-size="13" font-weight="600">${escaped(title)}</text>`;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height + 24}" font-family="system-ui, sans-serif">${heading}${picture}</svg>`;
}
