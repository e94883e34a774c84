import { expect, test } from "vitest";
import { readColumns, readMatrix } from "../src/api/binary";

function packed(header: object, data: ArrayBufferView): ArrayBuffer {
  let text = JSON.stringify(header);
  while ((4 + text.length) % 8) text += " ";
  const bytes = new Uint8Array(4 + text.length + data.byteLength);
  new DataView(bytes.buffer).setUint32(0, text.length, true);
  bytes.set(new TextEncoder().encode(text), 4);
  bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), 4 + text.length);
  return bytes.buffer;
}

test("columns are read where the header says they lie", () => {
  const columns = ["step", "mean", "low", "high"];
  const series = [
    { tag: "loss", n: 2, columns, offset: 0, exact: false, last_step: 9 },
    { tag: "lr", n: 1, columns, offset: 64, exact: true, last_step: 4 },
    { tag: "nothing", n: 0, columns, offset: 96, exact: true, last_step: null, reason: "no such series" },
  ];
  const buffer = packed(
    { schema: 1, series },
    Float64Array.of(1, 9, 0.5, 0.25, 0.1, 0.2, 0.9, 0.3, 4, 0.01, 0.01, 0.01),
  );
  const [loss, lr, nothing] = readColumns(buffer);
  expect([...loss.x]).toEqual([1, 9]);
  expect([...loss.mean]).toEqual([0.5, 0.25]);
  expect([...loss.low]).toEqual([0.1, 0.2]);
  expect([...loss.high]).toEqual([0.9, 0.3]);
  expect([lr.x[0], lr.mean[0], lr.exact, lr.lastStep]).toEqual([4, 0.01, true, 4]);
  expect([nothing.x.length, nothing.reason]).toEqual([0, "no such series"]);
});

test("by time the first column is the time", () => {
  const series = [
    { tag: "loss", n: 1, columns: ["time", "mean", "low", "high"], offset: 0, exact: true, last_step: 1 },
  ];
  expect(readColumns(packed({ series }, Float64Array.of(1.7e9, 2, 2, 2)))[0].x[0]).toBe(1.7e9);
});

test("a header with letters beyond ASCII is as long as its bytes", () => {
  const text = JSON.stringify({
    series: [{ tag: "größe", n: 1, columns: ["step", "mean", "low", "high"], offset: 0, exact: true, last_step: 1 }],
  });
  const header = new TextEncoder().encode(text);
  const length = Math.ceil((4 + header.length) / 8) * 8 - 4;
  const bytes = new Uint8Array(4 + length + 32).fill(32, 0, 4 + length);
  new DataView(bytes.buffer).setUint32(0, length, true);
  bytes.set(header, 4);
  new Float64Array(bytes.buffer, 4 + length).set([7, 1, 1, 1]);
  expect(readColumns(bytes.buffer)[0]).toMatchObject({ tag: "größe", lastStep: 1 });
});

test("a matrix is read row by row, and edges that are not finite come as numbers", () => {
  const header = {
    rows: 2,
    columns: 2,
    offset: 0,
    steps: [5, 10],
    names: ["a", "b"],
    modules: ["a", null],
    edges: ["-Infinity", 0, "Infinity"],
  };
  const matrix = readMatrix(packed(header, Float32Array.of(1, NaN, 3, 4)));
  expect([...matrix.values]).toEqual([1, NaN, 3, 4]);
  expect(matrix.edges).toEqual([-Infinity, 0, Infinity]);
  expect(matrix.names).toEqual(["a", "b"]);
});

test("a histogram without edges has none", () => {
  expect(
    readMatrix(packed({ rows: 0, columns: 0, offset: 0, steps: [], edges: null }, new Float32Array())).edges,
  ).toEqual([]);
});
