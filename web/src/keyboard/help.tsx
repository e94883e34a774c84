/** What the keys do. */

import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";

const KEYS: [string, [string, string][]][] = [
  [
    "Everywhere",
    [
      ["?", "this list"],
      ["t", "dark or light"],
      ["u", "up, to the run or to all runs"],
    ],
  ],
  [
    "Runs",
    [
      ["j k", "next, previous run"],
      ["Enter", "open it"],
      ["x", "select it"],
      ["c", "compare what is selected"],
      ["e", "tags and note"],
      ["/", "filter"],
    ],
  ],
  [
    "A run",
    [
      ["j k", "next, previous finding"],
      ["Enter", "open it"],
      ["l", "follow live, or hold still"],
    ],
  ],
  [
    "Charts",
    [
      ["+ -", "zoom in, out"],
      ["← →", "earlier, later"],
      ["0", "all of the run"],
      ["drag", "zoom to a part"],
      ["double-click", "all of the run"],
    ],
  ],
  [
    "Layers",
    [
      ["j k", "next, previous layer"],
      [", .", "earlier, later step"],
    ],
  ],
];

export function KeyHelp({ onClose }: { onClose: () => void }): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog
      ref={dialog}
      class="help"
      onClose={onClose}
      onClick={(event) => event.target === dialog.current && onClose()}
    >
      <header>
        <h2>Keys</h2>
        <button class="plain" onClick={onClose} aria-label="Close">
          ×
        </button>
      </header>
      <div class="columns">
        {KEYS.map(([place, keys]) => (
          <section key={place}>
            <h3>{place}</h3>
            <dl>
              {keys.map(([key, does]) => (
                <div key={key}>
                  <dt>
                    {key.split(" ").map((one) => (
                      <kbd key={one}>{one}</kbd>
                    ))}
                  </dt>
                  <dd>{does}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
      <p>
        Filters know words, <code>state:died</code>, <code>lr&gt;0.001</code>, <code>verdict=critical</code>,{" "}
        <code>tag:baseline</code>, and <code>-</code> before any of them for the opposite.
      </p>
    </dialog>
  );
}
