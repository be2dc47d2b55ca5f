// The picture as a file: what is seen now, with a line that says what it is.

import { toast } from "./dom.js";

export function savePicture(view, app) {
  const { canvas } = view;
  if (!view.trace) return;
  view.drawNow();
  const side = Math.max(canvas.width, 640);
  const height = Math.round((side * canvas.height) / canvas.width);
  const foot = Math.round(side / 11);
  const sheet = document.createElement("canvas");
  Object.assign(sheet, { width: side, height: height + foot });
  const context = sheet.getContext("2d");
  context.fillStyle = "#fff";
  context.fillRect(0, 0, side, height + foot);
  context.imageSmoothingEnabled = canvas.width >= side / 2;
  context.drawImage(canvas, 0, 0, side, height);
  context.fillStyle = "#222";
  const size = Math.round(side / 42);
  context.font = `${size}px system-ui, sans-serif`;
  context.fillText(view.reading.textContent, size, height + foot * 0.42, side - 2 * size);
  context.fillStyle = "#666";
  context.fillText(`${view.model.name} · ${app.pictureName()} · Vitral`, size, height + foot * 0.82, side - 2 * size);
  sheet.toBlob((blob) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `vitral-${view.reading.textContent.toLowerCase().replace(/[^a-z0-9]+/g, "-").slice(0, 60).replace(/-+$/, "")}.png`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    toast(`saved ${link.download}`);
  }, "image/png");
}

