// Where a patch lies: in plain words first, by row and column for who asks.

const KEPT = "vitral-words";

export const words = { exact: remembers() };

function remembers() {
  try {
    return localStorage.getItem(KEPT) === "exact";
  } catch {
    return false; // a page in a frame may have no storage
  }
}

export function sayExactly(exact) {
  words.exact = exact;
  try {
    localStorage.setItem(KEPT, exact ? "exact" : "plain");
  } catch {
    // it lasts for this visit only
  }
}

/** "the top-left corner", "the upper right", "the left part", "the middle". */
export function plainPlace(patch, [rows, columns]) {
  const down = (Math.floor(patch / columns) + 0.5) / rows;
  const across = ((patch % columns) + 0.5) / columns;
  const third = (share) => Math.min(2, Math.floor(share * 3));
  const horizontal = ["left", "", "right"][third(across)];
  const vertical = ["upper", "", "lower"][third(down)];
  if (!vertical || !horizontal) return vertical || horizontal ? `the ${vertical || horizontal} part` : "the middle";
  const corner = Math.min(down, 1 - down) < 1 / 6 && Math.min(across, 1 - across) < 1 / 6;
  return corner ? `the ${vertical === "upper" ? "top" : "bottom"}-${horizontal} corner` : `the ${vertical} ${horizontal}`;
}

export function exactPlace(patch, [, columns]) {
  return `row ${Math.floor(patch / columns)}, column ${patch % columns}`;
}

/** As the reader wishes. */
export function placeOf(patch, grid) {
  return words.exact ? exactPlace(patch, grid) : plainPlace(patch, grid);
}
