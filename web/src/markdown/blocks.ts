/** Markdown as far as manual pages use it: headings, lists, paragraphs, code, emphasis and links. */

export type Inline =
  { kind: "text" | "code" | "strong" | "emphasis"; text: string } | { kind: "link"; text: string; address: string };

export type Block =
  | { kind: "heading"; level: number; content: Inline[] }
  | { kind: "paragraph"; content: Inline[] }
  | { kind: "list"; items: Inline[][] }
  | { kind: "code"; text: string };

const INLINE = /`([^`]+)`|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*|\[([^\]]+)\]\(([^)\s]+)\)/g;

export function readBlocks(markdown: string): Block[] {
  const blocks: Block[] = [];
  let paragraph: string[] = [];
  let items: string[] = [];
  const close = (): void => {
    if (paragraph.length) blocks.push({ kind: "paragraph", content: readInline(paragraph.join(" ")) });
    if (items.length) blocks.push({ kind: "list", items: items.map(readInline) });
    [paragraph, items] = [[], []];
  };
  const lines = markdown.replace(/\r\n?/g, "\n").split("\n");
  for (let i = 0; i < lines.length; i++) {
    const line = lines[i];
    const text = line.trim();
    const heading = text.match(/^(#{1,6})\s+(.*?)\s*#*$/);
    const item = text.match(/^(?:[-*+]|\d+\.)\s+(.*)$/);
    if (text.startsWith("```")) {
      close();
      const end = lines.findIndex((other, place) => place > i && other.trim().startsWith("```"));
      const last = end < 0 ? lines.length : end;
      blocks.push({ kind: "code", text: lines.slice(i + 1, last).join("\n") });
      i = last;
    } else if (!text) close();
    else if (heading) {
      close();
      blocks.push({ kind: "heading", level: heading[1].length, content: readInline(heading[2]) });
    } else if (item) {
      if (paragraph.length) close();
      items.push(item[1]);
    } else if (items.length && /^\s/.test(line)) items[items.length - 1] += ` ${text}`;
    else {
      if (items.length) close();
      paragraph.push(text);
    }
  }
  close();
  return blocks;
}

export function readInline(text: string): Inline[] {
  const parts: Inline[] = [];
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > at) parts.push({ kind: "text", text: text.slice(at, match.index) });
    at = match.index + match[0].length;
    const [whole, code, strong, emphasis, label, address] = match;
    if (code !== undefined) parts.push({ kind: "code", text: code });
    else if (strong !== undefined) parts.push({ kind: "strong", text: strong });
    else if (emphasis !== undefined) parts.push({ kind: "emphasis", text: emphasis });
    else if (/^https?:\/\//.test(address)) parts.push({ kind: "link", text: label, address });
    else parts.push({ kind: "text", text: label ?? whole }); // other schemes could run code; other pages are not here
  }
  if (at < text.length) parts.push({ kind: "text", text: text.slice(at) });
  return parts;
}
