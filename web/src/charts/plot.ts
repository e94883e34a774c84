/** Charts on a canvas; the only file that knows uPlot. */

import uPlot from "uplot";
import { align, type Cell } from "./alignment";
import { axisLabel, logTicks } from "./axes";
import { drawn, isSmoothed, sameValues, type ChartContent, type DrawnLine } from "./lines";
import { MarkLayer } from "./mark_layer";
import type { Range } from "./ranges";
import { colour } from "../theming/theme";

export interface PlotEvents {
  onRange: (range: Range | null) => void;
  /** The x under the crosshair, and for each line the value nearest to it; null where the crosshair has left. */
  onCursor: (x: number | null, values: (number | null)[]) => void;
}

export interface OpenPlot {
  update: (content: ChartContent) => void;
  resize: (width: number, height: number) => void;
  canvas: () => HTMLCanvasElement;
  close: () => void;
}

/** Which series of uPlot each line owns, x being the first. */
interface Layout {
  shown: number;
  members: number[];
}

const FONT = "11px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
const Y_AXIS_WIDTH = 52;

export function openPlot(place: HTMLElement, first: ChartContent, group: string, events: PlotEvents): OpenPlot {
  let content = first;
  let [width, height] = [Math.max(place.clientWidth, 80), Math.max(place.clientHeight, 60)];
  let plot = build();

  function build(): uPlot {
    const lines = content.lines.map(drawn);
    const options = chartOptions(lines, layoutOf(lines));
    return new uPlot({ ...options, width, height }, table(lines), place);
  }

  function table(lines: DrawnLine[]): uPlot.AlignedData {
    const series = lines.map((one) => ({ x: one.line.points.x, columns: columnsOf(one) }));
    const { x, columns } = align(series, content.log);
    return [x, ...columns] as unknown as uPlot.AlignedData;
  }

  function chartOptions(lines: DrawnLine[], layouts: Layout[]): Omit<uPlot.Options, "width" | "height"> {
    const layer = new MarkLayer(() => content);
    return {
      legend: { show: false },
      padding: [16, 12, 0, 0],
      scales: {
        x: { time: false, range: () => [(content.range ?? content.whole).from, (content.range ?? content.whole).to] },
        y: { distr: content.log ? 3 : 1, range: (_, low, high) => padded(low, high, content) },
      },
      axes: [
        {
          ...axisStyle(),
          size: 26,
          gap: 4,
          space: 64,
          values: (_, places) => places.map(content.xLabel),
          incrs: [1, 2, 5]
            .flatMap((factor) => Array.from({ length: 14 }, (_, i) => factor * 10 ** i))
            .sort((a, b) => a - b),
        },
        {
          ...axisStyle(),
          size: Y_AXIS_WIDTH,
          gap: 4,
          space: 28,
          ...(content.log
            ? {
                // One increment that always fits: uPlot's own end at 1e16, and the axis with them.
                incrs: (_, __, low, high) => [Math.max(1, 10 ** Math.ceil(Math.log10(high - low)))],
                splits: (plot, _, low, high) => logTicks(low, high, plot.height / 28),
                filter: (_, places) => places,
              }
            : {}),
          values: (_, places) => places.map((value) => (value === null ? "" : axisLabel(value, content.unit))),
        },
      ],
      series: [{}, ...lines.flatMap(seriesOf)],
      bands: lines.flatMap((one, i) => bandOf(one, layouts[i])),
      cursor: {
        y: false,
        points: { show: false },
        drag: { x: true, y: false, setScale: false },
        sync: {
          key: group,
          scales: ["x", null],
          filters: { pub: (type) => type === "mousemove" || type === "mouseleave" },
        },
        bind: { dblclick: () => () => (events.onRange(null), null) },
      },
      hooks: {
        init: [(plot) => layer.attach(plot)],
        drawClear: [(plot) => layer.drawPhases(plot)],
        draw: [(plot) => layer.draw(plot)],
        setSelect: [takeSelection],
        setCursor: [(plot) => tellCursor(plot, layouts)],
      },
    };
  }

  function takeSelection(own: uPlot): void {
    const { left, width: length } = own.select;
    if (length < 4) return;
    own.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    events.onRange({ from: own.posToVal(left, "x"), to: own.posToVal(left + length, "x") });
  }

  function tellCursor(own: uPlot, layouts: Layout[]): void {
    const { left, idx } = own.cursor;
    if (left === undefined || left === null || left < 0 || idx === null || idx === undefined) events.onCursor(null, []);
    else
      events.onCursor(
        own.data[0][idx],
        layouts.map(({ shown }) => nearestCell(own.data[shown] as Cell[], idx)),
      );
  }

  return {
    update(next) {
      const before = content;
      content = next;
      if (signature(next) !== signature(before)) {
        plot.destroy();
        plot = build();
      } else if (!sameValues(before.lines, next.lines)) plot.setData(table(next.lines.map(drawn)));
      else {
        const { from, to } = next.range ?? next.whole;
        plot.batch(() => {
          plot.setScale("x", { min: from, max: to });
          plot.redraw(false); // findings may be new though the range is not
        });
      }
    },
    resize(nextWidth, nextHeight) {
      if (nextWidth === width && nextHeight === height) return;
      [width, height] = [Math.max(nextWidth, 80), Math.max(nextHeight, 60)];
      plot.setSize({ width, height });
    },
    canvas: () => plot.ctx.canvas,
    close: () => plot.destroy(),
  };
}

