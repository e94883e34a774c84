/** The filter line of a table: words, `name:part`, `name>0.1`, each with a minus before it for the opposite. */

export type Value = string | number | boolean | null | undefined;

/** What a row holds under a name; undefined where it has nothing of that name. */
export type Lookup = (name: string) => Value;

export type Condition = (lookup: Lookup, text: string) => boolean;

const TOKEN = /-?(?:[^\s:<>=!"]+(?::|>=|<=|!=|>|<|=))?(?:"[^"]*"?|[^\s"]+)/g;
const PARTS = /^(-?)(?:([^\s:<>=!"]+)(:|>=|<=|!=|>|<|=))?(.*)$/s;

/** All conditions of a line; each holds or not for a row's values and for all of its text. */
export function conditions(line: string): Condition[] {
  return (line.match(TOKEN) ?? []).map((token) => {
    const [, minus = "", name = "", sign = "", rest = ""] = token.match(PARTS) ?? [];
    const wanted = rest.replace(/^"|"$/g, "");
    const holds: Condition = name
      ? (lookup) => compares(lookup(name), sign, wanted)
      : (_, text) => text.toLowerCase().includes(wanted.toLowerCase());
    return minus ? (lookup, text) => !holds(lookup, text) : holds;
  });
}

export const passes = (all: Condition[], lookup: Lookup, text: string): boolean =>
  all.every((condition) => condition(lookup, text));

function compares(value: Value, sign: string, wanted: string): boolean {
  if (value === undefined || value === null) return sign === "!=";
  if (sign === ":") return String(value).toLowerCase().includes(wanted.toLowerCase());
  if (sign === "=") return isSame(value, wanted);
  if (sign === "!=") return !isSame(value, wanted);
  const [number, limit] = [Number(value), Number(wanted)];
  if (sign === ">") return number > limit;
  if (sign === "<") return number < limit;
  return sign === ">=" ? number >= limit : number <= limit;
}

function isSame(value: Value, wanted: string): boolean {
  return typeof value === "number" && wanted !== ""
    ? value === Number(wanted)
    : String(value).toLowerCase() === wanted.toLowerCase();
}
