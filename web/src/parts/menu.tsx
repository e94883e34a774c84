/** A small menu behind three dots. */

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";

export function Menu({ label, children }: { label: string; children: ComponentChildren }): JSX.Element {
  const place = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const close = (event: Event): void => {
      if (
        event instanceof KeyboardEvent
          ? event.key === "Escape"
          : !place.current?.querySelector("summary")?.contains(event.target as Node)
      )
        place.current?.removeAttribute("open");
    };
    addEventListener("click", close);
    addEventListener("keydown", close);
    return () => {
      removeEventListener("click", close);
      removeEventListener("keydown", close);
    };
  }, []);
  return (
    <details class="menu" ref={place}>
      <summary aria-label={label} title={label}>
        ⋯
      </summary>
      <div class="items">{children}</div>
    </details>
  );
}
