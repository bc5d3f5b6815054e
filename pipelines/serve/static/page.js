// Numbers and times in the reader's locale; pages that are found as one types. Everything works without this file.
"use strict";

const plain = new Intl.NumberFormat(navigator.languages, { maximumSignificantDigits: 3 });
const whole = new Intl.NumberFormat(navigator.languages, { maximumFractionDigits: 0 });
const percent = new Intl.NumberFormat(navigator.languages, { style: "percent", maximumSignificantDigits: 3 });

for (const element of document.querySelectorAll("data[value]")) {
  const value = Number(element.value);
  if (!Number.isFinite(value)) continue;
  const form = element.classList.contains("percent") ? percent : Math.abs(value) >= 100 || Number.isInteger(value) ? whole : plain;
  element.textContent = form.format(value);
}

const when = new Intl.DateTimeFormat(navigator.languages, { dateStyle: "medium", timeStyle: "short", timeZone: "UTC" });
for (const element of document.querySelectorAll("time[datetime]")) {
  element.textContent = when.format(new Date(element.dateTime)) + " UTC";
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
  document.addEventListener("click", (event) => {
    if (!event.target.closest(".search")) found.hidden = true;
  });
}
