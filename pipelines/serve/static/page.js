// Numbers and times in the reader's locale; pages that are found as one types; what is live. All works without this file.
"use strict";

const plain = new Intl.NumberFormat(navigator.languages, { maximumSignificantDigits: 3 });
const whole = new Intl.NumberFormat(navigator.languages, { maximumFractionDigits: 0 });
const percent = new Intl.NumberFormat(navigator.languages, { style: "percent", maximumSignificantDigits: 3 });

const when = new Intl.DateTimeFormat(navigator.languages, { dateStyle: "medium", timeStyle: "short", timeZone: "UTC" });
const exactly = new Intl.DateTimeFormat(navigator.languages, { dateStyle: "medium", timeStyle: "medium", timeZone: "UTC" });

function localise(root) {
  for (const element of root.querySelectorAll("data[value]")) {
    const value = Number(element.value);
    if (!Number.isFinite(value)) continue;
    const form = element.classList.contains("percent") ? percent : Math.abs(value) >= 100 || Number.isInteger(value) ? whole : plain;
    element.textContent = form.format(value);
  }
  for (const element of root.querySelectorAll("time[datetime]")) {
    const form = element.classList.contains("second") ? exactly : when;
    element.textContent = form.format(new Date(element.dateTime)) + " UTC";
  }
}

localise(document);

// Changes what differs and nothing else: the place of the reader, what is open and what has the keyboard stay.
function renew(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeName !== fresh.nodeName || old.nodeType !== Node.ELEMENT_NODE) return old.replaceWith(fresh);
  if (old.contains(document.activeElement) && old.matches("input, form")) return; // somebody writes there
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(name === "open" && old.matches("details"))) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) old.setAttribute(name, value);
  const news = [...fresh.childNodes];
  const olds = [...old.childNodes];
  news.forEach((child, place) => (place < olds.length ? renew(olds[place], child) : old.append(child)));
  olds.slice(news.length).forEach((child) => child.remove());
}

const main = document.querySelector("main[data-live]");
let news = null;
let isAsking = false;
let hasMore = false;

async function reload() {
  hasMore = isAsking;
  if (isAsking) return;
  isAsking = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.redirected) return location.reload(); // the token is another one
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html"); // runs no script
    localise(fresh);
    for (const part of ["main", "footer"]) {
      const [old, other] = [document, fresh].map((one) => one.querySelector(part));
      if (old && other) renew(old, other);
    }
  } catch {
    main.querySelector("#live")?.classList.add("away"); // the server is not there: the browser asks again by itself
  } finally {
    isAsking = false;
    if (hasMore) reload();
  }
}

function listen() {
  news?.close();
  news = null;
  if (document.hidden) return; // a browser has few connections for all its tabs
  news = new EventSource(main.dataset.live);
  news.addEventListener("open", reload);
  news.addEventListener("news", reload);
  news.addEventListener("error", () => {
    main.querySelector("#live")?.classList.add("away");
    if (news?.readyState === EventSource.CLOSED) setTimeout(listen, 30000);
  });
}

if (main) {
  listen();
  document.addEventListener("visibilitychange", listen);
}

const input = document.querySelector(".search input");
const found = document.getElementById("found");
let asked = 0;

function show(answer) {
  found.replaceChildren();
  for (const one of [...answer.hosts, ...answer.pages]) {
    const link = document.createElement("a");
    link.href = one.address;
    const name = document.createElement("bdi");
    name.textContent = one.shown; // as text: nothing of a URL becomes markup
    const kind = document.createElement("small");
    kind.textContent = one.kind;
    link.append(name, kind);
    found.append(link);
  }
  found.hidden = !found.childElementCount;
}

async function look() {
  const number = ++asked;
  const words = input.value.trim();
  if (words.length < 2) return show({ hosts: [], pages: [] });
  const answer = await fetch("/api/find?q=" + encodeURIComponent(words)).then((got) => (got.ok ? got.json() : null));
  if (answer && number === asked) show(answer); // an answer to older words comes too late
}

if (input && found) {
  let waiting;
  input.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => look().catch(() => show({ hosts: [], pages: [] })), 120);
  });
  document.querySelector(".search").addEventListener("keydown", (event) => {
    const links = [input, ...found.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement);
    if (event.key === "Escape") {
      found.hidden = true;
      input.focus();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      links[(at + (event.key === "ArrowDown" ? 1 : links.length - 1)) % links.length].focus();
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select")) return;
    event.preventDefault();
    input.focus();
  });
  document.addEventListener("click", (event) => {
    if (!event.target.closest(".search")) found.hidden = true;
  });
}
