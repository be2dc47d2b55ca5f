// Colours of numbers. The same maps as in the library's figures: inferno where more is more, blue–white–red where the sign matters.
// Both keep their order for colour-blind eyes and in grey print.

const INFERNO =
  "000004 0b0724 210c4a 3d0965 57106e 71196e 8a226a a32c61 bc3754 d24644 e45a31 f1731d f98e09 fcac11 f9cb35 f2ea69 fcffa4";
const BLUE_RED = "053061 2065ab 4393c3 90c4dd d1e5f0 f7f6f6 fddbc7 f3a481 d6604d b1182b 67001f";

/** 256 colours between the given ones, as one flat array of red, green, blue. */
function ramp(text) {
  const stops = text.split(" ").map((hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  const table = new Uint8ClampedArray(256 * 3);
  for (let index = 0; index < 256; index++) {
    const place = (index / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    for (let part = 0; part < 3; part++) {
      table[index * 3 + part] = stops[low][part] + (place - low) * (stops[low + 1][part] - stops[low][part]);
    }
  }
  return table;
}

const MORE = ramp(INFERNO);
const SIGNED = ramp(BLUE_RED);

/**
 * Smallest and largest value of a map; symmetric around zero where the sign matters.
 * They lie at least `least` apart, so that a map with hardly any differences stays dark instead of being stretched until it glows.
 */
export function limitsOf(values, signed, least = 0) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (!signed) return [low, Math.max(high, low + Math.max(least, 1e-12))];
  const reach = Math.max(Math.abs(low), Math.abs(high), least, 1e-12);
  return [-reach, reach];
}

/** One colour of a map, for a share between 0 and 1. */
export function colourOf(share, signed) {
  const at = Math.round(255 * Math.max(0, Math.min(1, share))) * 3;
  return `rgb(${[...(signed ? SIGNED : MORE).subarray(at, at + 3)].join(" ")})`;
}

/** Paint values into the pixels of an ImageData; `see(share)` gives each pixel's opacity, 0 to 255; `lift` shows the square root. */
export function paintPixels(image, values, signed, limits, see, lift = false) {
  const table = signed ? SIGNED : MORE;
  const [low, high] = limits;
  const scale = 1 / (high - low);
  const pixels = image.data;
  for (let index = 0; index < values.length; index++) {
    const share = Math.max(0, Math.min(1, (values[index] - low) * scale));
    const level = Math.round(255 * (lift ? Math.sqrt(share) : share));
    pixels[index * 4] = table[level * 3];
    pixels[index * 4 + 1] = table[level * 3 + 1];
    pixels[index * 4 + 2] = table[level * 3 + 2];
    pixels[index * 4 + 3] = see ? see(level / 255) : 255;
  }
}

/** A CSS gradient of a map, for legends: linear in the value, so a lifted map brightens early. */
export function gradient(signed, lift = false) {
  const table = signed ? SIGNED : MORE;
  const stops = [];
  for (let step = 0; step <= 32; step++) {
    const at = Math.round(255 * (lift && !signed ? Math.sqrt(step / 32) : step / 32)) * 3;
    stops.push(`rgb(${table[at]} ${table[at + 1]} ${table[at + 2]})`);
  }
  return `linear-gradient(90deg, ${stops.join(", ")})`;
}
