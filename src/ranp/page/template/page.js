"use strict";
(() => {
  const { charts, studies } = JSON.parse(document.getElementById("data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paper = matchMedia("print");
  const touch = matchMedia("(pointer: coarse)");
  const NARROW = 560;

  // A colour in a figure is the name of a variable of the style sheet: one palette, light, dark and printed.
  function themed(value, styles) {
    if (typeof value === "string") {
      const found = /^var\((--[\w-]+)\)$/.exec(value);
      return found ? styles.getPropertyValue(found[1]).trim() : value;
    }
    if (Array.isArray(value)) return value.map((entry) => themed(entry, styles));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, themed(entry, styles)]));
    }
    return value;
  }

  // As loggers do: the parts of a name from the left become their first letter until it fits.
  function shortened(name, most) {
    const parts = name.split(".");
    for (let i = 0; i < parts.length - 1 && parts.join(".").length > most; i += 1) {
      if (!/^\d+$/.test(parts[i])) parts[i] = parts[i].slice(0, 1);
    }
    const short = parts.join(".");
    return short.length > most ? "…" + short.slice(1 - most) : short;
  }

  function fitted(figure, width) {
    const { layout } = figure;
    layout.width = width;
    for (const axis of [layout.xaxis, layout.yaxis]) axis.fixedrange = touch.matches;
    const names = layout.meta && layout.meta.names;
    if (names) {
      const most = Math.max(8, Math.floor(width / (width < NARROW ? 26 : 22)));
      layout.yaxis.ticktext = names.map((name) => shortened(name, most));
    }
    return figure;
  }

  function draw(key) {
    const place = document.getElementById("chart-" + key);
    const figure = fitted(themed(charts[key], getComputedStyle(document.documentElement)), place.clientWidth);
    Plotly.react(place, figure.data, figure.layout, { displaylogo: false, displayModeBar: false });
  }

  // A chart is drawn when it is about to be seen, so that a page of many runs opens at once.
  const drawn = new Set();
  const again = (key) => { if (drawn.has(key)) draw(key); };
  const all = () => drawn.forEach(draw);
  const every = () => { Object.keys(charts).forEach((key) => drawn.add(key)); all(); };
  const observer = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      observer.unobserve(target);
      const key = target.id.slice("chart-".length);
      if (!drawn.has(key)) { drawn.add(key); draw(key); }
    }
  }, { rootMargin: "600px 0px" });

  function stage(fieldset) {
    const chosen = fieldset.querySelector("input:checked").value;
    const { data, layout } = charts[fieldset.dataset.chart];
    for (const trace of data) trace.visible = trace.meta === chosen;
    Object.assign(layout.xaxis, layout.meta.axes[chosen]);
    again(fieldset.dataset.chart);
  }

  // The marker of the slider is one more shape on each of its charts.
  function mark(key, at) {
    for (const resource of ["flops", "memory", "params"]) {
      const { layout } = charts[key + "-" + resource];
      const line = { type: "line", xref: "x", yref: "paper", x0: at, x1: at, y0: 0, y1: 1, line: { color: "var(--ink)", width: 1.5 } };
      layout.shapes = [layout.shapes[0], line];
      again(key + "-" + resource);
    }
  }

  function move(box, place) {
    const study = studies[box.dataset.study];
    const here = study.positions[place];
    const slider = box.querySelector("input[type=range]");
    slider.setAttribute("aria-valuetext", here.label);
    box.querySelector("output").textContent = here.label;
    box.querySelector(".readout").textContent = here.text;
    for (const cell of box.querySelectorAll("[data-cell]")) {
      const [sweep, row] = cell.dataset.cell.split(",");
      cell.textContent = here.cells[sweep][row];
    }
    for (const bar of box.querySelectorAll("[data-bar]")) {
      const [sweep, layer] = bar.dataset.bar.split(",");
      bar.style.width = (here.feasible[sweep] ? (100 * here.widths[sweep][layer]) / study.channels[layer] : 0) + "%";
    }
    for (const width of box.querySelectorAll("[data-width]")) {
      const [sweep, layer] = width.dataset.width.split(",");
      width.textContent = here.feasible[sweep] ? here.widths[sweep][layer] : "–";
    }
    mark(box.dataset.study, here.at);
  }

  function sort(button) {
    const heading = button.closest("th");
    const table = button.closest("table");
    const column = heading.cellIndex;
    const rising = heading.getAttribute("aria-sort") !== "ascending";
    for (const other of table.querySelectorAll("thead th")) other.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", rising ? "ascending" : "descending");
    const sign = rising ? 1 : -1;
    const read = (row) => row.cells[column].textContent.trim();
    const number = (text) => Number.parseFloat(text.replace(/[^0-9.eE-]/g, ""));
    for (const body of table.tBodies) {
      const rows = [...body.rows].filter((row) => !row.classList.contains("group"));
      rows.sort((one, other) => {
        const [a, b] = [read(one), read(other)];
        const [x, y] = [number(a), number(b)];
        const numeric = !heading.classList.contains("words") && !Number.isNaN(x) && !Number.isNaN(y);
        return sign * (numeric ? x - y : a.localeCompare(b, "en", { numeric: true }));
      });
      body.append(...rows);
    }
  }

  for (const box of document.querySelectorAll(".whatif")) {
    const slider = box.querySelector("input[type=range]");
    slider.addEventListener("input", () => move(box, Number(slider.value)));
    move(box, Number(slider.value));
  }
  for (const fieldset of document.querySelectorAll(".stages")) fieldset.addEventListener("change", () => stage(fieldset));
  for (const button of document.querySelectorAll(".sortable th button")) button.addEventListener("click", () => sort(button));
  for (const key of Object.keys(charts)) {
    const place = document.getElementById("chart-" + key);
    place.style.minHeight = charts[key].layout.height + "px";
    observer.observe(place);
  }

  // A box that holds more than it shows says so; it changes when the window does, or when what is folded opens.
  const wide = new ResizeObserver((entries) => {
    for (const { target } of entries) target.toggleAttribute("data-wide", target.scrollWidth > target.clientWidth + 1);
  });
  for (const box of document.querySelectorAll(".scroll")) wide.observe(box);

  dark.addEventListener("change", all);
  paper.addEventListener("change", every);
  addEventListener("beforeprint", () => {
    for (const folded of document.querySelectorAll("section > details:not([open])")) { folded.open = true; folded.dataset.folded = ""; }
    every();
  });
  addEventListener("afterprint", () => {
    for (const folded of document.querySelectorAll("details[data-folded]")) { folded.open = false; delete folded.dataset.folded; }
    all();
  });
  let width = innerWidth;
  let soon = 0;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(soon);
    soon = setTimeout(all, 120);
  });
  document.documentElement.dataset.ready = "";
})();
