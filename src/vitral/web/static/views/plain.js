// The plain picture: a button, and a key for as long as it is held. And how places are called.

import { byId } from "../core/dom.js";
import { sayExactly, words } from "../core/places.js";
import { movePointer, pointer } from "../core/pointer.js";
import { display } from "../core/state.js";

export function bindPlain(app) {
  const button = byId("plain");
  const card = document.querySelector(".picture-card");
  const show = (plain) => {
    if (display.plain === plain) return;
    display.plain = plain;
    button.setAttribute("aria-pressed", String(plain));
    app.redraw();
    movePointer(pointer.at);
  };
  button.addEventListener("click", () => show(!display.plain));
  // The key works where the picture is: under the pointer or under the focus. Elsewhere a letter is a letter.
  const meant = (event) =>
    event.key.toLowerCase() === "p" && !event.ctrlKey && !event.metaKey && !event.altKey && !event.target.closest?.("input:not([type=range]), select, textarea") && (card.matches(":hover") || card.contains(document.activeElement));
  document.addEventListener("keydown", (event) => meant(event) && !event.repeat && show(true));
  document.addEventListener("keyup", (event) => event.key.toLowerCase() === "p" && show(false));
  const exact = byId("exact");
  exact.checked = words.exact;
  exact.addEventListener("change", () => {
    sayExactly(exact.checked);
    app.refresh();
  });
}
