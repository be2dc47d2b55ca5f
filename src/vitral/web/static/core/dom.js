// Small helpers around the document.

/** An element with properties and children; `on…` are listeners, `aria…` and `data…` become attributes. */
export function element(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (name in node && !name.includes("-")) node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function byId(id) {
  return document.getElementById(id);
}

/** Say something to those who hear the page; polite, and only the newest. */
export function announce(text) {
  byId("announcer").textContent = text;
}

/** A line at the foot of the page that goes away by itself. */
let toastTimer = 0;
export function toast(text, hint = "") {
  const line = byId("toast");
  line.textContent = hint ? `${text}: ${hint}` : text;
  line.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => (line.hidden = true), 7000);
}

/** The same everywhere: 96.4 %. */
export function percent(share, digits = 1) {
  return share > 0 && share < 0.001 && digits ? "<\u00a00.1\u00a0%" : `${(share * 100).toFixed(digits)}\u00a0%`;
}

/** Run `work` at most once a frame, with the newest arguments. */
export function framed(work) {
  let waiting = null;
  return (...given) => {
    if (waiting === null) requestAnimationFrame(() => {
      const latest = waiting;
      waiting = null;
      work(...latest);
    });
    waiting = given;
  };
}

/** Arrow keys move focus among the buttons of a group, so that Tab leaves it in one step. */
export function rovingStep(key, index, count, columns) {
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[key];
  if (key === "Home") return 0;
  if (key === "End") return count - 1;
  if (step === undefined) return -1;
  const next = index + step;
  return next >= 0 && next < count ? next : index;
}
