import { describe, expect, test } from "vitest";
import { changed, matchPath, readFragment, writeFragment } from "../src/routing/places";

describe("places", () => {
  test("a run in a folder is one part of a path", () => {
    const fragment = writeFragment(["run", "sweep/lr 0.1?#", "layers"], { path: "grad/rms", step: 5 });
    expect(fragment).toBe("#/run/sweep%2Flr%200.1%3F%23/layers?path=grad/rms&step=5");
    expect(readFragment(fragment).path).toEqual(["run", "sweep/lr 0.1?#", "layers"]);
    expect(readFragment(fragment).query.get("path")).toBe("grad/rms");
  });

  test("tags with an at and a plus come back as they were", () => {
    const tags = ["grad/rms@a.b", "c+d e&f"];
    expect(readFragment(writeFragment(["explore"], { tag: tags })).query.getAll("tag")).toEqual(tags);
  });

  test.each(["", "#", "#/", "#/?filter=x"])("%s is the table of runs", (fragment) =>
    expect(readFragment(fragment).path).toEqual([]),
  );

  test("what cannot be decoded stays as it is", () =>
    expect(readFragment("#/run/%E0%A4%A").path).toEqual(["run", "%E0%A4%A"]));

  test("a query is changed without the rest of it", () => {
    const query = changed(new URLSearchParams("a=1&b=2&c=3&c=4"), { b: null, c: ["5"], d: 6 });
    expect(query.toString()).toBe("a=1&c=5&d=6");
  });

  test("patterns name the parts of a path", () => {
    expect(matchPath("run/:run/finding/:finding", ["run", "demo", "finding", "LOS001@3"])).toEqual({
      run: "demo",
      finding: "LOS001@3",
    });
    expect(matchPath("run/:run", ["run", "demo", "layers"])).toBeNull();
    expect(matchPath("compare", ["explore"])).toBeNull();
    expect(matchPath("", [])).toEqual({});
  });
});
