/* The page around the map: selection, search, tooltip, light and dark theme. */
(() => {
  const byId = (id) => document.getElementById(id);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const data = JSON.parse(byId("map-data").textContent);
  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const state = { cluster: null, matches: null };

  /* Theme. */
  const theme = () => root.dataset.theme || (prefersDark.matches ? "dark" : "light");
  const colours = () => {
    const style = getComputedStyle(byId("stage"));
    return { colours: data.colours[theme()], paper: style.backgroundColor, ink: style.color };
  };
  const themed = () => {
    byId("theme").textContent = theme() === "dark" ? "Light" : "Dark";
    byId("theme").setAttribute("aria-label", `Show the page in ${theme() === "dark" ? "light" : "dark"} colours`);
    map.paint();
  };

  /* Tooltip. */
  const element = (name, text, kind) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (kind) made.className = kind;
    made.dir = "auto";
    return made;
  };
  const pictureOf = (i) => {
    const { sheet, left, top } = onSheet(data.sheets, i);
    const { width, height } = data.sheets;
    const shown = element("div", undefined, "picture");
    const scale = Math.max(1, Math.min(6, Math.floor(96 / Math.max(width, height))));
    Object.assign(shown.style, {
      width: `${width}px`,
      height: `${height}px`,
      zoom: scale,
      backgroundImage: `url("${data.sheets.images[sheet]}")`,
      backgroundPosition: `-${left}px -${top}px`,
    });
    return shown;
  };
  const described = (i) => {
    const category = data.category ? data.categories[data.category[i]] : null;
    const cluster = `Cluster ${data.cluster[i]}, confidence ${data.confidence[i]}${data.unsure[i] ? " (unsure)" : ""}`;
    return { cluster, category };
  };
  const tip = byId("tip");
  const mapCorner = () => {
    const { left, top } = byId("map").getBoundingClientRect();
    return [left, top];
  };
  let corner = [0, 0];
  const showTip = (i, place) => {
    tip.hidden = i < 0;
    if (i < 0) return;
    const { cluster, category } = described(i);
    const head = element("p", cluster, "tip-head");
    head.style.setProperty("--c", `var(--k${data.cluster[i]})`);
    const parts = [head];
    if (data.sheets) parts.push(pictureOf(i));
    if (data.text) parts.push(element("p", data.text[i], "tip-text"));
    if (data.numbers) {
      const list = element("dl");
      for (const [column, value] of data.numbers[i]) {
        list.append(element("dt", data.columns[column]), element("dd", value));
      }
      parts.push(list);
    }
    const small = element("p", undefined, "tip-small");
    small.append(element("span", data.id[i]));
    if (category !== null) small.append(element("span", category));
    parts.push(small);
    tip.replaceChildren(...parts);
    corner = mapCorner();
    const [x, y] = [corner[0] + place[0], corner[1] + place[1]];
    const [wide, high] = [root.clientWidth - tip.offsetWidth - 4, root.clientHeight - tip.offsetHeight - 4];
    // Beside the point or, on a narrow screen, below or above it.
    const beside = x + 16 <= wide || x - 16 - tip.offsetWidth >= 4;
    const left = !beside ? Math.max(4, Math.min(x - tip.offsetWidth / 2, wide)) : x + 16 <= wide ? x + 16 : x - 16 - tip.offsetWidth;
    const wanted = beside ? y - 12 : y + 20 <= high ? y + 20 : y - 20 - tip.offsetHeight;
    const top = Math.max(4, Math.min(wanted, high));
    Object.assign(tip.style, { left: `${Math.round(left)}px`, top: `${Math.round(top)}px` });
  };

  /* The map. */
  const map = new PointMap(byId("map"), data, {
    colours,
    highlighted: (i, anyMatch = false) =>
      (state.cluster === null || data.cluster[i] === state.cluster) && (anyMatch || !state.matches || state.matches[i]),
    onHover: (i, place) => {
      showTip(i, place);
      if (i >= 0 && document.activeElement === byId("map")) {
        const { cluster, category } = described(i);
        byId("spoken").textContent = [cluster, category, data.id[i], data.text?.[i]].filter(Boolean).join(". ");
      }
    },
    onSelect: (i) => pick(data.cluster[i], true),
  });

  listenTo(map);

  /* The selected cluster, if any. */
  const pick = (cluster, scroll) => {
    state.cluster = state.cluster === cluster ? null : cluster;
    for (const button of all("button[data-cluster]")) {
      button.setAttribute("aria-pressed", Number(button.dataset.cluster) === state.cluster);
    }
    for (const card of all(".card")) card.classList.toggle("picked", Number(card.dataset.cluster) === state.cluster);
    byId("clear").hidden = state.cluster === null;
    map.paint();
    if (state.cluster === null || !scroll) return;
    const card = byId(`cluster-${state.cluster}`);
    if (card.tagName === "DETAILS") card.open = true;
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    card.scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "start" });
  };
  for (const chip of all(".chip")) chip.addEventListener("click", () => pick(Number(chip.dataset.cluster), true));
  for (const card of all("article.card")) {
    card.addEventListener("click", (event) => {
      if (getSelection().isCollapsed && !event.target.closest(".to-map")) pick(Number(card.dataset.cluster), false);
    });
  }
  for (const link of all(".to-map")) {
    link.addEventListener("click", () => {
      const cluster = Number(link.closest(".card").dataset.cluster);
      if (state.cluster !== cluster) pick(cluster, false);
    });
  }
  for (const summary of all("summary")) {
    summary.addEventListener("click", () => {
      const card = summary.parentElement;
      const cluster = Number(card.dataset.cluster);
      if (card.open === (state.cluster === cluster)) pick(cluster, false);
    });
  }
  byId("clear").addEventListener("click", () => pick(state.cluster, false));

  /* Search. */
  const haystack = data.id.map((id, i) =>
    [id, data.text ? data.text[i] : "", data.category ? data.categories[data.category[i]] : ""].join("\n").toLowerCase(),
  );
  const search = () => {
    const wanted = byId("search").value.trim().toLowerCase();
    state.matches = wanted ? haystack.map((text) => text.includes(wanted)) : null;
    const found = state.matches ? state.matches.filter(Boolean).length : 0;
    const [some, every] = [found, haystack.length].map((count) => count.toLocaleString("en"));
    byId("said").textContent = wanted ? `${some} of ${every} rows match` : "";
    map.paint();
  };
  byId("search").addEventListener("input", search);

  /* Buttons and keys. */
  byId("zoom-in").addEventListener("click", () => map.zoom(1.5));
  byId("zoom-out").addEventListener("click", () => map.zoom(1 / 1.5));
  byId("zoom-all").addEventListener("click", () => map.all());
  byId("pictures")?.addEventListener("click", (event) => {
    map.pictures = !map.pictures;
    event.currentTarget.setAttribute("aria-pressed", map.pictures);
    map.paint();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    byId("search").value = "";
    search();
    map.point(-1);
    if (state.cluster !== null) pick(state.cluster, false);
  });
  // Only if the map has moved since the row was shown: the event of an earlier scroll arrives a frame later.
  addEventListener("scroll", () => {
    if (!tip.hidden && mapCorner().some((at, i) => Math.abs(at - corner[i]) > 1)) map.point(-1);
  }, { passive: true });
  byId("theme").addEventListener("click", () => {
    root.dataset.theme = theme() === "dark" ? "light" : "dark";
    themed();
  });
  byId("theme").hidden = false;
  prefersDark.addEventListener("change", themed);

  /* Print in the light theme with all cards open. */
  addEventListener("beforeprint", () => {
    root.dataset.before = root.dataset.theme || "";
    root.dataset.theme = "light";
    for (const card of all("details.card:not([open])")) {
      card.open = true;
      card.dataset.closed = "";
    }
    map.draw();
  });
  addEventListener("afterprint", () => {
    if (root.dataset.before) root.dataset.theme = root.dataset.before;
    else delete root.dataset.theme;
    for (const card of all("details.card[data-closed]")) {
      card.open = false;
      delete card.dataset.closed;
    }
    map.paint();
  });

  themed();
  window.metaclustMap = map;
})();
