"use strict";

/* The map: points on a canvas that can be moved, zoomed, hovered and picked. It knows nothing of the rest of the page. */
class PointMap {
  /* look() gives {colours, paper, ink}; strong(i) whether point i stands out; hovered(i, place) and picked(i) are told. */
  constructor(canvas, data, { look, strong, hovered, picked }) {
    Object.assign(this, { canvas, data, look, strong, hovered, picked });
    this.context = canvas.getContext("2d");
    this.count = data.x.length;
    this.x = data.x.map((value) => value / data.grid);
    this.y = data.y.map((value) => 1 - value / data.grid);
    this.view = { x: 0.5, y: 0.5, zoom: 1 };
    this.hover = -1;
    this.pictures = false;
    this.labels = this.middles();
    new ResizeObserver(() => this.resize()).observe(canvas);
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.paint();
  }

  /* Pixels for one unit of the map. */
  get scale() {
    this.spanX ??= extent(this.x);
    this.spanY ??= extent(this.y);
    // Wide enough that no point is under the buttons.
    const margin = 46;
    const fit = Math.min((this.width - 2 * margin) / this.spanX, (this.height - 2 * margin) / this.spanY);
    return Math.max(20, Math.min(fit, 4 * Math.max(this.width, this.height))) * this.view.zoom;
  }

  get radius() {
    const usual = this.count <= 300 ? 5 : this.count <= 1500 ? 4 : this.count <= 5000 ? 3.2 : 2.2;
    return usual * Math.min(2, this.view.zoom ** 0.3);
  }

  /* Where a point is on the canvas, in CSS pixels. */
  place(i) {
    const scale = this.scale;
    return [(this.x[i] - this.view.x) * scale + this.width / 2, (this.y[i] - this.view.y) * scale + this.height / 2];
  }

