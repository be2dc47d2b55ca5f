// A picture on a canvas with a map over it.

import { display } from "../core/state.js";
import { limitsOf, paintPixels } from "./colour.js";

const scratch = document.createElement("canvas");

/** A grid of values as a tiny canvas, one pixel a cell. */
export function tile(values, [rows, columns], { signed = false, limits = null, see = null, lift = false, canvas = scratch } = {}) {
  if (canvas.width !== columns || canvas.height !== rows) Object.assign(canvas, { width: columns, height: rows });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const image = context.createImageData(columns, rows);
  paintPixels(image, values, signed, limits ?? limitsOf(values, signed), see, lift && !signed);
  context.putImageData(image, 0, 0);
  return canvas;
}

/** Give a canvas as many pixels as the screen shows of it; says whether anything changed. */
export function fit(canvas, ratio) {
  const scale = Math.min(window.devicePixelRatio || 1, 2);
  const width = Math.max(1, Math.round(canvas.clientWidth * scale));
  const height = Math.max(1, Math.round(width * ratio));
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  return scale;
}

/** A picture with a map over it, in the canvas' own size and as the reader wishes to see maps. */
export function drawMap(canvas, scene) {
  fit(canvas, scene.image.height / scene.image.width);
  const { plain, ...how } = display;
  drawScene(canvas, { signed: false, ...how, lines: !plain, ...scene, values: plain && !scene.always ? null : scene.values });
}

/**
 * Draw everything the picture view shows.
 * scene: image, grid, values, signed, limits, opacity, smooth, lift, lines, query (patch), match (patch), off (set of patches);
 * always: shown over a plain picture too; sinks (patches), mapGrid: of the values, queryGrid: of query and match, where they differ from the picture's grid
 */
function drawScene(canvas, scene) {
  const context = canvas.getContext("2d");
  const { width, height } = canvas;
  context.globalAlpha = 1;
  context.imageSmoothingEnabled = scene.image.width > 64;
  context.imageSmoothingQuality = "high";
  context.clearRect(0, 0, width, height);
  context.drawImage(scene.image, 0, 0, width, height);
  if (scene.values) {
    const strength = 255 * scene.opacity;
    // A faint value dims the picture, a strong one colours it; where the sign matters, zero stays clear.
    const see = scene.signed ? (share) => strength * Math.min(1, 0.15 + Math.abs(share - 0.5) * 3) : (share) => strength * (0.72 + 0.28 * share);
    const heat = tile(scene.values, scene.mapGrid ?? scene.grid, { signed: scene.signed, limits: scene.limits, see, lift: scene.lift });
    context.imageSmoothingEnabled = scene.smooth;
    context.drawImage(heat, 0, 0, width, height);
  }
  if (scene.lines) drawLines(context, scene.grid, width, height);
  const [rows, columns] = scene.grid;
  const across = width / columns;
  const down = height / rows;
  for (const patch of scene.off ?? []) {
    context.fillStyle = "#8a8a8a";
    context.fillRect((patch % columns) * across, Math.floor(patch / columns) * down, across, down);
  }
  context.setLineDash([across / 4, across / 6]);
  for (const patch of scene.sinks ?? []) outline(context, (patch % columns) * across, Math.floor(patch / columns) * down, across, down, width, "#ffffff");
  context.setLineDash([]);
  for (const [patch, colour] of [[scene.match, "#ffffff"], [scene.query, "#5ef2ff"]]) {
    if (patch === null || patch === undefined || patch < 0) continue;
    const [high, wide] = scene.queryGrid ?? scene.grid;
    outline(context, ((patch % wide) * width) / wide, (Math.floor(patch / wide) * height) / high, width / wide, height / high, width, colour);
  }
}

function drawLines(context, [rows, columns], width, height) {
  context.strokeStyle = "rgb(255 255 255 / 0.16)";
  context.lineWidth = 1;
  context.beginPath();
  for (let column = 1; column < columns; column++) {
    const x = Math.round((column * width) / columns) + 0.5;
    context.moveTo(x, 0);
    context.lineTo(x, height);
  }
  for (let row = 1; row < rows; row++) {
    const y = Math.round((row * height) / rows) + 0.5;
    context.moveTo(0, y);
    context.lineTo(width, y);
  }
  context.stroke();
}

/** A frame that can be seen on any picture. */
export function outline(context, x, y, across, down, width, colour = "#5ef2ff") {
  const line = Math.max(2, width / 200);
  context.lineWidth = line * 2;
  context.strokeStyle = "rgb(0 0 0 / 0.75)";
  context.strokeRect(x, y, across, down);
  context.lineWidth = line;
  context.strokeStyle = colour;
  context.strokeRect(x, y, across, down);
}

/** The similarity of all positions (N, N) in eight bits, one small square per position. */
export function drawPositions(canvas, values, [rows, columns]) {
  const count = rows * columns;
  const [width, height] = [columns * (columns + 1) - 1, rows * (rows + 1) - 1];
  const sheet = new Float32Array(width * height).fill(NaN);
  for (let from = 0; from < count; from++) {
    const [top, left] = [Math.floor(from / columns) * (rows + 1), (from % columns) * (columns + 1)];
    for (let to = 0; to < count; to++) sheet[(top + Math.floor(to / columns)) * width + left + (to % columns)] = values[from * count + to] / 127;
  }
  drawSheet(canvas, sheet, [height, width], { limits: [-0.4, 1] });
}

/** Small maps on one sheet; NaN between them is paper, not a value. */
export function drawSheet(canvas, sheet, grid, options) {
  tile(sheet, grid, { ...options, canvas });
  const context = canvas.getContext("2d");
  const image = context.getImageData(0, 0, canvas.width, canvas.height);
  sheet.forEach((value, index) => (Number.isNaN(value) ? (image.data[index * 4 + 3] = 0) : 0));
  context.putImageData(image, 0, 0);
}
