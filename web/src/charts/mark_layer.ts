/** What lies over and under the lines of a chart: phases, evaluations, levels, lost values, and findings as links. */

import type uPlot from "uplot";
import { colour } from "../theming/theme";
import type { ChartContent } from "./lines";
import { clusterMarks, type MarkCluster } from "./marks";
import { lostAt } from "./points";

const GAP_PX = 13;
const LOST_LIMIT = 400;

export class MarkLayer {
  private links: HTMLElement | null = null;
  private written = "";

  constructor(private readonly content: () => ChartContent) {}

  attach(plot: uPlot): void {
    this.links = document.createElement("div");
    this.links.className = "marks";
    plot.over.append(this.links);
  }

  /** Phases of the schedule, as bands behind everything. */
  drawPhases(plot: uPlot): void {
    const { ctx, bbox } = plot;
    ctx.save();
    setFont(ctx);
    for (const [i, { phase, from, to }] of this.content().phases.entries()) {
      const [left, right] = clipped(plot, from, to);
      if (right <= left) continue;
      ctx.fillStyle = colour(i % 2 ? "phase-odd" : "phase-even");
      ctx.fillRect(left, bbox.top, right - left, bbox.height);
      if (right - left < ctx.measureText(phase).width + 8 * devicePixelRatio) continue;
      ctx.fillStyle = colour("soft");
      ctx.fillText(phase, left + 4 * devicePixelRatio, bbox.top + bbox.height - 5 * devicePixelRatio);
    }
    ctx.restore();
  }

  draw(plot: uPlot): void {
    const content = this.content();
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top - 14 * devicePixelRatio, bbox.width, bbox.height + 14 * devicePixelRatio);
    ctx.clip();
    this.drawLevels(plot, content);
    this.drawTicks(plot, content.evaluations, "second", 5);
    for (const line of content.lines) this.drawTicks(plot, lostAt(line.points).slice(0, LOST_LIMIT), "critical", 9);
    const clusters = clusterMarks(content.marks, (x) => plot.valToPos(x, "x"), GAP_PX).filter((cluster) =>
      isInside(plot, cluster),
    );
    clusters.forEach((cluster) => drawStem(plot, cluster));
    ctx.restore();
    this.placeLinks(plot, clusters);
  }

  private drawLevels(plot: uPlot, content: ChartContent): void {
    const { ctx, bbox } = plot;
    for (const level of content.levels) {
      if (content.log && level.value <= 0) continue;
      const y = plot.valToPos(level.value, "y", true);
      ctx.strokeStyle = ctx.fillStyle = colour("ok");
      ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
      ctx.lineWidth = devicePixelRatio;
      stroke(ctx, bbox.left, y, bbox.left + bbox.width, y);
      setFont(ctx);
      ctx.save();
      ctx.setLineDash([]);
      ctx.lineWidth = 4 * devicePixelRatio;
      ctx.strokeStyle = colour("paper");
      ctx.strokeText(level.label, bbox.left + 6 * devicePixelRatio, y - 4 * devicePixelRatio); // so that lines do not run through it
      ctx.restore();
      ctx.fillText(level.label, bbox.left + 6 * devicePixelRatio, y - 4 * devicePixelRatio);
    }
    ctx.setLineDash([]);
  }

  private drawTicks(plot: uPlot, places: number[], name: string, length: number): void {
    const { ctx, bbox } = plot;
    const bottom = bbox.top + bbox.height;
    ctx.strokeStyle = colour(name);
    ctx.lineWidth = 1.5 * devicePixelRatio;
    for (const place of places) {
      const x = plot.valToPos(place, "x", true);
      stroke(ctx, x, bottom, x, bottom - length * devicePixelRatio);
    }
  }

  /** Links are made anew only where they have moved: a click must not lose its target. */
  private placeLinks(plot: uPlot, clusters: MarkCluster[]): void {
    const places = clusters.map((cluster) => Math.round(plot.valToPos(cluster.x, "x")));
    const now = JSON.stringify([places, clusters]);
    if (now === this.written || !this.links) return;
    this.written = now;
    this.links.replaceChildren(...clusters.map((cluster, i) => link(cluster, places[i])));
  }
}

function link(cluster: MarkCluster, left: number): HTMLElement {
  const anchor = document.createElement("a");
  anchor.className = `mark ${cluster.severity}`;
  anchor.href = cluster.marks[0].link;
  anchor.title = cluster.marks.map((mark) => mark.label).join("\n");
  anchor.setAttribute("aria-label", anchor.title);
  anchor.style.left = `${left}px`;
  if (cluster.marks.length > 1) anchor.textContent = String(cluster.marks.length);
  return anchor;
}

function drawStem(plot: uPlot, cluster: MarkCluster): void {
  const { ctx, bbox } = plot;
  const x = Math.round(plot.valToPos(cluster.x, "x", true));
  ctx.strokeStyle = colour(cluster.severity);
  ctx.lineWidth = (cluster.severity === "info" ? 1 : 1.5) * devicePixelRatio;
  ctx.setLineDash(cluster.severity === "info" ? [2 * devicePixelRatio, 4 * devicePixelRatio] : []);
  stroke(ctx, x, bbox.top, x, bbox.top + bbox.height);
  ctx.setLineDash([]);
}

/** uPlot leaves its own alignment behind. */
function setFont(ctx: CanvasRenderingContext2D): void {
  ctx.font = `${10 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "left";
  ctx.textBaseline = "alphabetic";
}

function stroke(ctx: CanvasRenderingContext2D, x0: number, y0: number, x1: number, y1: number): void {
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.lineTo(x1, y1);
  ctx.stroke();
}

function clipped(plot: uPlot, from: number, to: number): [number, number] {
  const { left, width } = plot.bbox;
  const place = (x: number): number => Math.min(Math.max(plot.valToPos(x, "x", true), left), left + width);
  return [place(from), place(to)];
}

function isInside(plot: uPlot, { x }: MarkCluster): boolean {
  const { min = 0, max = 0 } = plot.scales["x"] as { min?: number; max?: number };
  return x >= min && x <= max;
}
