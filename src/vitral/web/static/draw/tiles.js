// What the story draws: a picture in pieces, and numbers as rows of coloured squares.

import { colourOf } from "./colour.js";
import { fit, outline } from "./heat.js";

/**
 * The picture cut into its patches, each drawn where `place(patch)` says: [row, column], whole numbers or between.
 * gap: the share of a patch's side that is left free; show(patch): how visible it is; reach: how much larger than its cell a patch is.
 */
export function drawTiles(canvas, image, grid, { place = null, gap = 0, show = null, reach = [1, 1], chosen = null } = {}) {
  fit(canvas, image.height / image.width);
  const context = canvas.getContext("2d");
  const [rows, columns] = grid;
  const [across, down] = [canvas.width / columns, canvas.height / rows];
  const [wide, high] = [image.width / columns, image.height / rows];
  context.globalAlpha = 1;
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.imageSmoothingEnabled = image.width > 64;
  const draw = (patch) => {
    const [row, column] = place ? place(patch) : [Math.floor(patch / columns), patch % columns];
    const [top, left] = [Math.floor(patch / columns), patch % columns];
    context.globalAlpha = show ? show(patch) : 1;
    const [x, y, width, height] = [(column + gap / 2) * across, (row + gap / 2) * down, across * (1 - gap), down * (1 - gap)];
    const grown = gap > 0 ? reach : [1, 1]; // patches that overlap show all they see once they lie apart
    const [sx, sy] = [(left + 0.5 - grown[1] / 2) * wide, (top + 0.5 - grown[0] / 2) * high];
    context.drawImage(image, sx, sy, wide * grown[1], high * grown[0], x, y, width, height);
    context.globalAlpha = 1;
    context.lineWidth = 1;
    context.strokeStyle = "rgb(128 128 128 / 0.4)"; // a white patch on white paper is still a patch
    if (gap > 0) context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
    if (patch === chosen) outline(context, x, y, width, height, canvas.width);
  };
  for (let patch = 0; patch < rows * columns; patch++) if (patch !== chosen) draw(patch);
  if (chosen !== null) draw(chosen); // on top
}

/** One patch, large. */
export function drawPatch(canvas, image, [rows, columns], patch, reach = [1, 1]) {
  const [wide, high] = [image.width / columns, image.height / rows];
  fit(canvas, (high * reach[0]) / (wide * reach[1]));
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = wide > 24;
  context.clearRect(0, 0, canvas.width, canvas.height);
  const x = ((patch % columns) + 0.5 - reach[1] / 2) * wide;
  const y = (Math.floor(patch / columns) + 0.5 - reach[0] / 2) * high;
  context.drawImage(image, x, y, wide * reach[1], high * reach[0], 0, 0, canvas.width, canvas.height);
}

/** Numbers as squares in reading order, red above zero and blue below; `marked` gets a frame. */
export function drawNumbers(canvas, values, reach, marked = -1) {
  const scale = Math.min(window.devicePixelRatio || 1, 2);
  const space = Math.max(canvas.clientWidth, 1);
  const columns = Math.min(values.length, Math.max(8, Math.floor(space / 9)));
  const lines = Math.ceil(values.length / columns);
  const even = Math.ceil(values.length / lines);
  const side = Math.min(20, space / even);
  canvas.width = Math.round(space * scale);
  canvas.height = Math.round(lines * side * scale);
  canvas.style.aspectRatio = `${canvas.width} / ${canvas.height}`;
  const context = canvas.getContext("2d");
  values.forEach((value, index) => {
    const [x, y] = [(index % even) * side * scale, Math.floor(index / even) * side * scale];
    context.fillStyle = colourOf((1 + value / reach) / 2, true);
    context.fillRect(x, y, Math.max(1, side * scale - 1), Math.max(1, side * scale - 1));
  });
  if (marked < 0) return;
  context.lineWidth = 2 * scale;
  context.strokeStyle = "#000";
  context.strokeRect((marked % even) * side * scale, Math.floor(marked / even) * side * scale, side * scale - 1, side * scale - 1);
}

/** A learned pattern from its bytes (P, P, 3). */
export function drawPattern(canvas, bytes, [rows, columns]) {
  Object.assign(canvas, { width: columns, height: rows });
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  for (let at = 0; at < rows * columns; at++) image.data.set([bytes[at * 3], bytes[at * 3 + 1], bytes[at * 3 + 2], 255], at * 4);
  context.putImageData(image, 0, 0);
}
