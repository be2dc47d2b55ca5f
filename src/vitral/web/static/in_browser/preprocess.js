// From a picture's file to the numbers that the model takes, as vitral.data.images.preprocess makes them: bit for bit what Pillow's resizing gives.

const PRECISION = 22; // bits after the point of Pillow's weights for eight-bit pixels
const LARGEST_RESIZED = 32_000_000;

const FILTERS = {
  box: [0.5, (x) => (x > -0.5 && x <= 0.5 ? 1 : 0)],
  bilinear: [1, (x) => Math.max(0, 1 - Math.abs(x))],
  bicubic: [2, (x) => cubic(Math.abs(x))],
  lanczos: [3, (x) => (x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0)],
};

function cubic(x) {
  const a = -0.5;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

function sinc(x) {
  return x === 0 ? 1 : Math.sin(x * Math.PI) / (x * Math.PI);
}

/** As Python rounds: halves to the even neighbour. */
export function roundHalfEven(value) {
  const low = Math.floor(value);
  return value - low === 0.5 ? low + (low % 2) : Math.round(value);
}

/** The pixels of a picture's file, upright, laid over white, colours as they are in the file. */
export async function decode(blob) {
  const bitmap = await createImageBitmap(blob, { imageOrientation: "from-image", premultiplyAlpha: "default", colorSpaceConversion: "none" });
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: bitmap.width, height: bitmap.height });
  const context = canvas.getContext("2d", { willReadFrequently: true, alpha: false });
  context.fillStyle = "#fff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(bitmap, 0, 0);
  return { bitmap, width: bitmap.width, height: bitmap.height, data: context.getImageData(0, 0, canvas.width, canvas.height).data };
}

/** How a picture of this size is resized and where it is cut: the middle of what just covers the model's size / crop. */
function resizing({ image_size: [height, width], crop, resize }, across, down) {
  if (resize === "squash") return { width, height, left: 0, top: 0 };
  let tall = Math.floor(height / crop + 1e-9);
  let wide = Math.floor(width / crop + 1e-9);
  if (tall * across >= wide * down) wide = Math.max(wide, Math.floor((tall * across) / down));
  else tall = Math.max(tall, Math.floor((wide * down) / across));
  return { width: wide, height: tall, left: roundHalfEven((wide - width) / 2), top: roundHalfEven((tall - height) / 2) };
}

/** The part of a picture that the model sees, in the picture's pixels: [left, top, right, bottom]. */
export function seenBox(wants, across, down) {
  const { width, height, left, top } = resizing(wants, across, down);
  const [tall, wide] = wants.image_size;
  return [(left * across) / width, (top * down) / height, ((left + wide) * across) / width, ((top + tall) * down) / height];
}

/** A decoded picture as (channels, height, width) numbers, mean and std applied. */
export function preprocess(wants, picture) {
  const pixels = seenPixels(wants, picture);
  const [height, width] = wants.image_size;
  const out = new Float32Array(pixels.length);
  for (let channel = 0; channel < wants.channels; channel++) {
    const mean = Math.fround(wants.mean[channel]);
    const std = Math.fround(wants.std[channel]);
    const values = Float32Array.from({ length: 256 }, (_, pixel) => Math.fround(Math.fround(pixel / 255) - mean) / std);
    const start = channel * height * width;
    for (let index = 0; index < height * width; index++) out[start + index] = values[pixels[start + index]];
  }
  return out;
}

/** (channels, height, width) bytes as the model will see them. */
function seenPixels(wants, picture) {
  const [height, width] = wants.image_size;
  const planes = wants.channels === 1 ? [luma(picture)] : [0, 1, 2].map((channel) => ({ data: picture.data, step: 4, first: channel }));
  let plan = resizing(wants, picture.width, picture.height);
  let box = [0, 0, picture.width, picture.height];
  if (plan.width * plan.height > LARGEST_RESIZED) {
    box = seenBox(wants, picture.width, picture.height).map(Math.fround);
    plan = { width, height, left: 0, top: 0 };
  }
  const across = weightsOf(wants.interpolation, picture.width, box[0], box[2], plan.width, plan.left, width);
  const down = weightsOf(wants.interpolation, picture.height, box[1], box[3], plan.height, plan.top, height);
  const out = new Uint8ClampedArray(planes.length * height * width);
  planes.forEach((plane, channel) => resizePlane(plane, picture.width, across, down, out.subarray(channel * height * width, (channel + 1) * height * width)));
  return out;
}

/** Grey by ITU-R 601, with Pillow's whole numbers. */
function luma({ data }) {
  const grey = new Uint8Array(data.length / 4);
  for (let index = 0; index < grey.length; index++) {
    grey[index] = (data[index * 4] * 19595 + data[index * 4 + 1] * 38470 + data[index * 4 + 2] * 7471 + 0x8000) >> 16;
  }
  return { data: grey, step: 1, first: 0 };
}

/** For each of `count` outputs from `first` on: where its input begins, and the weights of what it reads. */
function weightsOf(filter, size, begin, end, resized, first, count) {
  const scale = Math.fround(end - begin) / resized;
  if (filter === "nearest") {
    const places = [];
    for (let index = 0, at = begin + scale * 0.5; index < first + count; index++, at += scale) places.push(Math.min(Math.floor(at), size - 1));
    return places.slice(first).map((from) => ({ from, weights: null }));
  }
  if (resized === size && begin === 0 && end === size) return Array.from({ length: count }, (_, index) => ({ from: first + index, weights: null }));
  const [reach, value] = FILTERS[filter];
  const stretch = Math.max(scale, 1);
  const support = reach * stretch;
  return Array.from({ length: count }, (_, index) => {
    const centre = begin + (first + index + 0.5) * scale;
    const from = Math.max(0, Math.trunc(centre - support + 0.5));
    const to = Math.min(size, Math.trunc(centre + support + 0.5));
    const inverse = 1 / stretch;
    const weights = Array.from({ length: to - from }, (_, place) => value((place + from - centre + 0.5) * inverse));
    const sum = weights.reduce((total, weight) => total + weight, 0);
    const whole = weights.map((weight) => {
      const share = (sum === 0 ? weight : weight / sum) * 2 ** PRECISION;
      return Math.trunc(share < 0 ? share - 0.5 : share + 0.5);
    });
    return { from, weights: Int32Array.from(whole) };
  });
}

/** Along rows, then along columns, each to whole bytes, as Pillow does it. */
function resizePlane({ data, step, first }, stride, across, down, out) {
  const half = 1 << (PRECISION - 1);
  const top = Math.min(...down.map(({ from }) => from));
  const bottom = Math.max(...down.map(({ from, weights }) => from + (weights?.length ?? 1)));
  const width = across.length;
  const middle = new Uint8ClampedArray((bottom - top) * width);
  for (let row = top; row < bottom; row++) {
    for (let column = 0; column < width; column++) {
      const { from, weights } = across[column];
      let at = (row * stride + from) * step + first;
      let sum = half;
      if (weights) for (let index = 0; index < weights.length; index++, at += step) sum += data[at] * weights[index];
      middle[(row - top) * width + column] = weights ? sum >> PRECISION : data[at];
    }
  }
  down.forEach(({ from, weights }, row) => {
    for (let column = 0; column < width; column++) {
      let at = (from - top) * width + column;
      let sum = half;
      if (weights) for (let index = 0; index < weights.length; index++, at += width) sum += middle[at] * weights[index];
      out[row * width + column] = weights ? sum >> PRECISION : middle[at];
    }
  });
}
