"use strict";

/* The map: points on a canvas that can be moved, zoomed, hovered and selected. Independent of the rest of the page. */
class PointMap {
  /* colours() returns {colours, paper, ink}; highlighted(i) tells whether point i stands out; onHover(i, place) and
     onSelect(i) are callbacks. */
  constructor(canvas, data, { colours, highlighted, onHover, onSelect }) {
    Object.assign(this, { canvas, data, colours, highlighted, onHover, onSelect });
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

  /* Pixels per unit of the map. */
  get scale() {
    this.spanX ??= extent(this.x);
    this.spanY ??= extent(this.y);
    // No point is under the buttons.
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

  /* For each cluster the point closest to its median, where its number is written. */
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
    const theme = this.colours();
    context.clearRect(0, 0, width, height);
    const highlighted = [];
    for (let i = 0; i < this.count; i++) {
      if (this.highlighted(i)) highlighted.push(i);
      else this.dot(i, theme, 0.13);
    }
    for (const i of highlighted) this.dot(i, theme, 0.88);
    this.numbers(theme);
    if (this.hover >= 0) this.ring(this.hover, theme);
  }

  dot(i, theme, alpha) {
    const { context, radius } = this;
    const [x, y] = this.place(i);
    if (x < -40 || y < -40 || x > this.width + 40 || y > this.height + 40) return;
    context.globalAlpha = alpha;
    const colour = theme.colours[this.data.cluster[i]];
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

  /* Draw the row's picture instead of a dot; returns false until its sheet is loaded. */
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

  /* Draw the numbers of the clusters, of large ones first, where there is room. */
  numbers(theme) {
    const { context } = this;
    const taken = [];
    context.font = `600 ${this.labels.length > 40 ? 11 : 12}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineJoin = "round";
    context.lineWidth = 4;
    for (const { cluster, point, top } of this.labels) {
      if (!this.highlighted(point, true)) continue;
      const [x, middle] = this.place(point);
      // Above its point, and above all points of a small cluster.
      const above = (this.y[point] - top) * this.scale;
      const y = middle - (above > 14 ? 0 : above) - this.radius - 8;
      const wide = context.measureText(cluster).width + 10;
      if (taken.some(([a, b]) => Math.abs(a - x) < 20 && Math.abs(b - y) < 16)) continue;
      taken.push([x, y]);
      context.globalAlpha = 0.9;
      context.strokeStyle = theme.paper;
      if (this.pictures) {
        // On pictures an outline is hard to read.
        context.fillStyle = theme.paper;
        context.beginPath();
        context.roundRect(x - wide / 2, y - 9, wide, 17, 8);
        context.fill();
      } else context.strokeText(cluster, x, y);
      context.globalAlpha = 1;
      context.fillStyle = theme.ink;
      context.fillText(cluster, x, y);
    }
  }

  ring(i, theme) {
    const [x, y] = this.place(i);
    this.context.globalAlpha = 1;
    this.context.lineWidth = 2;
    this.context.strokeStyle = theme.ink;
    this.context.beginPath();
    this.context.arc(x, y, this.radius + 3, 0, 7);
    this.context.stroke();
  }

  /* The point closest to a position, or -1; highlighted points are preferred. */
  nearest(x, y, reach) {
    let [best, least] = [-1, reach];
    for (let i = 0; i < this.count; i++) {
      const [a, b] = this.place(i);
      const away = Math.hypot(a - x, b - y) + (this.highlighted(i) ? 0 : reach / 2);
      if (away < least) [best, least] = [i, away];
    }
    return best;
  }

  point(i) {
    this.hover = i;
    this.onHover(i, i < 0 ? null : this.place(i));
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
    // A finger scrolls the page until the map is zoomed, and then moves the map.
    this.canvas.style.touchAction = this.view.zoom > 1.05 ? "none" : "pan-y";
    this.point(-1);
  }

  /* Move from the hovered point to the next one in a direction; without one, to the middle of the largest cluster. */
  step(dx, dy) {
    if (this.hover < 0) return this.point(this.labels[0].point);
    let [best, least] = [this.hover, Infinity];
    for (let i = 0; i < this.count; i++) {
      const [x, y] = [this.x[i] - this.x[this.hover], this.y[i] - this.y[this.hover]];
      const along = x * dx + y * dy;
      const across = Math.abs(x * dy - y * dx);
      if (along > 0 && across <= along && along + 2 * across < least) [best, least] = [i, along + 2 * across];
    }
    const [x, y] = this.place(best);
    if (x < 0 || y < 0 || x > this.width || y > this.height) Object.assign(this.view, { x: this.x[best], y: this.y[best] });
    this.point(best);
  }
}

/* The range of the values, of any number of them; never 0. */
function extent(values) {
  const low = values.reduce((least, value) => Math.min(least, value));
  const high = values.reduce((most, value) => Math.max(most, value));
  return Math.max(1e-3, high - low);
}

/* The sheet and the position on it of the picture of point i. */
function onSheet(sheets, i) {
  const each = sheets.lines * sheets.lines;
  const here = i % each;
  return {
    sheet: Math.floor(i / each),
    left: (here % sheets.lines) * sheets.across,
    top: Math.floor(here / sheets.lines) * sheets.down,
  };
}