  /* For each cluster its point nearest to the medians: where its number is written. */
  middles() {
    const members = new Map();
    this.data.cluster.forEach((cluster, i) => {
      if (!members.has(cluster)) members.set(cluster, []);
      members.get(cluster).push(i);
    });
    const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];
    return [...members].sort((a, b) => b[1].length - a[1].length).map(([cluster, rows]) => {
      const x = median(rows.map((i) => this.x[i]));
      const y = median(rows.map((i) => this.y[i]));
      const away = (i) => (this.x[i] - x) ** 2 + (this.y[i] - y) ** 2;
      const top = rows.map((i) => this.y[i]).sort((a, b) => a - b)[rows.length >> 4];
      return { cluster, top, point: rows.reduce((best, i) => (away(i) < away(best) ? i : best)) };
    });
  }

  paint() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.draw();
    });
  }

  draw() {
    const { context, width, height } = this;
    const look = this.look();
    context.clearRect(0, 0, width, height);
    const strong = [];
    for (let i = 0; i < this.count; i++) {
      if (this.strong(i)) strong.push(i);
      else this.dot(i, look, 0.13);
    }
    for (const i of strong) this.dot(i, look, 0.88);
    this.numbers(look);
    if (this.hover >= 0) this.ring(this.hover, look);
  }

  dot(i, look, alpha) {
    const { context, radius } = this;
    const [x, y] = this.place(i);
    if (x < -40 || y < -40 || x > this.width + 40 || y > this.height + 40) return;
    context.globalAlpha = alpha;
    const colour = look.colours[this.data.cluster[i]];
    if (this.pictures && this.picture(i, x, y, colour)) return;
    context.beginPath();
    context.arc(x, y, this.data.unsure[i] ? radius - 0.75 : radius, 0, 7);
    if (this.data.unsure[i]) {
      context.lineWidth = 1.5;
      context.strokeStyle = colour;
      context.stroke();
    } else {
      context.fillStyle = colour;
      context.fill();
    }
  }

  /* The row's picture instead of a dot; false until its sheet is there. */
  picture(i, x, y, colour) {
    const sheets = this.data.sheets;
    const { sheet, left, top } = onSheet(sheets, i);
    this.sheets ??= sheets.images.map((source) => {
      const image = new Image();
      image.onload = () => this.paint();
      image.src = source;
      return image;
    });
    const image = this.sheets[sheet];
    if (!image.complete || !image.naturalWidth) return false;
    const size = Math.min(64, 18 * this.view.zoom ** 0.75);
    const fit = size / Math.max(sheets.width, sheets.height);
    const [wide, high] = [sheets.width * fit, sheets.height * fit];
    this.context.fillStyle = colour;
    this.context.fillRect(x - wide / 2 - 2, y - high / 2 - 2, wide + 4, high + 4);
    this.context.drawImage(image, left, top, sheets.width, sheets.height, x - wide / 2, y - high / 2, wide, high);
    return true;
  }

  /* The clusters' numbers, the largest first, as far as there is room. */
  numbers(look) {
    const { context } = this;
    const taken = [];
    context.font = `600 ${this.labels.length > 40 ? 11 : 12}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineJoin = "round";
    context.lineWidth = 4;
    for (const { cluster, point, top } of this.labels) {
      if (!this.strong(point, true)) continue;
      const [x, middle] = this.place(point);
      // Above its point, and above the whole of a small cluster, so as not to cover it.
      const above = (this.y[point] - top) * this.scale;
      const y = middle - (above > 14 ? 0 : above) - this.radius - 8;
      const wide = context.measureText(cluster).width + 10;
      if (taken.some(([a, b]) => Math.abs(a - x) < 20 && Math.abs(b - y) < 16)) continue;
      taken.push([x, y]);
      context.globalAlpha = 0.9;
      context.strokeStyle = look.paper;
      if (this.pictures) {
        // On pictures an outline is not enough.
        context.fillStyle = look.paper;
        context.beginPath();
        context.roundRect(x - wide / 2, y - 9, wide, 17, 8);
        context.fill();
      } else context.strokeText(cluster, x, y);
      context.globalAlpha = 1;
      context.fillStyle = look.ink;
      context.fillText(cluster, x, y);
    }
  }

  ring(i, look) {
    const [x, y] = this.place(i);
    this.context.globalAlpha = 1;
    this.context.lineWidth = 2;
    this.context.strokeStyle = look.ink;
    this.context.beginPath();
    this.context.arc(x, y, this.radius + 3, 0, 7);
    this.context.stroke();
  }

  /* The point nearest to a place, or -1; one that stands out is preferred to one that does not. */
  nearest(x, y, reach) {
    let [best, least] = [-1, reach];
    for (let i = 0; i < this.count; i++) {
      const [a, b] = this.place(i);
      const away = Math.hypot(a - x, b - y) + (this.strong(i) ? 0 : reach / 2);
      if (away < least) [best, least] = [i, away];
    }
    return best;
  }

  point(i) {
    this.hover = i;
    this.hovered(i, i < 0 ? null : this.place(i));
    this.paint();
  }

  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const before = this.scale;
    this.view.zoom = Math.min(60, Math.max(0.5, this.view.zoom * factor));
    const after = this.scale;
    this.view.x += (x - this.width / 2) * (1 / before - 1 / after);
    this.view.y += (y - this.height / 2) * (1 / before - 1 / after);
    this.moved();
  }

  all() {
    this.view = { x: 0.5, y: 0.5, zoom: 1 };
    this.moved();
  }

  moved() {
    // A finger moves the page over a map that shows everything, and the map once it is zoomed.
    this.canvas.style.touchAction = this.view.zoom > 1.05 ? "none" : "pan-y";
    this.point(-1);
  }

  /* From the hovered point to the nearest in a direction; from nowhere to the middle of the largest cluster. */
  step(dx, dy) {
    if (this.hover < 0) return this.point(this.labels[0].point);
    let [best, least] = [this.hover, Infinity];
    for (let i = 0; i < this.count; i++) {
      const [x, y] = [this.x[i] - this.x[this.hover], this.y[i] - this.y[this.hover]];
      const ahead = x * dx + y * dy;
      const aside = Math.abs(x * dy - y * dx);
      if (ahead > 0 && aside <= ahead && ahead + 2 * aside < least) [best, least] = [i, ahead + 2 * aside];
    }
    const [x, y] = this.place(best);
    if (x < 0 || y < 0 || x > this.width || y > this.height) Object.assign(this.view, { x: this.x[best], y: this.y[best] });
    this.point(best);
  }
}

/* From the least to the largest value, also of more values than a call can have arguments; never nothing. */
function extent(values) {
  const low = values.reduce((least, value) => Math.min(least, value));
  const high = values.reduce((most, value) => Math.max(most, value));
  return Math.max(1e-3, high - low);
}

/* Where the picture of point i is: the sheet's number, and its place on it. */
function onSheet(sheets, i) {
  const each = sheets.lines * sheets.lines;
  const here = i % each;
  return {
    sheet: Math.floor(i / each),
    left: (here % sheets.lines) * sheets.across,
    top: Math.floor(here / sheets.lines) * sheets.down,
  };
}
