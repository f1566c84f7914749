// Makes elements. The one place where anything enters the page: always as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";
// Control characters, and characters that reorder or hide others or cannot be seen: shown by their numbers.
const ODD = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\p{Cf}\p{Cs}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0\u{e0000}-\u{e0fff}]/u;
const EVERY_ODD = new RegExp(ODD.source, "gu");
const MARKED = 500;

/** An element; properties that begin with "on" are listeners, null and false leave an attribute out. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  fill(element, properties, children);
  return element;
}

/** An element of a picture. */
export function svg(tag, properties = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  fill(element, properties, children);
  return element;
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
}

/** Append elements and texts; lists are taken apart, null is nothing. */
export function append(element, children) {
  for (const child of [children].flat(9)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

let pressed = null; // what a pointer is held down on
const waiting = new Map(); // what is put into an element as soon as it is let go
window.addEventListener("pointerdown", (event) => { pressed = event.target; }, true);
for (const end of ["pointerup", "pointercancel"]) window.addEventListener(end, () => setTimeout(letGo), true);
// What comes of it draws at once. A list of choices opens where no pointer is let go on the page.
for (const done of ["click", "change", "keydown"]) window.addEventListener(done, () => { pressed = null; setTimeout(letGo); }, true);
window.addEventListener("pointermove", (event) => { if (pressed && !event.buttons) letGo(); }, true);

function letGo() {
  pressed = null;
  for (const [element, children] of [...waiting]) replace(element, ...children);
}

/**
 * Put `children` in the place of whatever is in `element`. What a pointer is held down on stays until it is let go:
 * a button that goes away between the two is never clicked, and pages are drawn anew every few seconds.
 */
export function replace(element, ...children) {
  if (pressed && element.contains(pressed)) {
    waiting.set(element, children);
    return element;
  }
  waiting.delete(element);
  element.replaceChildren();
  return append(element, children);
}

/** Text from strangers, with characters that cannot be seen shown by their numbers. */
export function plain(text) {
  if (!ODD.test(text)) return text;
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(EVERY_ODD)) {
    if (parts.length >= 2 * MARKED) break;  // a page with a million elements would be none
    parts.push(text.slice(end, found.index), h("span", { class: "odd", title: number(found[0]) }, number(found[0])));
    end = found.index + found[0].length;
  }
  parts.push(visible(text.slice(end)));
  return parts;
}

/** The same as one text, where there can be no elements. */
export const visible = (text) => text.replace(EVERY_ODD, (each) => ` ${number(each)} `);

const number = (character) => `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;

/** A badge. */
export const badge = (text, level = "") => h("span", { class: `badge ${level}` }, typeof text === "string" ? plain(text) : text);

/** A card with a heading; `actions` stand at its right. */
export function card(title, body, actions = null, level = "h2") {
  return h("section", { class: "card" },
    title ? h("header", {}, h("div", { class: "grow" }, h(level, {}, title)), actions) : null, body);
}

/** What stands where nothing is. */
export const empty = (title, more = "") =>
  h("div", { class: "empty" }, h("strong", {}, title), more ? h("span", {}, more) : null);

/** Why something could not be done. */
export const refusal = (error) => h("div", { class: "refusal", role: "alert" }, plain(error.message ?? String(error)));

/** A field with its label. */
export const field = (label, control, hint = null) =>
  h("label", { class: "field" }, label, control, hint ? h("span", { class: "small muted" }, hint) : null);

/** A link to a page of this cluster. */
export const place = (cluster, ...parts) =>
  `#/${[cluster, ...parts].map((part) => encodeURIComponent(part)).join("/")}`;
