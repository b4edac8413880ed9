// Applies data from the server to the open page: changes of some pieces, or a whole page.

import { list, morph, place, read } from "./morph.js";

/** Applies the data of an event `change`, whose id is `sequence`. */
export function applyChange({ timestamp, title, pieces, lists }, sequence) {
  keepingFocus(() => {
    const fresh = new Map(Object.entries(pieces).map(([id, html]) => [id, read(html)[0]]));
    place(fresh);
    for (const [parent, ids] of Object.entries(lists)) list(parent, ids, fresh);
  });
  document.title = title;
  Object.assign(document.body.dataset, { timestamp, sequence });
  document.dispatchEvent(new CustomEvent("gpuslice:update"));
}

/** Applies a page that `fetchPage` returned. */
export function applyPage(page) {
  keepingFocus(() => morph(document.body, page.body));
  document.title = page.title;
  document.dispatchEvent(new CustomEvent("gpuslice:update"));
}

/**
 * Fetches a page of this site: {status, page, version}. `page` is null if it is not of the version that runs here,
 * such as the login page of a proxy. Rejects if the server cannot be reached.
 */
export async function fetchPage(url, signal) {
  const response = await fetch(url, { headers: { Accept: "text/html" }, cache: "no-cache", signal });
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const version = page.body.dataset.version ?? "";
  const ours = response.ok && version === document.body.dataset.version;
  return { status: response.status, page: ours ? page : null, version };
}

function keepingFocus(change) {
  const focused = document.activeElement;
  change();
  if (focused?.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
}
