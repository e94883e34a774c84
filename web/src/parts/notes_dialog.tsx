/** Tags and the note of a run. */

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { addNote, Refusal } from "../api/requests";
import type { Note, RunLine } from "../api/types";

interface NotesDialogProps {
  run: Pick<RunLine, "id" | "name" | "tags" | "note">;
  onClose: () => void;
  onChange: () => void;
}

export function NotesDialog({ run, onClose, onChange }: NotesDialogProps): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  const [tags, setTags] = useState(run.tags);
  const [note, setNote] = useState(run.note);
  const [problem, setProblem] = useState("");
  useEffect(() => dialog.current?.showModal(), []);

  const write = async (notes: Note[]): Promise<boolean> => {
    try {
      for (const one of notes) await addNote(run.id, one);
      if (notes.length) onChange();
      return true;
    } catch (error) {
      setProblem(error instanceof Refusal ? `${error.what} ${error.remedy}` : String(error));
      return false;
    }
  };
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const added = String(form.get("tag"))
      .split(/[\s,]+/)
      .filter((tag) => tag && !tags.includes(tag));
    const notes: Note[] = [
      ...[...tags, ...added].filter((tag) => !run.tags.includes(tag)).map((text) => ({ kind: "tag" as const, text })),
      ...run.tags.filter((tag) => !tags.includes(tag)).map((text) => ({ kind: "untag" as const, text })),
      ...(note === run.note ? [] : [{ kind: "note" as const, text: note }]),
    ];
    if (await write(notes)) onClose();
  };
  return (
    <dialog ref={dialog} class="notes" onClose={onClose}>
      <form onSubmit={submit}>
        <h2>{run.name}</h2>
        <div class="chips">
          {tags.map((tag) => (
            <button
              key={tag}
              type="button"
              class="tag"
              title="Take it away"
              onClick={() => setTags(tags.filter((other) => other !== tag))}
            >
              {tag} ×
            </button>
          ))}
        </div>
        <label>
          Tags
          <input name="tag" placeholder="baseline, to-keep" autocomplete="off" />
        </label>
        <label>
          Note
          <textarea rows={4} value={note} onInput={(event) => setNote(event.currentTarget.value)} />
        </label>
        {problem && (
          <p class="trouble" role="alert">
            {problem}
          </p>
        )}
        <p class="remark">
          Kept beside the run, in <code>notes.jsonl</code>.
        </p>
        <footer>
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="main">
            Save
          </button>
        </footer>
      </form>
    </dialog>
  );
}
