/** All runs of a folder. */

import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { listen } from "../api/live";
import { useLoaded } from "../api/loading";
import { runs as load } from "../api/requests";
import type { RunLine, RunTable } from "../api/types";
import { useKeys } from "../keyboard/keys";
import { Menu } from "../parts/menu";
import { Notice, Progress, Trouble } from "../parts/notices";
import { NotesDialog } from "../parts/notes_dialog";
import { go, setQuery, toCompare, toRun } from "../routing/navigation";
import { conditions, passes } from "../tables/filtering";
import { grouped } from "../tables/grouping";
import { COLUMNS, lookup, NOTE, searchText, settingColumn, settingNames, type Column } from "../tables/run_columns";
import { RunGrid, type GridHandle } from "../tables/run_grid";
import { nextOrder, readOrder, sorted, writeOrder } from "../tables/sorting";
import { count, whole } from "../words/quantities";
import type { ViewProps } from "./view";

export function Runs({ query }: ViewProps): JSX.Element {
  const { value: table, refusal, slow, reload, replace } = useLoaded("runs", load);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const [closed, setClosed] = useState<ReadonlySet<string>>(new Set());
  const [cursor, setCursor] = useState(-1);
  const [edited, setEdited] = useState<RunLine | null>(null);
  const filterPlace = useRef<HTMLInputElement>(null);
  const grid = useRef<GridHandle | null>(null);
  const latest = useRef<RunTable | null>(null);
  latest.current = table;
  useEffect(() => {
    return listen([], { runs: (news) => latest.current && replace(merged(latest.current, news)) });
  }, []);

  const all = table?.runs ?? [];
  const settings = useMemo(() => settingNames(all), [all]);
  const chosen = query.get("cols")?.split(",").filter(Boolean) ?? settings.telling;
  const columns = useMemo(() => [...COLUMNS, ...chosen.map(settingColumn), NOTE], [chosen.join()]);
  const order = readOrder(query.get("sort"), { column: "updated", descending: true });
  const filter = query.get("filter") ?? "";
  const group = query.get("group") ?? "";
  const rows = useMemo(() => {
    const wanted = conditions(filter);
    const found = all.filter((run) => passes(wanted, (name) => lookup(run, name), searchText(run)));
    return sorted(found, columnOf(columns, order.column).value, order.descending);
  }, [all, filter, order.column, order.descending, columns]);
  const items = useMemo(() => grouped(rows, group ? (run) => lookup(run, group) : null, closed), [rows, group, closed]);

  const toggle = (id: string): void =>
    setSelected((before) => new Set(before.has(id) ? [...before].filter((other) => other !== id) : [...before, id]));
  const current = (): RunLine | null => {
    const item = items[cursor];
    return item?.kind === "row" ? item.row : null;
  };
  const move = (by: number): void => {
    let next = cursor + by;
    while (items[next]?.kind === "heading") next += by;
    if (!items[next]) return;
    setCursor(next);
    grid.current?.reveal(next);
  };
  useKeys({
    j: () => move(1),
    k: () => move(-1),
    Enter: () => current() && go(toRun(current()!.id)),
    x: () => current() && toggle(current()!.id),
    c: () => selected.size > 1 && go(toCompare([...selected])),
    e: () => setEdited(current()),
    "/": () => filterPlace.current?.focus(),
  });

  if (!table) return refusal ? <Trouble refusal={refusal} retry={reload} /> : <Progress slow={slow} of="runs" />;
  if (!all.length) return <NoRuns folder={table.folder} />;
  return (
    <div class="runs-view">
      <div class="controls">
        <input
          ref={filterPlace}
          type="search"
          aria-label="Filter runs"
          placeholder="Filter: words, verdict=critical, lr>0.001   ( / )"
          value={filter}
          onInput={(event) => setQuery({ filter: event.currentTarget.value || null })}
          onKeyDown={(event) => event.key === "Escape" && event.currentTarget.blur()}
        />
        <label class="choice">
          Group
          <select value={group} onChange={(event) => setQuery({ group: event.currentTarget.value || null })}>
            <option value="">by nothing</option>
            {["verdict", "state", "tag", ...settings.all].map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        <label class="choice narrow-only">
          Sort
          <select value={writeOrder(order)} onChange={(event) => setQuery({ sort: event.currentTarget.value })}>
            {["-updated", "-verdict", "name", "loss", "-steps"].map((name) => (
              <option key={name} value={name}>
                {name.replace("-", "")}
              </option>
            ))}
          </select>
        </label>
        <Menu label="Columns">
          <p>Settings as columns</p>
          {settings.all.map((name) => (
            <label key={name}>
              <input
                type="checkbox"
                checked={chosen.includes(name)}
                onClick={(event) => event.stopPropagation()}
                onChange={() => setQuery({ cols: toggled(chosen, name).join(",") })}
              />
              {name}
            </label>
          ))}
        </Menu>
        <Summary all={all} shown={rows} />
        <span class="selection">
          {selected.size > 0 && <button onClick={() => setSelected(new Set())}>Clear</button>}
          <button
            class="main"
            disabled={selected.size < 2}
            title="Select two runs or more (x), then compare (c)"
            onClick={() => go(toCompare([...selected]))}
          >
            Compare{selected.size ? ` ${selected.size}` : ""}
          </button>
        </span>
      </div>
      {!rows.length && (
        <Notice title="No run passes the filter.">
          <button onClick={() => setQuery({ filter: null })}>Show all {whole(all.length)}</button>
        </Notice>
      )}
      <RunGrid
        handle={grid}
        items={items}
        columns={columns}
        order={order}
        cursor={cursor}
        selected={selected}
        onOrder={(column) =>
          setQuery({ sort: writeOrder(nextOrder(order, column.name, column.isNumber ?? column.name === "verdict")) })
        }
        onSelect={toggle}
        onEdit={setEdited}
        onFold={(key) => setClosed((before) => new Set(toggled([...before], key)))}
      />
      {edited && <NotesDialog run={edited} onClose={() => setEdited(null)} onChange={reload} />}
    </div>
  );
}

function Summary({ all, shown }: { all: RunLine[]; shown: RunLine[] }): JSX.Element {
  const of = (verdict: string): number => shown.filter((run) => run.verdict === verdict).length;
  const parts = [
    shown.length === all.length ? count(all.length, "run") : `${whole(shown.length)} of ${count(all.length, "run")}`,
    ...(["critical", "warning"] as const).filter(of).map((verdict) => `${whole(of(verdict))} ${verdict}`),
  ];
  const running = shown.filter((run) => run.state === "running").length;
  return <span class="summary">{[...parts, ...(running ? [`${whole(running)} running`] : [])].join(" · ")}</span>;
}

function NoRuns({ folder }: { folder: string }): JSX.Element {
  return (
    <Notice title="No runs yet.">
      <p>
        Runs appear here as soon as they begin in <code>{folder}</code>. Record one:
      </p>
      <pre>
        sonde demo --run {folder}/demo{"\n"}sonde run train.py
      </pre>
      <p>
        or watch a loop of your own with <code>sonde.watch(model, optimizer, run="{folder}/first")</code>.
      </p>
    </Notice>
  );
}

/** The table with news in it: runs that changed or are new, without those that are gone. */
export function merged(table: RunTable, { changed, gone }: { changed: RunLine[]; gone: string[] }): RunTable {
  const left = new Map(table.runs.filter((run) => !gone.includes(run.id)).map((run) => [run.id, run]));
  for (const run of changed) left.set(run.id, run);
  return { ...table, runs: [...left.values()], total: left.size };
}

const toggled = (names: string[], name: string): string[] =>
  names.includes(name) ? names.filter((other) => other !== name) : [...names, name];

const columnOf = (columns: Column[], name: string): Column =>
  columns.find((column) => column.name === name) ?? COLUMNS[1];
