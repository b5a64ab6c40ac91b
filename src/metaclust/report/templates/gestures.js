/* Mouse, touch and keyboard control of a map. */
function listenTo(map) {
  const { canvas } = map;
  const pointers = new Map();
  let travelled = 0;
  let before = -1;
  let touch = false;
  const at = (event) => [event.offsetX, event.offsetY];
  const apart = () => {
    const [a, b] = [...pointers.values()];
    return Math.hypot(a[0] - b[0], a[1] - b[1]);
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    pointers.set(event.pointerId, at(event));
    travelled = pointers.size > 1 ? Infinity : 0;
    before = map.hover;
    touch = event.pointerType === "touch";
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    const last = pointers.get(event.pointerId);
    if (!last) {
      const i = map.nearest(x, y, 12);
      if (i !== map.hover) map.point(i);
      return;
    }
    const was = pointers.size === 2 ? apart() : 0;
    pointers.set(event.pointerId, [x, y]);
    if (was) return map.zoom(apart() / was, x, y);
    travelled += Math.hypot(x - last[0], y - last[1]);
    if (travelled < 5) return;
    map.view.x -= (x - last[0]) / map.scale;
    map.view.y -= (y - last[1]) / map.scale;
    map.moved();
  });
  canvas.addEventListener("pointerup", (event) => pointers.delete(event.pointerId));
  // Not on pointerup: selecting scrolls the page, and the click would hit what is then under the pointer.
  canvas.addEventListener("click", (event) => {
    if (travelled >= 5) return;
    const i = map.nearest(...at(event), touch ? 24 : 12);
    map.point(i);
    // A finger cannot hover: the first tap shows the row, the second selects the cluster.
    if (i >= 0 && (!touch || i === before)) map.onSelect(i);
  });
  canvas.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId));
  canvas.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && map.point(-1));
  canvas.addEventListener("blur", () => map.point(-1));
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    map.zoom(Math.exp(-Math.max(-50, Math.min(50, event.deltaY)) / 100), ...at(event));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const keys = {
      ArrowLeft: () => map.step(-1, 0),
      ArrowRight: () => map.step(1, 0),
      ArrowUp: () => map.step(0, -1),
      ArrowDown: () => map.step(0, 1),
      Enter: () => map.hover >= 0 && map.onSelect(map.hover),
      "+": () => map.zoom(1.4),
      "=": () => map.zoom(1.4),
      "-": () => map.zoom(1 / 1.4),
      0: () => map.all(),
    };
    if (!Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });
}
