import { describe, expect, test } from "vitest";
import { readBlocks, readInline } from "../src/markdown/blocks";

describe("markdown", () => {
  test("headings, paragraphs, lists and code", () => {
    const blocks = readBlocks(
      "# Title\n\nOne line\nand more.\n\n- first\n  goes on\n- second `code`\n\n```\na < b\n- no list\n```\nend",
    );
    expect(blocks.map((block) => block.kind)).toEqual(["heading", "paragraph", "list", "code", "paragraph"]);
    expect(blocks[1]).toEqual({ kind: "paragraph", content: [{ kind: "text", text: "One line and more." }] });
    expect(blocks[2]).toMatchObject({
      items: [[{ text: "first goes on" }], [{ text: "second " }, { kind: "code", text: "code" }]],
    });
    expect(blocks[3]).toEqual({ kind: "code", text: "a < b\n- no list" });
  });

  test("code that never ends holds the rest", () =>
    expect(readBlocks("```\nx")).toEqual([{ kind: "code", text: "x" }]));

  test("markup stays text", () => {
    const text = '<img src=x onerror="alert(1)">';
    expect(readInline(text)).toEqual([{ kind: "text", text }]);
  });

  test("only web addresses become links", () => {
    expect(readInline("[a](javascript:alert(1))")[0]).toEqual({ kind: "text", text: "a" });
    expect(readInline("[a](data:text/html,x)")).toEqual([{ kind: "text", text: "a" }]);
    expect(readInline("[a](https://example.org/x)")).toEqual([
      { kind: "link", text: "a", address: "https://example.org/x" },
    ]);
  });

  test("stars in code and between numbers are no emphasis", () => {
    expect(readInline("`a*b*c` and 2 * 3 * 4")).toEqual([
      { kind: "code", text: "a*b*c" },
      { kind: "text", text: " and 2 * 3 * 4" },
    ]);
    expect(readInline("a **b** *c*")).toEqual([
      { kind: "text", text: "a " },
      { kind: "strong", text: "b" },
      { kind: "text", text: " " },
      { kind: "emphasis", text: "c" },
    ]);
  });
});
