/**
 * The table of holders without reloads: its form and its links lead to the same addresses as without
 * script, but are followed in place. The filter is heard while it is typed; "/" leads to it, and Escape
 * empties it.
 */

import { navigate } from "./live.js";

/** How long to wait for the next key, in milliseconds. */
const PAUSE = 180;
const LINKS = '#holders a[href^="?"], #cards a[href^="?"]';

let waiting = 0;

/** Have the form and the links of the table followed in place. */
export function start() {
  // Styles hide the button that only those without script need.
  document.documentElement.dataset.table = "live";
  document.addEventListener("submit", onSubmit);
  document.addEventListener("change", onChange);
  document.addEventListener("input", onInput);
  document.addEventListener("click", onClick);
  document.addEventListener("keydown", onKey);
}

/**
 * Give the address that a form leads to, in the spelling of the server: what is as by itself is left out.
 * @param {HTMLFormElement} form
 * @returns {string}
 */
export function addressOf(form) {
  const fields = new FormData(form);
  const columns = fields.getAll("columns").join(",");
  const query = new URLSearchParams();
  for (const name of ["q", "namespace", "gpu", "state", "sort", "columns", "range"]) {
    const value = name === "columns" ? columns : String(fields.get(name) ?? "").trim();
    if (value && !(name === "columns" && value === form.dataset.columns)) query.set(name, value);
  }
  const address = new URL(location.href);
  address.search = query.toString().replaceAll("%3A", ":").replaceAll("%2C", ",");
  address.hash = "holders";
  return address.href;
}

function follow(form, options) {
  clearTimeout(waiting);
  const address = addressOf(form);
  if (address !== location.href) navigate(address, options);
}

function onSubmit(event) {
  if (event.target.id !== "holders-form") return;
  event.preventDefault();
  follow(event.target);
}

function onChange(event) {
  const form = event.target.form;
  if (form?.id !== "holders-form") return;
  // A filter that is left is followed at once: an answer on its way may not know its last letters.
  follow(form, event.target.type === "search" ? { history: "replace" } : {});
}

function onInput(event) {
  if (event.target.id !== "holders-filter") return;
  clearTimeout(waiting);
  // Each letter is not worth a step back.
  waiting = setTimeout(() => follow(event.target.form, { history: "replace" }), PAUSE);
}

function onClick(event) {
  const chooser = document.getElementById("holders-columns");
  if (chooser?.open && !chooser.contains(event.target)) chooser.open = false;
  const link = event.target.closest?.(LINKS);
  const elsewhere = event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey;
  if (!link || elsewhere || event.defaultPrevented) return;
  event.preventDefault();
  clearTimeout(waiting);
  const shown = navigate(link.href);
  if (!link.closest("#holders")) shown.then((is) => is && document.getElementById("holders").scrollIntoView());
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const filter = document.getElementById("holders-filter");
  const chooser = event.target.closest?.("#holders-columns[open]");
  if (event.key === "/" && filter && !event.target.closest("input, select, textarea, [contenteditable]")) {
    event.preventDefault();
    filter.focus();
    filter.select();
  } else if (event.key === "Escape" && event.target === filter) {
    event.preventDefault();
    filter.value = "";
    follow(filter.form, { history: "replace" });
  } else if (event.key === "Escape" && chooser) {
    chooser.open = false;
    chooser.querySelector("summary").focus();
  }
}
