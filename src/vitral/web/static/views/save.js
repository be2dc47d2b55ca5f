// What is seen now as a file: a picture, a drawing, or a clip through the depth or the training; each says what it shows.

import { byId, toast } from "../core/dom.js";
import { display, state, update } from "../core/state.js";
import { colourOf } from "../draw/colour.js";
import { blockFor, methodFor } from "./explain.js";

const EVERY = 450; // milliseconds a frame of a clip stays

function fileName(text, ending) {
  return `vitral-${text.toLowerCase().replace(/[^a-z0-9]+/g, "-").slice(0, 60).replace(/-+$/, "")}.${ending}`;
}

function offer(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  toast(`saved ${name}`);
}

/** A canvas with two lines under it, on paper of its own or on the one given. */
function sheetOf(canvas, first, second, sheet = document.createElement("canvas")) {
  const side = sheet.width > 640 ? sheet.width : Math.max(canvas.width, 640);
  const height = Math.round((side * canvas.height) / canvas.width);
  const foot = Math.round(side / 11);
  if (sheet.width !== side || sheet.height !== height + foot) Object.assign(sheet, { width: side, height: height + foot });
  const context = sheet.getContext("2d");
  context.fillStyle = "#fff";
  context.fillRect(0, 0, side, height + foot);
  context.imageSmoothingEnabled = canvas.width >= side / 2;
  context.drawImage(canvas, 0, 0, side, height);
  context.fillStyle = "#222";
  const size = Math.round(side / 42);
  context.font = `${size}px system-ui, sans-serif`;
  context.fillText(first, size, height + foot * 0.42, side - 2 * size);
  context.fillStyle = "#666";
  context.fillText(second, size, height + foot * 0.82, side - 2 * size);
  return sheet;
}

function originOf(view, app) {
  return `${view.model.name} · ${app.pictureName()} · Vitral`;
}

export function savePicture(view, app) {
  if (!view.trace) return;
  view.drawNow();
  const text = view.reading.textContent;
  sheetOf(view.canvas, text, originOf(view, app)).toBlob((blob) => offer(blob, fileName(text, "png")), "image/png");
}

/** A drawing: the picture inside, every patch of the map a square of its own, its words as words. */
export function saveDrawing(view, app) {
  if (!view.trace) return;
  view.drawNow();
  const { trace } = view;
  const { scene, limits } = view.shown;
  const text = view.reading.textContent;
  const width = 640;
  const height = Math.round((width * trace.image.height) / trace.image.width);
  const paper = document.createElement("canvas");
  Object.assign(paper, { width: trace.image.width, height: trace.image.height });
  paper.getContext("2d").drawImage(trace.image, 0, 0);
  const photo = paper.toDataURL(trace.image.width > 64 ? "image/jpeg" : "image/png", 0.9);
  const squares = [];
  if (scene.values && !display.plain) {
    const [rows, columns] = scene.mapGrid;
    const [across, down] = [width / columns, height / rows];
    scene.values.forEach((value, patch) => {
      const linear = Math.max(0, Math.min(1, (value - limits[0]) / (limits[1] - limits[0])));
      const share = display.lift && !scene.signed && scene.method !== "similarity" ? Math.sqrt(linear) : linear;
      const see = display.opacity * (scene.signed ? Math.min(1, 0.15 + Math.abs(share - 0.5) * 3) : 0.72 + 0.28 * share);
      const place = `x="${((patch % columns) * across).toFixed(2)}" y="${(Math.floor(patch / columns) * down).toFixed(2)}"`;
      squares.push(`<rect ${place} width="${across.toFixed(2)}" height="${down.toFixed(2)}" fill="${colourOf(share, scene.signed)}" fill-opacity="${see.toFixed(3)}"><title>${escapeText(String(Number(value.toPrecision(3))))}</title></rect>`);
    });
  }
  const stops = Array.from({ length: 17 }, (_, step) => `<stop offset="${step / 16}" stop-color="${colourOf(display.lift && !scene.signed ? Math.sqrt(step / 16) : step / 16, scene.signed)}"/>`);
  const lines = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height + 84}" font-family="system-ui, sans-serif">`,
    `<title>${escapeText(text)}</title>`,
    `<defs><linearGradient id="ramp">${stops.join("")}</linearGradient></defs>`,
    `<rect width="100%" height="100%" fill="#fff"/>`,
    `<image href='${photo}' width="${width}" height="${height}" preserveAspectRatio="none"/>`,
    `<g shape-rendering="crispEdges">${squares.join("")}</g>`,
    scene.values ? `<rect x="70" y="${height + 12}" width="${width - 140}" height="8" rx="4" fill="url(#ramp)"/>` : "",
    `<text x="14" y="${height + 21}" font-size="13" fill="#444">${escapeText(view.ramp.ends[0].textContent)}</text>`,
    `<text x="${width - 14}" y="${height + 21}" font-size="13" fill="#444" text-anchor="end">${escapeText(view.ramp.ends[1].textContent)}</text>`,
    `<text x="14" y="${height + 47}" font-size="15" fill="#222">${escapeText(text)}</text>`,
    `<text x="14" y="${height + 70}" font-size="13" fill="#666">${escapeText(originOf(view, app))}</text>`,
    "</svg>",
  ];
  offer(new Blob([lines.filter(Boolean).join("\n")], { type: "image/svg+xml" }), fileName(text, "svg"));
}

