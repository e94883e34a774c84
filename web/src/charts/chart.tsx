/** One chart with its name, the values under the crosshair, and what can be done with it. */

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Menu } from "../parts/menu";
import { colour, useTheme } from "../theming/theme";
import { quantity } from "../words/quantities";
import { axisLabel, stepLabel, wantsLog } from "./axes";
import { chartCsv } from "./csv";
import { save, savePng } from "./downloads";
import { extent, type ChartContent, type Line } from "./lines";
import { openPlot, type OpenPlot } from "./plot";
import type { Range } from "./ranges";
import { chartSvg } from "./svg";

export interface ChartProps extends Partial<Omit<ChartContent, "title" | "lines" | "log">> {
  title: string;
  explained?: string;
  lines: Line[];
  /** Charts of a group share the crosshair. */
  group: string;
  onRange: (range: Range | null) => void;
  /** What to say where there are no points. */
  empty?: string;
  /** "auto": by how far the values are apart. */
  log?: boolean | "auto";
  tall?: boolean;
  /** Where the values of the lines stand: beside the title, below the chart, or beside it without names. */
  legend?: "beside" | "below" | "unnamed";
}

export function Chart(props: ChartProps): JSX.Element {
  const {
    title,
    explained = "",
    lines,
    group,
    onRange,
    empty = "Nothing was measured here.",
    tall = false,
    legend = "beside",
  } = props;
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<OpenPlot | null>(null);
  const readout = useRef<HTMLDivElement>(null);
  const isSeen = useRef(true);
  const shownTheme = useTheme();
  const [chosenLog, chooseLog] = useState<boolean | null>(null);
  const isLog =
    chosenLog ??
    (props.log === "auto"
      ? lines.length > 0 && lines.every((line) => wantsLog(line.points.mean))
      : (props.log ?? false));
  const hasPoints = lines.some((line) => line.points.x.length > 0);
  const content: ChartContent = {
    title,
    unit: props.unit ?? "",
    lines,
    log: isLog,
    range: props.range ?? null,
    whole: props.whole ?? extent(lines),
    marks: props.marks ?? [],
    phases: props.phases ?? [],
    evaluations: props.evaluations ?? [],
    levels: props.levels ?? [],
    xLabel: props.xLabel ?? stepLabel,
    xName: props.xName ?? "step",
  };
  const current = useRef({ content, onRange });
  current.current = { content, onRange };

  useEffect(() => {
    if (!place.current || !hasPoints) return;
    const events = {
      onRange: (range: Range | null) => current.current.onRange(range),
      onCursor: (x: number | null, values: (number | null)[]) =>
        write(readout.current, current.current.content, legend, x, values),
    };
    const element = place.current;
    const opened = openPlot(element, current.current.content, group, events);
    plot.current = opened;
    const sizes = new ResizeObserver(() => opened.resize(element.clientWidth, element.clientHeight));
    const sight = new IntersectionObserver(([entry]) => {
      isSeen.current = entry.isIntersecting;
      if (isSeen.current) opened.update(current.current.content);
    });
    sizes.observe(element);
    sight.observe(element);
    return () => {
      sizes.disconnect();
      sight.disconnect();
      opened.close();
      plot.current = null;
    };
  }, [shownTheme, hasPoints, group]);
  useEffect(() => {
    if (isSeen.current) plot.current?.update(content); // others are drawn when they come into sight
    write(readout.current, content, legend, null, []);
  });

  return (
    <figure class={`chart${tall ? " tall" : ""}`} data-title={title}>
      <figcaption>
        <span class="title" title={explained}>
          {title}
        </span>
        {legend === "below" ? <span class="readout" /> : <div class="readout" ref={readout} />}
        {hasPoints && (
          <Menu label={`More of ${title}`}>
            <button onClick={() => chooseLog(!isLog)}>{isLog ? "Linear scale" : "Logarithmic scale"}</button>
            <button onClick={() => plot.current && savePng(plot.current.canvas(), title)}>Save as PNG</button>
            <button onClick={() => save(chartSvg(content, colour), `${title}.svg`, "image/svg+xml")}>
              Save as SVG
            </button>
            <button onClick={() => save(chartCsv(content), `${title}.csv`, "text/csv")}>Save as CSV</button>
          </Menu>
        )}
      </figcaption>
      {hasPoints ? <div class="plot" ref={place} /> : <p class="empty">{empty}</p>}
      {legend === "below" && <div class="readout below" ref={readout} />}
    </figure>
  );
}

/** The values under the crosshair, else the last ones: written by hand, as it happens with every move of the mouse. */
function write(
  place: HTMLElement | null,
  content: ChartContent,
  legend: string,
  x: number | null,
  values: (number | null)[],
): void {
  if (!place) return;
  const items = content.lines.slice(0, 8).map((line, i) => {
    const value = x === null ? lastOf(line.points.mean) : (values[i] ?? null);
    const item = document.createElement("span");
    item.className = value !== null && !Number.isFinite(value) ? "value lost" : "value";
    const swatch = document.createElement("i");
    swatch.className = `swatch ${line.colour}`;
    const label = content.lines.length > 1 && legend !== "unnamed" ? `${line.label} ` : "";
    item.append(
      swatch,
      label,
      value === null ? "–" : legend === "unnamed" ? axisLabel(value, content.unit) : quantity(value, content.unit),
    );
    return item;
  });
  if (x !== null) {
    const at = document.createElement("span");
    at.className = "at";
    at.textContent = `${content.xName} ${content.xLabel(x)}`;
    items.unshift(at);
  }
  place.replaceChildren(...items);
}

const lastOf = (values: ArrayLike<number>): number | null => (values.length ? values[values.length - 1] : null);
