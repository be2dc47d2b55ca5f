// Where the pointer is on the picture, in shares of its width and height: linked views follow it.

const followers = [];
export const pointer = { at: null };

export function followPointer(follower) {
  followers.push(follower);
}

export function movePointer(at) {
  pointer.at = at;
  for (const follower of followers) follower();
}

/** Where an event is on an element, in shares of its width and height. */
export function pointIn(event, element = event.currentTarget) {
  const box = element.getBoundingClientRect();
  return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
}

/** All views follow the pointer over this element. */
export function trackPointer(element) {
  element.addEventListener("pointermove", (event) => movePointer(pointIn(event)));
  element.addEventListener("pointerleave", () => movePointer(null));
}

/** The cell of a grid under a point, row by row; null outside. */
export function cellAt(at, [rows, columns]) {
  if (!at || at[0] < 0 || at[0] >= 1 || at[1] < 0 || at[1] >= 1) return null;
  return Math.floor(at[1] * rows) * columns + Math.floor(at[0] * columns);
}
