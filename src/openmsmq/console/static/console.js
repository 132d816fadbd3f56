// Added to each page: theme, keys, copy buttons, name completion, refreshed parts. Pages work without this script.
"use strict";

const FRESH = 10000;  // refresh interval (ms)
const PATIENCE = 5000;  // time limit for a response (ms); after that, the page is marked as stale

// -- theme: that of the browser, or the user's choice, which is kept in a cookie --

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

// -- copying: buttons, and names shown shortened --

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

// -- completion of queue names, in the search field and in forms --

const find = document.getElementById("find"), names = document.getElementById("found");
let asked = null;
document.addEventListener("input", (event) => {
  const field = event.target;
  if (field !== find && !field.matches("[data-queues]")) return;
  clearTimeout(asked);
  const wanted = field.value.trim();
  if (wanted === "") return;
  asked = setTimeout(async () => {
    const answer = await fetch(`/api/v1/queues?limit=10&filter=${encodeURIComponent(wanted)}`);
    if (!answer.ok || field.value.trim() !== wanted) return;
    const { queues } = await answer.json();
    const chosen = field === find ? queues.find((queue) => queue.name === wanted) : undefined;
    if (chosen) location.assign(`/queues/${encodeURIComponent(chosen.id)}`);
    names.replaceChildren(...queues.map((queue) => {
      const option = document.createElement("option");
      option.value = queue.name;
      return option;
    }));
  }, 150);
});

// -- tabs and navigation scroll on narrow screens: bring the current page into view --

for (const current of document.querySelectorAll(".side nav [aria-current], .tabs [aria-current]"))
  current.scrollIntoView({ block: "nearest", inline: "nearest" });

// -- keys --

const KEYS = [["/", "find a queue or a message"], ["j", "next in a list"], ["k", "previous in a list"], ["?", "show these keys"]];

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

// -- refreshed parts: the page is requested again, and its parts replace those shown --

let paused = false;
const parts = () => [...document.querySelectorAll("[data-fresh]")];

function isUsed(part) {
  const chosen = getSelection();
  const typed = [...part.querySelectorAll("input")].some((field) =>
    field.value !== field.defaultValue || field.checked !== field.defaultChecked);
  return typed || part.contains(document.activeElement) || (!chosen.isCollapsed && part.contains(chosen.anchorNode));
}

// Requests a document and returns it without running its scripts; null if there is no answer.
function asking(method, address, form) {
  return new Promise((resolve) => {
    const request = new XMLHttpRequest();
    request.open(method, address);
    if (method === "GET") request.setRequestHeader("X-Openmsmq-Refresh", "1");
    request.responseType = "document";
    request.onload = () => resolve(request);
    request.onerror = request.ontimeout = () => resolve(null);
    if (method === "GET") request.timeout = PATIENCE;
    request.send(form);
  });
}

// Requests the current page again; null if the answer is another page, such as the login form.
async function page() {
  const request = await asking("GET", location.href);
  if (request !== null && new URL(request.responseURL || location.href).pathname === "/login") endLogin();
  return request !== null && request.status === 200 && request.responseURL === location.href ? request.response : null;
}

function say(text, good) {
  const place = document.getElementById("live");
  if (place === null) return;
  place.hidden = false;
  place.classList.toggle("good", good);
  place.classList.toggle("warn", !good);
  place.querySelector("[data-state]").textContent = text;
}

// Says that the login has ended, with a link that returns to this page.
let ended = false;
function endLogin() {
  const link = document.createElement("a");
  ended = true;
  link.href = `/login?next=${encodeURIComponent(location.pathname + location.search)}`;
  link.textContent = "Log in again";
  say("", false);
  document.getElementById("live")?.querySelector("[data-state]").replaceChildren("Your login has ended. ", link);
}

// Asks whether the login has ended.
async function checkLogin() {
  try {
    const answer = await fetch("/api/v1/session", { headers: { "X-Openmsmq-Refresh": "1" } });
    if (answer.status === 401) endLogin();
  } catch { /* no connection: asked again later */ }
}

function clockNow() {
  return new Date().toISOString().slice(11, 19) + " UTC";
}

let last = clockNow();
async function refresh(owner, always) {
  if (!always && (paused || document.hidden)) return;
  const newer = await page();
  if (newer === null) {
    if (!owner && !ended) say(`Stale since ${last}`, false);
    return;
  }
  last = clockNow();
  ended = false;
  for (const part of [...parts(), document.getElementById("pages")]) {
    const other = newer.getElementById(part.id);
    if (other !== null && (always || !isUsed(part)) && !part.isEqualNode(other)) part.replaceChildren(...document.importNode(other, true).childNodes);
  }
  if (!owner) say(`Live, ${last}`, true);
}

// -- choosing a file fills the field for its content --

for (const label of document.querySelectorAll("[data-upload]")) {
  label.hidden = false;
  label.addEventListener("change", async (event) => {
    const field = label.closest("form").elements[label.dataset.upload];
    field.value = await event.target.files[0].text();
  });
}

