/** A place on the page is its fragment: `#/run/demo/layers?path=grad/rms` is a path and a query. */

export interface Place {
  path: string[];
  query: URLSearchParams;
}

export type Change = Record<string, string | number | string[] | null | undefined>;

/** The place that a fragment names; what cannot be decoded stays as it is. */
export function readFragment(fragment: string): Place {
  const [path = "", query = ""] = splitOnce(fragment.replace(/^#\/?/, ""), "?");
  return { path: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

/** The fragment of a path, each part of which may hold slashes, and a query. */
export function writeFragment(path: string[], query: URLSearchParams | Change = {}): string {
  const params = query instanceof URLSearchParams ? query : changed(new URLSearchParams(), query);
  const written = params.toString().replaceAll("%2F", "/").replaceAll("%40", "@");
  return `#/${path.map(encodeURIComponent).join("/")}${written ? `?${written}` : ""}`;
}

/** A query with some of its values set anew; null takes one away. */
export function changed(query: URLSearchParams, change: Change): URLSearchParams {
  const next = new URLSearchParams(query);
  for (const [name, value] of Object.entries(change)) {
    next.delete(name);
    if (value === null || value === undefined) continue;
    for (const item of Array.isArray(value) ? value : [value]) next.append(name, String(item));
  }
  return next;
}

/** The named parts of a path where it fits a pattern such as "run/:run/layers". */
export function matchPath(pattern: string, path: string[]): Record<string, string> | null {
  const parts = pattern.split("/").filter(Boolean);
  if (parts.length !== path.length) return null;
  const named: Record<string, string> = {};
  for (const [i, part] of parts.entries()) {
    if (part.startsWith(":")) named[part.slice(1)] = path[i];
    else if (part !== path[i]) return null;
  }
  return named;
}

function splitOnce(text: string, mark: string): string[] {
  const at = text.indexOf(mark);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
