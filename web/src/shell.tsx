/** The frame of the page: where one is, whether the server is there, and the view. */

import type { JSX } from "preact";
import { useEffect, useErrorBoundary, useState } from "preact/hooks";
import { useConnection } from "./api/live";
import { snapshot } from "./api/snapshot";
import { KeyHelp } from "./keyboard/help";
import { useKeys } from "./keyboard/keys";
import { Notice } from "./parts/notices";
import { go, toRun, toRuns, usePlace } from "./routing/navigation";
import { matchPath, writeFragment } from "./routing/places";
import { switchTheme, useTheme } from "./theming/theme";
import { VIEWS } from "./views/catalogue";
import type { View } from "./views/view";

export function Shell(): JSX.Element {
  const place = usePlace();
  const [isHelping, setHelping] = useState(false);
  const found = VIEWS.map((view) => ({ view, parts: matchPath(view.pattern, place.path) })).find(({ parts }) => parts);
  const parts = found?.parts ?? {};
  const run = parts["run"] ?? "";
  const title = [run, found?.view.title ?? "Nothing here", "Sonde"].filter(Boolean).join(" · ");
  useEffect(() => void (document.title = title), [title]);
  useEffect(() => scrollTo(0, 0), [place.path.join("/")]);
  useKeys({
    "?": () => setHelping(!isHelping),
    Escape: () => setHelping(false),
    t: switchTheme,
    u: () => go(run && place.path.length > 2 ? toRun(run) : toRuns()),
  });
  return (
    <>
      <TopBar view={found?.view ?? null} parts={parts} onHelp={() => setHelping(true)} />
      <main>
        {found ? (
          <Guarded key={place.path.join("/")} view={found.view} parts={parts} query={place.query} />
        ) : (
          <Nowhere />
        )}
      </main>
      {isHelping && <KeyHelp onClose={() => setHelping(false)} />}
    </>
  );
}

function TopBar({
  view,
  parts,
  onHelp,
}: {
  view: View | null;
  parts: Record<string, string>;
  onHelp: () => void;
}): JSX.Element {
  const { connection } = useConnection();
  const run = parts["run"] ?? "";
  const isInTabs = view?.isTab ?? false;
  return (
    <header class="top-bar">
      <a class="brand" href={toRuns()} title="All runs">
        <svg viewBox="0 0 32 32" aria-hidden="true">
          <path d="M5 11c3 9 6 12 11 12 4 0 7-2 11-4" />
          <circle cx="21" cy="10" r="3.5" />
        </svg>
        <span>Sonde</span>
      </a>
      <nav class="crumbs" aria-label="Where you are">
        {run && (
          <a href={toRun(run)} title={run}>
            {run.split("/").pop()}
          </a>
        )}
        {view && !isInTabs && view.pattern !== "" && <span aria-current="page">{view.title}</span>}
      </nav>
      {run && (
        <nav class="tabs" aria-label="Views of the run">
          {VIEWS.filter((other) => other.isTab).map((other) => (
            <a key={other.pattern} href={tabAddress(other, run)} aria-current={other === view ? "page" : undefined}>
              {other.title}
            </a>
          ))}
        </nav>
      )}
      <span class={`connection ${connection}`} role="status">
        {snapshot
          ? "a snapshot"
          : connection === "lost"
            ? "server away, trying again"
            : connection === "open"
              ? "live"
              : ""}
      </span>
      <ThemeButton />
      <button class="plain" onClick={onHelp} aria-label="Keys and help" title="Keys and help (?)">
        ?
      </button>
    </header>
  );
}

function ThemeButton(): JSX.Element {
  const other = useTheme() === "dark" ? "light" : "dark";
  return (
    <button class="plain" onClick={switchTheme} aria-label={`Switch to ${other}`} title={`Switch to ${other} (t)`}>
      {other === "light" ? "☀" : "☾"}
    </button>
  );
}

function tabAddress(view: View, run: string): string {
  return writeFragment(view.pattern.split("/").map((part) => (part === ":run" ? run : part)));
}

/** A view that fails says so, and the rest of the page goes on. */
function Guarded({
  view,
  parts,
  query,
}: {
  view: View;
  parts: Record<string, string>;
  query: URLSearchParams;
}): JSX.Element {
  const [error, reset] = useErrorBoundary((error) => console.error(error));
  if (error)
    return (
      <Notice title="This view failed.">
        <p>{String(error)}</p>
        <button onClick={reset}>Try again</button>
      </Notice>
    );
  return <view.show parts={parts} query={query} />;
}

function Nowhere(): JSX.Element {
  return (
    <Notice title="There is no such view.">
      <p>
        The address may be of another version of Sonde. <a href={toRuns()}>Go to all runs</a>
      </p>
    </Notice>
  );
}
