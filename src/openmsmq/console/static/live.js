// Figures and charts of the overview as they change. Without this script the page shows those of when it was loaded.
"use strict";

const WIDTH = 600, HEIGHT = 120, POINTS = 120;

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

function draw(figure) {
  const lines = [...figure.querySelectorAll("path")];
  const values = lines.map((line) => JSON.parse(line.dataset.values));
  const top = nice(Math.max(0, ...values.flat().filter((value) => value !== null)));
  lines.forEach((line, index) => line.setAttribute("d", path(values[index], top)));
  figure.querySelector("[data-top]").textContent = shown(top);
}

// A chart has a point for some seconds: the mean of what was meanwhile, or the latest; null where nothing was.
function point(line, events) {
  const known = events.map((event) => event[line.dataset.name]).filter((value) => value !== null);
  if (known.length === 0) return null;
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  return Number(line.dataset.scale) * ("mean" in line.dataset ? mean : known[known.length - 1]);
}

function push(figure, events) {
  for (const line of figure.querySelectorAll("path")) {
    const values = JSON.parse(line.dataset.values);
    values.push(point(line, events));
    if (values.length > POINTS) values.shift();
    line.dataset.values = JSON.stringify(values);
  }
  figure.querySelector("[data-end]").textContent = clock(events[events.length - 1].at);
  draw(figure);
}

function clock(seconds) {
  return new Date(seconds * 1000).toISOString().slice(11, 19) + " UTC";
}

function follow(place) {
  const state = place.querySelector("[data-state]"), button = place.querySelector("button");
  const step = Number(place.dataset.step), stays = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const late = 5000;  // milliseconds without a figure, after which those that are shown are old
  let source = null, gathered = [], heard = 0, watch = null;

  function start() {
    source = new EventSource("/api/v1/events");
    heard = Date.now();
    watch = setInterval(() => {
      const age = Math.round((Date.now() - heard) / 1000);
      if (age * 1000 >= late) state.textContent = `The figures are ${age} s old: the server sends no new ones.`;
    }, 1000);
    source.addEventListener("figures", (message) => {
      heard = Date.now();
      const event = JSON.parse(message.data);
      for (const field of document.querySelectorAll("[data-live]"))
        field.textContent = shown(event[field.dataset.live]);
      state.textContent = `Live, ${clock(event.at)}.`;
      gathered.push(event);
      if (event.at - gathered[0].at < step - 0.5) return;
      if (!stays) document.querySelectorAll("figure.chart").forEach((figure) => push(figure, gathered));
      gathered = [];
    });
    source.onerror = () => { state.textContent = "No connection: the figures are old."; };
    button.textContent = "Pause";
  }

  function stop() {
    source.close();
    clearInterval(watch);
    source = null;
    state.textContent = "Paused.";
    button.textContent = "Go on";
  }

  button.addEventListener("click", () => (source === null ? start() : stop()));
  place.hidden = false;
  start();
}

const place = document.getElementById("live");
if (place !== null) follow(place);
