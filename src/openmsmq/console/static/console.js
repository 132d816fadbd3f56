// What scripts add to each page: theme, keys, copying, names to choose from, and parts that stay fresh. Pages work without.
"use strict";

const FRESH = 10000;  // milliseconds between two looks for newer figures

// -- theme: as the browser has it, or as the user has chosen, which a cookie keeps --

const theme = document.getElementById("theme");
if (theme !== null) {
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    const secure = location.protocol === "https:" ? "; secure" : "";
    document.cookie = `openmsmq-theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict${secure}`;
  });
}

// -- copying: buttons, and names that are shown without their middle --

for (const button of document.querySelectorAll("[data-copy]")) {
  if (!navigator.clipboard) continue;
  button.hidden = false;
  const said = button.textContent;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = said; }, 2000);
  });
}

document.addEventListener("copy", (event) => {
  const chosen = getSelection(), node = chosen.anchorNode;
  const place = node === null ? null : (node.nodeType === Node.TEXT_NODE ? node.parentElement : node).closest("[title]");
  if (place === null || !chosen.toString().includes("…") || chosen.toString().trim() !== place.textContent.trim()) return;
  event.clipboardData.setData("text/plain", place.title);
  event.preventDefault();
});

// -- finding a queue: names as they are typed --

const find = document.getElementById("find"), names = document.getElementById("found");
let asked = null;
if (find !== null) find.addEventListener("input", () => {
  clearTimeout(asked);
  const wanted = find.value.trim();
  if (wanted === "") return;
  asked = setTimeout(async () => {
    const answer = await fetch(`/api/v1/queues?limit=10&filter=${encodeURIComponent(wanted)}`);
    if (!answer.ok || find.value.trim() !== wanted) return;
    const { queues } = await answer.json();
    const chosen = queues.find((queue) => queue.name === wanted);
    if (chosen) location.assign(`/queues/${encodeURIComponent(chosen.id)}`);
    names.replaceChildren(...queues.map((queue) => {
      const option = document.createElement("option");
      option.value = queue.name;
      return option;
    }));
  }, 150);
});

// -- tabs and navigation scroll on narrow screens: the page that is shown is in sight --

for (const current of document.querySelectorAll(".side nav [aria-current], .tabs [aria-current]"))
  current.scrollIntoView({ block: "nearest", inline: "nearest" });

// -- keys --

const KEYS = [["/", "find a queue"], ["j", "next in a list"], ["k", "previous in a list"], ["?", "show these keys"]];

function help() {
  const dialog = document.createElement("dialog"), list = document.createElement("dl"), title = document.createElement("h2");
  title.textContent = "Keys";
  list.className = "facts";
  for (const [key, text] of KEYS) {
    const term = document.createElement("dt"), what = document.createElement("dd"), drawn = document.createElement("kbd");
    drawn.textContent = key;
    term.append(drawn);
    what.textContent = text;
    list.append(term, what);
  }
  const close = document.createElement("button");
  close.textContent = "Close";
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  dialog.append(title, list, close);
  document.body.append(dialog);
  dialog.showModal();
}

function step(by) {
  const links = [...document.querySelectorAll("main tbody th a")];
  if (links.length === 0) return;
  const row = document.querySelector("main tbody tr[aria-current] th a");
  const from = links.includes(document.activeElement) ? links.indexOf(document.activeElement) : links.indexOf(row);
  const to = links[Math.min(links.length - 1, Math.max(0, from + by))];
  if (row !== null && to !== row) to.click();
  else to.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog")) return;
  if (event.key === "/" && find !== null) { find.focus(); event.preventDefault(); }
  if (event.key === "j") step(1);
  if (event.key === "k") step(-1);
  if (event.key === "?") help();
});

// -- parts that stay fresh: the same page is asked for again, and its parts take the place of those that are shown --

let paused = false;
const parts = () => [...document.querySelectorAll("[data-fresh]")];

function isUsed(part) {
  const chosen = getSelection();
  const typed = [...part.querySelectorAll("input")].some((field) =>
    field.value !== field.defaultValue || field.checked !== field.defaultChecked);
  return typed || part.contains(document.activeElement) || (!chosen.isCollapsed && part.contains(chosen.anchorNode));
}

// An answer as a document in which no script runs; null for any other than the page itself.
function page() {
  return new Promise((resolve) => {
    const request = new XMLHttpRequest();
    request.open("GET", location.href);
    request.setRequestHeader("X-Openmsmq-Refresh", "1");
    request.responseType = "document";
    request.onload = () => resolve(request.status === 200 && request.responseURL === location.href ? request.response : null);
    request.onerror = () => resolve(null);
    request.send();
  });
}

function say(text, good) {
  const place = document.getElementById("live");
  if (place === null) return;
  place.hidden = false;
  place.classList.toggle("good", good);
  place.classList.toggle("warn", !good);
  place.querySelector("[data-state]").textContent = text;
}

function clockNow() {
  return new Date().toISOString().slice(11, 19) + " UTC";
}

let last = clockNow();
async function refresh(owner) {
  if (paused || document.hidden) return;
  const newer = await page();
  if (newer === null) {
    if (!owner) say(`Stale since ${last}`, false);
    return;
  }
  last = clockNow();
  for (const part of [...parts(), document.getElementById("pages")]) {
    const other = newer.getElementById(part.id);
    if (other !== null && !isUsed(part) && !part.isEqualNode(other)) part.replaceChildren(...document.importNode(other, true).childNodes);
  }
  if (!owner) say(`Live, ${last}`, true);
}

const charts = document.querySelector("script[src='/static/live.js']") !== null;  // that script says how fresh figures are
if (parts().length > 0) setInterval(() => refresh(charts), FRESH);
