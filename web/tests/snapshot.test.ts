import { expect, test } from "vitest";
import { globPattern } from "../src/api/snapshot";

test("patterns of a snapshot are those of the server", () => {
  const tags = ["loss", "val/loss", "grad/rms@0.weight", "grad/rms@0xweight", "a+b"];
  const matching = (pattern: string): string[] => tags.filter((tag) => globPattern(pattern).test(tag));
  expect(matching("val/*")).toEqual(["val/loss"]);
  expect(matching("*@0.weight")).toEqual(["grad/rms@0.weight"]);
  expect(matching("a+b")).toEqual(["a+b"]);
  expect(matching("los?")).toEqual(["loss"]);
  expect(matching("*")).toEqual(tags);
});
