// Updates figures and charts, shows values under the pointer, and zooms. Without this script, a page shows the state at
// the time it was loaded.
"use strict";

const WIDTH = 600, HEIGHT = 120, POINTS = 120, TIMES = 5;
const LEAST_DRAG = 8;  // pixels; less is a click
const zooms = new Map();  // title of a chart -> [from, to] of the part that is shown, in seconds

// Returns the smallest of 1, 2 and 5 times a power of ten that is not less; at least 1. Same as in charts.py.
function nice(most) {
  for (let step = 1; ; step *= 10)
    for (const factor of [1, 2, 5])
      if (most <= factor * step) return factor * step;
}

function shown(number) {
  const digits = number >= 100 || Number.isInteger(number) ? 0 : 1;
  return number.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

// The line has a gap where there is no value; a value between two gaps is a dot. Same as in charts.py.
function path(values, top) {
  const across = WIDTH / (values.length - 1);
  return values.map((value, at) => {
    if (value === null) return "";
    const point = `${(at * across).toFixed(1)},${(HEIGHT - (value / top) * HEIGHT).toFixed(1)}`;
    return at && values[at - 1] !== null ? `L${point}` : `M${point}h0`;
  }).join("");
}

// The area below a line. Same as in charts.py.
function area(values, top) {
  const across = WIDTH / (values.length - 1);
  return values.map((value, at) => {
    if (value === null) return "";
    const x = (at * across).toFixed(1), y = (HEIGHT - (value / top) * HEIGHT).toFixed(1);
    const before = at === 0 || values[at - 1] === null ? `M${x},${HEIGHT}` : "";
    const after = at === values.length - 1 || values[at + 1] === null ? `L${x},${HEIGHT}Z` : "";
    return `${before}L${x},${y}${after}`;
  }).join("");
}

function clock(seconds) {
  return new Date(seconds * 1000).toISOString().slice(11, 19) + " UTC";
}

function clocks(at) {
  const length = at[at.length - 1] - at[0] >= 300 ? 5 : 8;
  const times = Math.min(TIMES, at.length);
  return Array.from({ length: times }, (_, step) => clock(at[Math.round(step * (at.length - 1) / (times - 1))]).slice(0, length));
}

function items(list, texts) {
  list.replaceChildren(...texts.map((text) => {
    const item = document.createElement("li");
    item.textContent = text;
    return item;
  }));
}

const titleOf = (figure) => figure.querySelector("h2").textContent;
const linesOf = (figure) => [...figure.querySelectorAll("path[data-name]")];
const valuesOf = (line) => JSON.parse(line.dataset.values);

// Returns the first visible point and the one after the last. A zoom ends when fewer than two of its points are left.
function range(figure) {
  const at = JSON.parse(figure.dataset.at), zoom = zooms.get(titleOf(figure));
  if (zoom === undefined) return [0, at.length];
  const first = at.findIndex((time) => time >= zoom[0]), end = at.filter((time) => time <= zoom[1]).length;
  if (first >= 0 && end - first >= 2) return [first, end];
  zooms.delete(titleOf(figure));
  return [0, at.length];
}

function draw(figure) {
  const part = range(figure), lines = linesOf(figure), values = lines.map((line) => valuesOf(line).slice(...part));
  const grid = figure.querySelector("svg[role=img] > g"), button = figure.querySelector("button.zoom");
  const top = nice(Math.max(0, ...values.flat().filter((value) => value !== null)));
  const parts = String(top).startsWith("2") ? 4 : 5;
  lines.forEach((line, index) => line.setAttribute("d", path(values[index], top)));
  figure.querySelector("path.area").setAttribute("d", area(values[0], top));
  const rule = grid.firstElementChild;
  grid.replaceChildren(...Array.from({ length: parts + 1 }, (_, step) => {
    const line = rule.cloneNode();
    line.setAttribute("y1", HEIGHT * step / parts);
    line.setAttribute("y2", HEIGHT * step / parts);
    return line;
  }));
  items(figure.querySelector(".y"), Array.from({ length: parts + 1 }, (_, step) =>
    shown(top * (parts - step) / parts) + (step === 0 ? figure.dataset.unit : "")));
  items(figure.querySelector(".x"), clocks(JSON.parse(figure.dataset.at).slice(...part)));
  if (button !== null) button.hidden = !zooms.has(titleOf(figure));
}

// A point of a chart represents several seconds: the mean of the values, or the latest value; null if there is none.
function point(line, events) {
  const known = events.map((event) => event[line.dataset.name]).filter((value) => value !== null);
  if (known.length === 0) return null;
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  return Number(line.dataset.scale) * ("mean" in line.dataset ? mean : known[known.length - 1]);
}

function push(figure, events) {
  const at = [...JSON.parse(figure.dataset.at), events[events.length - 1].at].slice(-POINTS);
  figure.dataset.at = JSON.stringify(at);
  for (const line of linesOf(figure)) line.dataset.values = JSON.stringify([...valuesOf(line), point(line, events)].slice(-POINTS));
  draw(figure);
}

// Shows the values at the pointer; dragging zooms to the selected part.
function follow(figure) {
  const svg = figure.querySelector("svg[role=img]"), plot = figure.querySelector(".plot");
  const reading = document.createElement("span"), cross = svg.querySelector("g line").cloneNode(), whole = document.createElement("button");
  const dragged = document.createElementNS(svg.namespaceURI, "rect");
  let begin = null;  // where dragging began: [pixel, point]
  figure.dataset.followed = "";
  reading.className = "reading";
  cross.setAttribute("class", "cross");
  cross.setAttribute("y1", 0);
  cross.setAttribute("y2", HEIGHT);
  dragged.setAttribute("class", "dragged");
  dragged.setAttribute("height", HEIGHT);
  whole.type = "button";
  whole.className = "zoom";
  whole.textContent = "Whole range";
  whole.addEventListener("click", () => { zooms.delete(titleOf(figure)); draw(figure); });
  plot.append(whole);

  const times = () => JSON.parse(figure.dataset.at).slice(...range(figure));
  function place(event, at) {
    const box = svg.getBoundingClientRect();
    return Math.round(Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)) * (at.length - 1));
  }

  svg.addEventListener("pointerdown", (event) => {
    begin = [event.clientX, place(event, times())];
    svg.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  svg.addEventListener("pointermove", (event) => {
    const at = times(), index = place(event, at), across = WIDTH / (at.length - 1);
    cross.setAttribute("x1", index * across);
    cross.setAttribute("x2", index * across);
    const values = linesOf(figure).map((line) => {
      const value = valuesOf(line).slice(...range(figure))[index];
      return `${line.dataset.said} ${value === null || value === undefined ? "none" : shown(value) + figure.dataset.unit}`;
    });
    reading.textContent = `${clock(at[index])}: ${values.join(", ")}`;
    if (!cross.isConnected) { svg.append(cross); plot.append(reading); }
    if (begin === null) return;
    dragged.setAttribute("x", Math.min(index, begin[1]) * across);
    dragged.setAttribute("width", Math.abs(index - begin[1]) * across);
    svg.append(dragged);
  });
  svg.addEventListener("pointerup", (event) => {
    const at = times(), ends = begin === null ? [0, 0] : [begin[1], place(event, at)].sort((left, right) => left - right);
    if (begin !== null && Math.abs(event.clientX - begin[0]) >= LEAST_DRAG && ends[1] > ends[0]) {
      zooms.set(titleOf(figure), [at[ends[0]], at[ends[1]]]);
      draw(figure);
    }
    begin = null;
    dragged.remove();
  });
  svg.addEventListener("pointerleave", () => { cross.remove(); reading.remove(); });
  draw(figure);
}

// Also charts that replace others when a page refreshes its parts.
function followAll() {
  document.querySelectorAll("figure.chart:not([data-followed])").forEach(follow);
}

function live(place) {
  const state = place.querySelector("[data-state]"), button = document.getElementById("pause");
  const step = Number(place.dataset.step), stays = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const late = 5000;  // without new figures for this time (ms), the page is marked as stale
  let source = null, gathered = [], heard = 0, tried = 0, watch = null;

  function say(text, look) {
    if (ended) return;
    place.className = `badge live ${look}`;
    state.textContent = text;
  }

  function connect() {
    source = new EventSource("/api/v1/events");
    tried = Date.now();
    source.addEventListener("figures", (message) => {
      heard = Date.now();
      const event = JSON.parse(message.data);
      for (const field of document.querySelectorAll("[data-live]"))
        field.textContent = shown(event[field.dataset.live]);
      say(`Live, ${clock(event.at)}`, "good");
      gathered.push(event);
      if (event.at - gathered[0].at < step - 0.5) return;
      if (!stays) document.querySelectorAll("figure.chart").forEach((figure) => push(figure, gathered));
      gathered = [];
    });
    source.onerror = () => {
      say(`No connection: stale since ${clock(heard / 1000)}`, "bad");
      if (source.readyState === EventSource.CLOSED) checkLogin();  // refused: the browser does not try again
    };
  }

  function start() {
    connect();
    heard = Date.now();
    paused = false;
    watch = setInterval(() => {
      if (Date.now() - heard >= late) say(`Stale since ${clock(heard / 1000)}`, "warn");
      if (source.readyState === EventSource.CLOSED && !ended && Date.now() - tried >= FRESH) connect();
    }, 1000);
    button.textContent = "Pause";
  }

  function stop() {
    source.close();
    clearInterval(watch);
    source = null;
    paused = true;
    say(`Paused at ${clock(heard / 1000)}`, "");
    button.textContent = "Resume";
  }

  button.addEventListener("click", () => (source === null ? start() : stop()));
  button.hidden = false;
  place.hidden = false;
  start();
}

followAll();
new MutationObserver(followAll).observe(document.body, { childList: true, subtree: true });
if (document.getElementById("pause") !== null) live(document.getElementById("live"));
