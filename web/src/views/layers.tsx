/** All layers against steps: vanishing, exploding and dead layers are a pattern. */

import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { useLoaded } from "../api/loading";
import { layerPaths, layers as load } from "../api/requests";
import type { Matrix } from "../api/binary";
import type { Run } from "../api/types";
import { readRange } from "../charts/ranges";
import { Toolbar } from "../charts/toolbar";
import { tell } from "../findings/groups";
import { nearestColumn } from "../heatmaps/geometry";
import { HeatMap } from "../heatmaps/heat_map";
import { useKeys } from "../keyboard/keys";
import { Notice, Progress, Trouble } from "../parts/notices";
import { setQuery } from "../routing/navigation";
import { meaning } from "../words/meanings";
import { LayerDetail } from "./layer_detail";
import { FIRST_PATHS, PathChoice } from "./layer_paths";
import { GoneNotice } from "./run";
import { useRun } from "./use_run";
import type { ViewProps } from "./view";

/** While a run goes on, its map is loaded anew so often. */
const REFRESH_S = 5;
/** A list of more is no help; the map and its keys still reach every layer. */
const MOST_LISTED = 2000;

export function Layers({ parts, query }: ViewProps): JSX.Element {
  const run = parts["run"];
  const watched = useRun(run);
  const paths = useLoaded(`paths ${run} ${watched.value?.num_tags ?? 0}`, () => layerPaths(run), { keep: true });
  const range = readRange(query);
  const known = paths.value?.paths ?? [];
  const path =
    query.get("path") ?? FIRST_PATHS.find((first) => known.some((one) => one.path === first)) ?? known[0]?.path ?? "";
  const turn = Math.floor((watched.newest?.time ?? 0) / REFRESH_S);
  const matrix = useLoaded(
    path && known.length ? `layers ${run} ${path} ${range?.from} ${range?.to} ${turn}` : "",
    () => load(run, path, range?.from, range?.to),
    { keep: true },
  );

  const refusal = paths.refusal ?? matrix.refusal;
  if (refusal && !matrix.value) return <Trouble refusal={refusal} retry={paths.reload} />;
  if (paths.value && !known.length) return <NoLayers />;
  return (
    <div class="layers-view">
      {watched.isGone && <GoneNotice />}
      <PathChoice paths={known} path={path} />
      {matrix.value ? (
        <Map
          run={run}
          path={path}
          matrix={matrix.value}
          query={query}
          steps={watched.value?.steps ?? 0}
          suspect={suspectOf(watched.value)}
        />
      ) : (
        <Progress slow={matrix.slow || paths.slow} of="layers" />
      )}
    </div>
  );
}

/** The layer in which the gravest cause was seen: chosen until somebody chooses another one. */
const suspectOf = (run: Run | null): string =>
  (run && tell(run).causes.find(({ group }) => group.place && !/:\d+$/.test(group.place))?.group.place) ?? "";

interface MapProps {
  run: string;
  path: string;
  matrix: Matrix;
  query: URLSearchParams;
  steps: number;
  suspect: string;
}

function Map({ run, path, matrix, query, steps, suspect }: MapProps): JSX.Element {
  const { title, unit, explained } = meaning(path);
  const range = readRange(query);
  const asked = query.get("step");
  const column = asked === null ? Math.max(0, matrix.columns - 1) : nearestColumn(matrix.steps, Number(asked));
  const layer = query.get("layer") ?? suspect;
  const row = useMemo(() => rowOf(matrix, layer), [matrix, layer]);
  const pick = (nextColumn: number, nextRow: number | null): void =>
    setQuery({ step: matrix.steps[nextColumn], layer: nextRow === null ? layer || null : matrix.names[nextRow] });
  const move = (columns: number, rows: number): void => {
    const nextRow = rows ? Math.min(Math.max((row ?? (rows > 0 ? -1 : matrix.rows)) + rows, 0), matrix.rows - 1) : row;
    pick(Math.min(Math.max(column + columns, 0), matrix.columns - 1), nextRow);
  };
  useKeys({ j: () => move(0, 1), k: () => move(0, -1), ",": () => move(-1, 0), ".": () => move(1, 0) });
  if (!matrix.rows || !matrix.columns)
    return (
      <Notice title={`No values of ${title.toLowerCase()} here.`}>
        <p>Choose another statistic, or show all steps (0).</p>
      </Notice>
    );
  const chosen = row === null ? "" : matrix.names[row];
  return (
    <>
      <Toolbar range={range} whole={{ from: 0, to: Math.max(steps, matrix.steps.at(-1) ?? 1) }} smoothing={null} />
      {explained && (
        <p class="remark">
          {title}: {explained}. Rows are in the order of the model, its input on top; bars at the right are the values
          at the chosen step.
        </p>
      )}
      <HeatMap
        title={title}
        unit={unit}
        values={matrix.values}
        rows={matrix.rows}
        columns={matrix.columns}
        names={matrix.names}
        steps={matrix.steps}
        column={column}
        row={row}
        onPick={pick}
      />
      <label class="choice layer-choice">
        Layer
        <select value={chosen} onChange={(event) => setQuery({ layer: event.currentTarget.value })}>
          <option value="">choose one, or click the map</option>
          {chosen && matrix.names.indexOf(chosen) >= MOST_LISTED && <option>{chosen}</option>}
          {matrix.names.slice(0, MOST_LISTED).map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      {chosen && <LayerDetail run={run} path={path} layer={chosen} step={matrix.steps[column]} range={range} />}
    </>
  );
}

/** The row of a layer; where a module was asked for, of its first parameter, and the other way round. */
function rowOf(matrix: Matrix, layer: string): number | null {
  if (!layer) return null;
  const exact = matrix.names.indexOf(layer);
  if (exact >= 0) return exact;
  const near = matrix.names.findIndex(
    (name, i) => matrix.modules[i] === layer || name.startsWith(`${layer}.`) || layer.startsWith(`${name}.`),
  );
  return near < 0 ? null : near;
}

function NoLayers(): JSX.Element {
  return (
    <Notice title="Nothing was measured of single layers.">
      <p>
        Runs that <code>sonde.watch(model, optimizer)</code> records have gradients, weights, updates and activations of
        every layer; imported logs often have none.
      </p>
    </Notice>
  );
}
