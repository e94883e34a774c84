/** Rows of runs, of which only those on the screen exist. */

import type { JSX, RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { RunLine } from "../api/types";
import { VerdictMark } from "../findings/severity";
import { toRun } from "../routing/navigation";
import { count } from "../words/quantities";
import type { Item } from "./grouping";
import type { Column } from "./run_columns";
import type { Order } from "./sorting";
import { scrollTo, visibleRows } from "./visible_rows";

const ROW = 34;
/** On narrow screens a run takes two lines. */
const TALL_ROW = 62;
const HEAD = 34;
const narrow = matchMedia("(max-width: 700px)");

export interface GridHandle {
  reveal: (row: number) => void;
}

interface RunGridProps {
  handle: RefObject<GridHandle | null>;
  items: Item<RunLine>[];
  columns: Column[];
  order: Order;
  cursor: number;
  selected: ReadonlySet<string>;
  onOrder: (column: Column) => void;
  onSelect: (id: string) => void;
  onEdit: (run: RunLine) => void;
  onFold: (key: string) => void;
}

export function RunGrid(props: RunGridProps): JSX.Element {
  const { handle, items, columns, order, cursor, selected, onOrder } = props;
  const place = useRef<HTMLDivElement>(null);
  const [shown, setShown] = useState({ top: 0, height: 800, row: narrow.matches ? TALL_ROW : ROW });
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const measure = (): void =>
      setShown({ top: element.scrollTop, height: element.clientHeight, row: narrow.matches ? TALL_ROW : ROW });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    element.addEventListener("scroll", measure, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", measure);
    };
  }, []);
  handle.current = {
    reveal: (row) => {
      const top = scrollTo(row, shown.top, shown.height - HEAD, shown.row);
      if (top !== null && place.current) place.current.scrollTop = top;
    },
  };
  const { first, last } = visibleRows(shown.top, shown.height, shown.row, items.length);
  const template = ["30px", ...columns.map((column) => column.width), "34px"].join(" ");
  const now = Date.now() / 1000;
  return (
    <div class="grid" ref={place} role="table" aria-rowcount={items.length + 1} aria-label="Runs">
      <div class="head row" role="row" style={{ gridTemplateColumns: template }}>
        <span role="columnheader" aria-label="Selected" />
        {columns.map((column) => (
          <span
            key={column.name}
            role="columnheader"
            class={column.isNumber ? "number" : ""}
            aria-sort={order.column === column.name ? (order.descending ? "descending" : "ascending") : "none"}
          >
            {column.title && (
              <button onClick={() => onOrder(column)} title={`Sort by ${column.title}`}>
                {column.title}
                {order.column === column.name && (order.descending ? " ↓" : " ↑")}
              </button>
            )}
          </span>
        ))}
        <span role="columnheader" aria-label="Tags and note" />
      </div>
      <div class="rows" style={{ height: `${items.length * shown.row}px` }}>
        {items.slice(first, last).map((item, i) => {
          const at = first + i;
          const style = { top: `${at * shown.row}px`, height: `${shown.row}px`, gridTemplateColumns: template };
          return item.kind === "heading" ? (
            <Heading key={`heading ${item.key}`} item={item} style={style} onFold={props.onFold} />
          ) : (
            <Row
              key={item.row.id}
              {...props}
              run={item.row}
              style={style}
              now={now}
              isCursor={at === cursor}
              isSelected={selected.has(item.row.id)}
              index={at}
            />
          );
        })}
      </div>
    </div>
  );
}

interface RowProps extends RunGridProps {
  run: RunLine;
  style: Record<string, string>;
  now: number;
  isCursor: boolean;
  isSelected: boolean;
  index: number;
}

function Row({ run, columns, style, now, isCursor, isSelected, index, onSelect, onEdit }: RowProps): JSX.Element {
  return (
    <div
      class={`row${isCursor ? " cursor" : ""}${isSelected ? " selected" : ""}`}
      role="row"
      aria-rowindex={index + 2}
      aria-selected={isSelected}
      style={style}
      data-run={run.id}
    >
      <span role="cell" class="check">
        <input
          type="checkbox"
          aria-label={`Select ${run.name}`}
          checked={isSelected}
          onChange={() => onSelect(run.id)}
        />
      </span>
      {columns.map((column) => (
        <span
          key={column.name}
          role="cell"
          class={`cell of-${column.name.startsWith("config.") ? "setting" : column.name}${column.isNumber ? " number" : ""}`}
        >
          {column.name === "name" ? <a href={toRun(run.id)}>{column.show(run, now)}</a> : column.show(run, now)}
          {column.name === "name" && run.problem && (
            <span class="problem" title={run.problem}>
              {" "}
              damaged
            </span>
          )}
        </span>
      ))}
      <span role="cell" class="edit">
        <button
          class="plain"
          aria-label={`Tags and note of ${run.name}`}
          title="Tags and note (e)"
          onClick={() => onEdit(run)}
        >
          ✎
        </button>
      </span>
    </div>
  );
}

function Heading({
  item,
  style,
  onFold,
}: {
  item: Extract<Item<RunLine>, { kind: "heading" }>;
  style: Record<string, string>;
  onFold: (key: string) => void;
}): JSX.Element {
  const worst = (["critical", "warning"] as const).find((verdict) => item.rows.some((run) => run.verdict === verdict));
  return (
    <div class="row heading" role="row" style={{ top: style["top"] ?? "", height: style["height"] ?? "" }}>
      <button onClick={() => onFold(item.key)} aria-expanded={item.isOpen}>
        {item.isOpen ? "▾" : "▸"} <strong>{item.key}</strong> <span class="soft">{count(item.rows.length, "run")}</span>
        {worst && <VerdictMark verdict={worst} />}
      </button>
    </div>
  );
}