function seriesOf({ line, average, band }: DrawnLine): uPlot.Series[] {
  const stroke = colour(line.colour);
  const dash = line.dashed ? { dash: [5, 4] } : {};
  const few = line.dots ?? false;
  const points = few ? { show: true, size: 5, fill: stroke, stroke } : { show: false };
  const raw = { stroke: average ? faded(stroke, 0.38) : stroke, width: average ? 1 : 1.6, points, ...dash };
  const edge = { stroke: "transparent", width: 0, points: { show: false } };
  return [
    raw,
    ...(band ? [edge, edge] : []),
    ...(average ? [{ stroke, width: 2, points: { show: false }, ...dash }] : []),
  ];
}

function columnsOf({ line, average, band }: DrawnLine): ArrayLike<number>[] {
  return [line.points.mean, ...(band ? [band.low, band.high] : []), ...(average ? [average] : [])];
}

function bandOf(one: DrawnLine, { members }: Layout): uPlot.Band[] {
  return one.band ? [{ series: [members[2], members[1]], fill: faded(colour(one.line.colour), 0.2) }] : [];
}

function layoutOf(lines: DrawnLine[]): Layout[] {
  let next = 1;
  return lines.map((one) => {
    const members = columnsOf(one).map(() => next++);
    return { members, shown: one.average ? members[members.length - 1] : members[0] };
  });
}

/** What must be the same for new values to go into the chart that is there. */
function signature(content: ChartContent): string {
  const lines = content.lines.map((line) => [line.colour, isSmoothed(line), line.points.exact, line.dashed, line.dots]);
  return JSON.stringify([content.log, content.unit, lines, colour("paper")]);
}

function nearestCell(cells: Cell[], at: number): number | null {
  for (let away = 0; away < 50; away++)
    for (const i of [at - away, at + away]) if (typeof cells[i] === "number") return cells[i];
  return null;
}

function padded(low: number | null, high: number | null, content: ChartContent): [number, number] {
  if (low === null || high === null || !Number.isFinite(low) || !Number.isFinite(high))
    return content.log ? [0.1, 1] : [0, 1];
  const levels = content.levels
    .map((level) => level.value)
    .filter((value) => Number.isFinite(value) && (!content.log || value > 0));
  const [bottom, top] = [Math.min(low, ...levels), Math.max(high, ...levels)];
  if (content.log) return logRange(bottom, top);
  const room = bottom === top ? Math.abs(bottom) * 0.1 || 1 : (top - bottom) * 0.06;
  const floor = bottom >= 0 && bottom - room < 0 ? 0 : bottom - room;
  const ceiling = content.unit === "share" && top <= 1 ? 1 : Infinity;
  return [floor, Math.min(top + room, ceiling)];
}

function logRange(bottom: number, top: number): [number, number] {
  const room = Math.max((top / bottom) ** 0.06, 1.05);
  return [bottom / room, top * room];
}

function axisStyle(): uPlot.Axis {
  const line = { stroke: colour("grid"), width: 1 };
  return { stroke: colour("soft"), font: FONT, grid: line, ticks: { ...line, size: 4 }, border: { show: false } };
}

/** A colour of the style sheet, `#rrggbb`, with some of what is behind it showing. */
export function faded(hex: string, share: number): string {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return `rgba(${red}, ${green}, ${blue}, ${share})`;
}
