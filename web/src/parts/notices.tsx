/** What stands where there is nothing to show, and why. */

import type { ComponentChildren, JSX } from "preact";
import type { Refusal } from "../api/requests";
import { Words } from "../markdown/markdown";

/** Something that takes long enough for people to wonder. */
export function Progress({ slow, of }: { slow: boolean; of: string }): JSX.Element {
  return (
    <p class="progress">
      {slow && (
        <>
          <i class="spinner" aria-hidden="true" /> Loading {of} …
        </>
      )}
    </p>
  );
}

export function Trouble({ refusal, retry }: { refusal: Refusal; retry?: () => void }): JSX.Element {
  return (
    <div class="notice trouble" role="alert">
      <h2>
        <Words text={refusal.what} />
      </h2>
      <p>
        <Words text={refusal.remedy} />
      </p>
      {retry && <button onClick={retry}>Try again</button>}
    </div>
  );
}

export function Notice({ title, children }: { title: string; children?: ComponentChildren }): JSX.Element {
  return (
    <div class="notice">
      <h2>{title}</h2>
      {children}
    </div>
  );
}
