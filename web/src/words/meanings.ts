/** Series and causes in plain words. `words.json` is made by `web/make_words.py` from what Sonde's reports say. */

import words from "./words.json";

export interface Meaning {
  title: string;
  unit: string;
  explained: string;
}

const MEANINGS: Record<string, Meaning | undefined> = words.meanings;
const CAUSES: Record<string, string | undefined> = words.causes;

/** What a tag measures; the tag itself where nobody has put it in words. */
export function meaning(tag: string): Meaning {
  const { path, where } = splitTag(tag);
  const known = MEANINGS[path];
  if (!known) return { title: tag, unit: "", explained: "" };
  return where ? { ...known, title: `${known.title} of ${where}` } : known;
}

/** A sentence on a cause; "" where there is none. */
export const causeMeaning = (cause: string): string => CAUSES[cause] ?? "";

/** The words of a cause or a rule's name: "lr-too-high" is told as "learning rate too high". */
export function causeTitle(cause: string | null): string {
  if (cause === null) return "Cause not known";
  const spoken = cause
    .replace(/-/g, " ")
    .replace(/\blr\b/g, "learning rate")
    .replace(/\bbatchnorm\b/g, "BatchNorm");
  return spoken.charAt(0).toUpperCase() + spoken.slice(1);
}

/** A clause as a sentence. */
export const sentence = (clause: string): string =>
  clause.charAt(0).toUpperCase() + clause.slice(1) + (/[.!?…]$/.test(clause) ? "" : ".");

/** The path of a tag and the layer that it belongs to: "grad/norm@head.weight". */
export function splitTag(tag: string): { path: string; where: string } {
  const at = tag.indexOf("@");
  return at < 0 ? { path: tag, where: "" } : { path: tag.slice(0, at), where: tag.slice(at + 1) };
}
