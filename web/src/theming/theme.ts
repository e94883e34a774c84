/** Dark or light: the system's choice until somebody makes another one. */

import { useEffect, useState } from "preact/hooks";

export type Theme = "dark" | "light";

const KEPT = "sonde-theme";
const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
const watchers = new Set<() => void>();
/** To ask the browser costs more than to draw a line. */
const colours = new Map<string, string>();

export function theme(): Theme {
  const kept = localStorage.getItem(KEPT);
  return kept === "dark" || kept === "light" ? kept : systemIsDark.matches ? "dark" : "light";
}

export function switchTheme(): void {
  localStorage.setItem(KEPT, theme() === "dark" ? "light" : "dark");
  show();
}

export function useTheme(): Theme {
  const [shown, setShown] = useState(theme());
  useEffect(() => {
    const watcher = (): void => setShown(theme());
    watchers.add(watcher);
    return () => void watchers.delete(watcher);
  }, []);
  return shown;
}

/** The value of a colour of the style sheet, for what is drawn on a canvas. */
export function colour(name: string): string {
  const known = colours.get(name);
  if (known) return known;
  const read = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  colours.set(name, read);
  return read;
}

export function show(): void {
  document.documentElement.dataset["theme"] = theme();
  colours.clear();
  watchers.forEach((watcher) => watcher());
}

systemIsDark.addEventListener("change", show);
