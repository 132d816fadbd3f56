// Figures and charts of the overview as they change. Without this script the page shows those of when it was loaded.
"use strict";

const WIDTH = 600, HEIGHT = 120, POINTS = 120, TIMES = 5;

// The next of 1, 2 and 5 times a power of ten; at least 1. As in charts.py.
function nice(most) {
  for (let step = 1; ; step *= 10)
    for (const factor of [1, 2, 5])
      if (most <= factor * step) return factor * step;
}

function shown(number) {
  const digits = number >= 100 || Number.isInteger(number) ? 0 : 1;
  return number.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

// With gaps where there is no value; what stands between two of them is a dot. As in charts.py.
function path(values, top) {
  const across = WIDTH / (values.length - 1);
  return values.map((value, at) => {
    if (value === null) return "";
    const point = `${(at * across).toFixed(1)},${(HEIGHT - (value / top) * HEIGHT).toFixed(1)}`;
    return at && values[at - 1] !== null ? `L${point}` : `M${point}h0`;
  }).join("");
}

// What is below a line. As in charts.py.
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

const linesOf = (figure) => [...figure.querySelectorAll("path[data-name]")];
const valuesOf = (line) => JSON.parse(line.dataset.values);

function draw(figure) {
  const lines = linesOf(figure), values = lines.map(valuesOf), grid = figure.querySelector("svg[role=img] > g");
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
  items(figure.querySelector(".x"), clocks(JSON.parse(figure.dataset.at)));
}

// A chart has a point for some seconds: the mean of what was meanwhile, or the latest; null where nothing was.
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

// Values at the place of the pointer.
function follow(figure) {
  const svg = figure.querySelector("svg[role=img]"), plot = figure.querySelector(".plot");
  const said = document.createElement("span"), cross = svg.querySelector("g line").cloneNode();
  said.className = "reading";
  cross.setAttribute("class", "cross");
  cross.setAttribute("y1", 0);
  cross.setAttribute("y2", HEIGHT);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), at = JSON.parse(figure.dataset.at), lines = linesOf(figure);
    const index = Math.round(Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)) * (at.length - 1));
    const x = index * WIDTH / (at.length - 1);
    cross.setAttribute("x1", x);
    cross.setAttribute("x2", x);
    const values = lines.map((line) => {
      const value = valuesOf(line)[index];
      return `${line.dataset.said} ${value === null || value === undefined ? "none" : shown(value) + figure.dataset.unit}`;
    });
    said.textContent = `${clock(at[index])}: ${values.join(", ")}`;
    if (!cross.isConnected) { svg.append(cross); plot.append(said); }
  });
  svg.addEventListener("pointerleave", () => { cross.remove(); said.remove(); });
}

function live(place) {
  const state = place.querySelector("[data-state]"), button = document.getElementById("pause");
  const step = Number(place.dataset.step), stays = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const late = 5000;  // milliseconds without a figure, after which those that are shown are old
  let source = null, gathered = [], heard = 0, watch = null;

  function say(text, look) {
    place.className = `badge live ${look}`;
    state.textContent = text;
  }

  function start() {
    source = new EventSource("/api/v1/events");
    heard = Date.now();
    paused = false;
    watch = setInterval(() => {
      const age = Date.now() - heard;
      if (age >= late) say(`Stale since ${clock(heard / 1000)}`, "warn");
    }, 1000);
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
    source.onerror = () => say(`No connection: stale since ${clock(heard / 1000)}`, "bad");
    button.textContent = "Pause";
  }

  function stop() {
    source.close();
    clearInterval(watch);
    source = null;
    paused = true;
    say(`Paused at ${clock(heard / 1000)}`, "");
    button.textContent = "Go on";
  }

  button.addEventListener("click", () => (source === null ? start() : stop()));
  button.hidden = false;
  place.hidden = false;
  start();
}

document.querySelectorAll("figure.chart").forEach(follow);
if (document.getElementById("pause") !== null) live(document.getElementById("live"));
