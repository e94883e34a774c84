/** Markdown as elements: text stays text. */

import type { ComponentChildren, JSX } from "preact";
import { readBlocks, readInline, type Block, type Inline } from "./blocks";

export function Markdown({ text }: { text: string }): JSX.Element {
  return <div class="markdown">{readBlocks(text).map(block)}</div>;
}

/** One line with code and emphasis, such as a finding's message. */
export function Words({ text }: { text: string }): JSX.Element {
  return <>{readInline(text).map(inline)}</>;
}

function block(block: Block, key: number): JSX.Element {
  if (block.kind === "code") return <pre key={key}>{block.text}</pre>;
  if (block.kind === "list")
    return (
      <ul key={key}>
        {block.items.map((item, i) => (
          <li key={i}>{item.map(inline)}</li>
        ))}
      </ul>
    );
  if (block.kind === "paragraph") return <p key={key}>{block.content.map(inline)}</p>;
  return block.level <= 2 ? (
    <h3 key={key}>{block.content.map(inline)}</h3>
  ) : (
    <h4 key={key}>{block.content.map(inline)}</h4>
  );
}

function inline(part: Inline, key: number): ComponentChildren {
  if (part.kind === "code") return <code key={key}>{part.text}</code>;
  if (part.kind === "strong") return <strong key={key}>{part.text}</strong>;
  if (part.kind === "emphasis") return <em key={key}>{part.text}</em>;
  if (part.kind === "link")
    return (
      <a key={key} href={part.address} target="_blank" rel="noreferrer noopener">
        {part.text}
      </a>
    );
  return part.text;
}
