/**
 * The table of holders without reloads: its form and links have the same addresses as without scripts, but are
 * followed in place. The filter applies while it is typed; "/" focuses it, and Escape empties it.
 */

import { navigate } from "./live.js";

/** Milliseconds to wait for the next key. */
const PAUSE = 180;
const LINKS = '#holders a[href^="?"], #cards a[href^="?"]';

let waiting = 0;

/** Starts following the form and the links of the table in place. */
export function start() {
  // Styles then hide the button that is only needed without scripts.
  document.documentElement.dataset.table = "live";
  document.addEventListener("submit", onSubmit);
  document.addEventListener("change", onChange);
  document.addEventListener("input", onInput);
  document.addEventListener("click", onClick);
  document.addEventListener("keydown", onKey);
}

/**
 * Returns the address of a form, normalized as by the server: defaults are left out.
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
  // A filter that loses focus is applied at once: a pending response may lack its last letters.
  follow(form, event.target.type === "search" ? { history: "replace" } : {});
}

function onInput(event) {
  if (event.target.id !== "holders-filter") return;
  clearTimeout(waiting);
  // Letters do not add entries to the browser's history.
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
  if (!link.closest("#holders")) shown.then((done) => done && document.getElementById("holders").scrollIntoView());
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