function escapeText(text) {
  return text.replace(/[&<>"]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[sign]);
}

/** The frames of a clip: of the view, where it has some; else the picture through the blocks. */
function framesOf(view, app) {
  const own = app.panels[state.view].frames?.();
  if (own) return own;
  const { model } = view;
  if (!model.attention) return null;
  const through = ["attention", "similarity"].includes(methodFor(model));
  if (!through) update({ method: "attention" });
  return { count: model.depth, canvas: view.canvas, here: blockFor(model), show: (block) => (update({ block }), view.drawNow()), text: () => view.reading.textContent };
}

/** A few seconds of video, recorded in the browser as it plays: nothing leaves this computer. */
export async function saveClip(view, app) {
  const kind = ["video/webm;codecs=vp9", "video/webm;codecs=vp8", "video/webm", "video/mp4"].find((each) => window.MediaRecorder?.isTypeSupported(each));
  const frames = view.trace ? framesOf(view, app) : null;
  if (!kind || !frames) return toast(kind ? "a clip runs through blocks, and this model has none" : "this browser cannot record a clip");
  const button = byId("save-clip");
  button.disabled = true;
  toast(`recording ${frames.count} frames …`);
  const sheet = document.createElement("canvas");
  const paint = (index) => {
    frames.show(index);
    sheetOf(frames.canvas, frames.text(), originOf(view, app), sheet);
  };
  paint(0);
  const stream = sheet.captureStream(20);
  const recorder = new MediaRecorder(stream, { mimeType: kind, videoBitsPerSecond: 4e6 });
  const parts = [];
  recorder.addEventListener("dataavailable", (event) => parts.push(event.data));
  const done = new Promise((resolve) => recorder.addEventListener("stop", resolve));
  recorder.start();
  for (let index = 0; index < frames.count; index++) {
    paint(index);
    // Drawn again and again: a still canvas gives a recorder nothing to record.
    for (let part = 0; part < 3; part++) {
      await new Promise((resolve) => setTimeout(resolve, EVERY / 3));
      paint(index);
    }
  }
  recorder.stop();
  await done;
  stream.getTracks().forEach((track) => track.stop());
  frames.show(frames.here);
  button.disabled = false;
  offer(new Blob(parts, { type: kind.split(";")[0] }), fileName(`clip ${app.pictureName()} ${view.model.name}`, kind.includes("mp4") ? "mp4" : "webm"));
}
