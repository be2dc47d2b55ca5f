// Matrix products in one block of memory: in WebAssembly with SIMD (vitral.web.kernel), or the same in plain JavaScript.

const GROUP = 4; // rows of a tile, and steps of the inner dimension in one turn
const PANEL = 8; // columns of a tile

function padded(count, step = PANEL) {
  return Math.ceil(count / step) * step;
}

/** All numbers of an engine: room is taken first, then it is opened; from then on `numbers` is there. */
export class Arena {
  constructor() {
    this.size = 0;
  }

  take(count) {
    const at = this.size;
    this.size += padded(count);
    return at;
  }

  /** Rows of `width` numbers, padded with zeros: the fewest rows and columns that fill whole tiles. */
  sheet(rows, width) {
    const stride = padded(width);
    return { at: this.take(padded(rows, GROUP) * stride), rows, width, stride };
  }

  /** Room for a matrix that is multiplied from the right: (inner, columns) in panels of eight columns. */
  panels(inner, columns) {
    const deep = padded(inner, GROUP);
    return { at: this.take(deep * padded(columns)), bias: this.take(padded(columns)), inner: deep, count: padded(columns) / PANEL };
  }

  async open(kernel) {
    const bytes = Math.max(this.size, PANEL) * 4;
    try {
      const memory = new WebAssembly.Memory({ initial: Math.ceil(bytes / 65536) });
      const { instance } = await WebAssembly.instantiate(kernel, { page: { memory } });
      this.fast = true;
      this.product = instance.exports.product;
      this.numbers = new Float32Array(memory.buffer);
    } catch {
      // No WebAssembly, or none with SIMD, or it was forbidden: slower, but the same numbers.
      this.fast = false;
      this.numbers = new Float32Array(bytes / 4);
      this.product = (...given) => plainProduct(this.numbers, ...given);
    }
  }

  /** out = sheet · panels + bias; `from`: the first column of the sheet that is read. */
  multiply(sheet, panels, out, from = 0) {
    this.product((sheet.at + from) * 4, panels.at * 4, panels.bias * 4, out.at * 4, padded(sheet.rows, GROUP) / GROUP, panels.inner, panels.count, sheet.stride * 4, out.stride * 4);
  }

  /** Fill panels: `value(row, column)` of an (inner, columns) matrix. */
  fill(panels, inner, columns, value) {
    const { numbers } = this;
    for (let column = 0; column < columns; column++) {
      let at = panels.at + Math.floor(column / PANEL) * panels.inner * PANEL + (column % PANEL);
      for (let row = 0; row < inner; row++, at += PANEL) numbers[at] = value(row, column);
    }
  }

  /** One column of panels. */
  column(panels, index) {
    const start = panels.at + Math.floor(index / PANEL) * panels.inner * PANEL + (index % PANEL);
    return Float32Array.from({ length: panels.inner }, (_, row) => this.numbers[start + row * PANEL]);
  }

  /** A row of a sheet, as long as it is wide. */
  row(sheet, index) {
    const start = sheet.at + index * sheet.stride;
    return this.numbers.subarray(start, start + sheet.width);
  }
}

/** What the kernel does; addresses and strides are in bytes there. */
function plainProduct(numbers, a, b, bias, c, groups, inner, panels, strideA, strideC) {
  const tile = new Float32Array(PANEL);
  for (let row = 0; row < groups * GROUP; row++) {
    const from = (a + row * strideA) / 4;
    for (let panel = 0; panel < panels; panel++) {
      const begin = bias / 4 + panel * PANEL;
      for (let column = 0; column < PANEL; column++) tile[column] = numbers[begin + column];
      for (let step = 0, at = b / 4 + panel * inner * PANEL; step < inner; step++, at += PANEL) {
        const factor = numbers[from + step];
        for (let column = 0; column < PANEL; column++) tile[column] += factor * numbers[at + column];
      }
      numbers.set(tile, (c + row * strideC) / 4 + panel * PANEL);
    }
  }
}
