// Light, dark, or as the system wishes.

import { byId } from "./dom.js";

const THEMES = { system: "As the system", light: "Light", dark: "Dark" };

function remembered() {
  try {
    return localStorage.getItem("vitral-theme") ?? "system";
  } catch {
    return "system"; // a page from a file may have no storage
  }
}

export function applyTheme(theme = remembered()) {
  const known = theme in THEMES ? theme : "system";
  if (known === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = known;
  byId("theme").setAttribute("aria-label", `Colours: ${THEMES[known]}. Change`);
  byId("theme").title = `Colours: ${THEMES[known]}`;
  byId("theme").dataset.theme = known;
}

export function nextTheme() {
  const names = Object.keys(THEMES);
  const theme = names[(names.indexOf(byId("theme").dataset.theme) + 1) % names.length];
  try {
    localStorage.setItem("vitral-theme", theme);
  } catch {
    // it lasts for this visit only
  }
  applyTheme(theme);
}
