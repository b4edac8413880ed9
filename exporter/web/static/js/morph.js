// Changes elements of the open page into newer ones, without touching equal parts.
//
// Kept elements keep their focus, selection, scroll position and other state. Elements are identified by their
// ids, and others by their place. An element with the attribute data-keep belongs to a script: it may be moved,
// but is never changed. <details> stay open or closed, and typed text stays unless the server changes the field.

const FIELD = new Set(["value", "checked", "selected"]);

/** Returns the elements of HTML in their order. */
export function read(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return [...template.content.children];
}

/** Makes `old`, which is on the page, equal to `fresh`, which is not; returns the element that is then on the page. */
export function morph(old, fresh) {
  if (old.isEqualNode(fresh)) return old;
  if (!alike(old, fresh)) {
    const node = document.importNode(fresh, true);
    old.replaceWith(node);
    return node;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    old.data = fresh.data;
  } else if (!kept(old)) {
    attributes(old, fresh);
    children(old, fresh);
  }
  return old;
}

/** Replaces elements on the page by those in `pieces` (id to element); `list` adds the others. */
export function place(pieces) {
  for (const [id, fresh] of pieces) {
    const old = document.getElementById(id);
    if (old) morph(old, fresh);
  }
}

/** Gives the element with the id `parent` the children with these ids, in this order, and no others. */
export function list(parent, ids, pieces) {
  const element = document.getElementById(parent);
  if (!element) return;
  const wanted = new Set(ids);
  for (const child of [...element.children]) if (!wanted.has(child.id)) child.remove();
  const present = new Map([...element.children].map((child) => [child.id, child]));
  let at = element.firstElementChild;
  for (const id of ids) {
    const child = present.get(id) ?? (pieces.has(id) ? document.importNode(pieces.get(id), true) : null);
    if (!child) continue;
    if (child === at) at = at.nextElementSibling;
    else move(element, child, at);
  }
}

function alike(old, fresh) {
  return old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && (old.id ?? "") === (fresh.id ?? "");
}

function kept(node) {
  // The content of noscript is text in a page with scripts, but elements in a template.
  return node.hasAttribute("data-keep") || node.nodeName === "NOSCRIPT";
}

function attributes(old, fresh) {
  for (const name of new Set([...old.getAttributeNames(), ...fresh.getAttributeNames()])) {
    const value = fresh.getAttribute(name);
    const ofReader = name === "open" && old.nodeName === "DETAILS";
    if (ofReader || old.getAttribute(name) === value) continue;
    if (value === null) old.removeAttribute(name);
    else old.setAttribute(name, value);
    // Once a field was used, its attributes no longer set its value.
    if (FIELD.has(name) && name in old && old !== document.activeElement) old[name] = fresh[name];
  }
}

function children(old, fresh) {
  const named = new Map([...old.children].filter((child) => child.id).map((child) => [child.id, child]));
  const staying = new Set([...fresh.children].map((child) => child.id));
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    while (at?.id && !staying.has(at.id)) at = drop(at);
    const found = next.id ? named.get(next.id) : at && !at.id && alike(at, next) ? at : null;
    if (!found || !alike(found, next)) {
      old.insertBefore(document.importNode(next, true), at);
      continue;
    }
    if (found === at) at = at.nextSibling;
    else move(old, found, at);
    morph(found, next);
  }
  while (at) at = drop(at);
}

function drop(node) {
  const next = node.nextSibling;
  node.remove();
  return next;
}

/** Moves an element, with its focus if the browser supports that. */
function move(parent, child, before) {
  if (child.isConnected && parent.moveBefore) parent.moveBefore(child, before);
  else parent.insertBefore(child, before);
}
