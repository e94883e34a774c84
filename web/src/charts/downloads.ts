/** Files for the user, made here. */

import { colour } from "../theming/theme";

const MARGIN = 12;
const HEADING = 26;

export function save(content: string | Blob, name: string, kind: string): void {
  const link = document.createElement("a");
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type: kind }));
  link.href = address;
  link.download = name.replace(/[/\\:*?"<>|@]+/g, "-");
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** A canvas with its title above, on the page's ground. */
export function savePng(canvas: HTMLCanvasElement, title: string): void {
  const ratio = devicePixelRatio;
  const picture = document.createElement("canvas");
  picture.width = canvas.width + 2 * MARGIN * ratio;
  picture.height = canvas.height + (MARGIN + HEADING) * ratio;
  const ctx = picture.getContext("2d");
  if (!ctx) return;
  ctx.fillStyle = colour("paper");
  ctx.fillRect(0, 0, picture.width, picture.height);
  ctx.fillStyle = colour("ink");
  ctx.font = `600 ${13 * ratio}px system-ui, sans-serif`;
  ctx.fillText(title, MARGIN * ratio, 18 * ratio);
  ctx.drawImage(canvas, MARGIN * ratio, HEADING * ratio);
  picture.toBlob((blob) => blob && save(blob, `${title}.png`, "image/png"));
}