// -- columns of the table of queues: the hidden ones are kept in a cookie --

const columns = document.getElementById("columns");
if (columns !== null) {
  columns.hidden = false;
  columns.addEventListener("change", () => {
    const gone = [...columns.querySelectorAll("input")].filter((box) => !box.checked).map((box) => box.value);
    for (const table of document.querySelectorAll("table.queues")) table.dataset.columns = gone.join(" ");
    const secure = location.protocol === "https:" ? "; secure" : "";
    document.cookie = `openmsmq-hidden=${gone.join(".")}; path=/; max-age=31536000; samesite=strict${secure}`;
  });
}

// -- checkboxes in a list --

document.addEventListener("change", (event) => {
  const form = event.target.closest("form.choosing");
  if (form === null) return;
  const boxes = [...form.querySelectorAll("td [type=checkbox]")];
  if (event.target.matches("[data-all]")) for (const box of boxes) box.checked = event.target.checked;
  form.querySelector("[data-chosen]").textContent = `${boxes.filter((box) => box.checked).length} selected`;
});

function showAll() {
  for (const box of document.querySelectorAll("[data-all]")) box.hidden = false;
}
showAll();

// -- dialogs: a form that requests a dry run shows its result here, with the form that carries it out; then a toast says
// what was done. Any other answer of the server is shown in the dialog. --

let dialog = null;

function inDialog(parts, said) {
  if (dialog === null) {
    dialog = document.createElement("dialog");
    dialog.className = "plan";
    dialog.addEventListener("close", () => { dialog.remove(); dialog = null; });
    document.body.append(dialog);
  }
  const head = document.createElement("header"), title = document.createElement("h2"), close = document.createElement("button");
  title.textContent = said;
  dialog.setAttribute("aria-label", said);
  close.type = "button";
  close.textContent = "Cancel";
  close.addEventListener("click", () => dialog.close());
  head.append(title, close);
  dialog.replaceChildren(head, ...parts.map((part) => document.importNode(part, true)));
  if (!dialog.open) dialog.showModal();
  const first = dialog.querySelector("[autofocus]");
  if (first !== null) first.focus();
}

function toast(content, said = "") {
  const shown = document.createElement("div"), text = document.createElement("div"), close = document.createElement("button");
  shown.className = "toast";
  if (said !== "") text.textContent = said;
  else text.append(...document.importNode(content, true).childNodes);
  for (const part of text.querySelectorAll("[role]")) part.removeAttribute("role");
  close.type = "button";
  close.className = "quiet";
  close.textContent = "Close";
  close.addEventListener("click", () => shown.remove());
  shown.append(text, close);
  document.getElementById("toasts").append(shown);
}

document.addEventListener("submit", async (event) => {
  const form = event.target, by = event.submitter;
  if (!form.matches("[data-dialog]") || by === null || by.hasAttribute("formaction")) return;
  if (form.getAttribute("action") === "/login" && form.closest("dialog") === null) return;
  event.preventDefault();
  const fields = new URLSearchParams(new FormData(form, by));
  by.disabled = true;
  const request = await asking("POST", form.getAttribute("action"), fields);
  by.disabled = false;
  const answer = request === null ? null : request.response;
  if (answer !== null && answer.getElementById("again") !== null) {  // a new login, here or in another tab
    const token = answer.querySelector("input[name=csrf]").value;
    for (const field of document.querySelectorAll("input[name=csrf]")) field.value = token;
    if (dialog !== null) dialog.close();
    toast(null, "You are logged in again. The form was not sent yet: send it again.");
    return;
  }
  const result = answer === null ? null : answer.getElementById("result");
  if (result !== null) {
    if (dialog !== null) dialog.close();
    toast(result);
    for (const used of document.querySelectorAll("form.choosing")) used.reset();
    await refresh(true, true);
    showAll();
    return;
  }
  const login = answer === null ? null : answer.getElementById("login");
  if (login !== null) { inDialog([login], "Log in again"); return; }
  const plan = answer === null ? null : answer.getElementById("plan");
  const wrong = answer === null ? [] : [...answer.querySelectorAll("main > [role=alert]")];
  const asked = answer === null ? null : answer.querySelector("main h1");
  if (plan !== null || wrong.length > 0) { inDialog(plan === null ? wrong : [...wrong, plan], asked.textContent); return; }
  const said = document.createElement("p");
  said.className = "wrong";
  said.setAttribute("role", "alert");
  said.textContent = "The server did not respond. The result is unknown: check the messages and the audit log.";
  inDialog([said], "No response");
});

const charts = document.getElementById("pause") !== null;  // live.js shows whether that page is up to date
const often = Math.min(FRESH, ...parts().map((part) => Number(part.dataset.fresh) || FRESH));
if (parts().length > 0) {
  setInterval(() => refresh(charts), often);
  if (!charts) say(`Live, ${last}`, true);
  addEventListener("offline", () => say(`Stale since ${last}`, false));
  addEventListener("online", () => refresh(charts));
}
