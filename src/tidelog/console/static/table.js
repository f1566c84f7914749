// Tables: columns with a name, a cell for each row, and an order that people choose by the headings.
import { h, empty } from "./dom.js";
import { whole } from "./format.js";
import { t } from "./words.js";

/**
 * A table. A column is {name, cell(row), sort?: key, number?: true, class?}. `order` is {sort, descending, onSort}.
 * `group` gives the heading of a row: consecutive rows with the same one are shown below it.
 */
export function table(columns, rows, { order = null, none = null, label = "", rowClass = null, group = null } = {}) {
  if (!rows.length && none) return none;
  const heading = (column) => {
    const label_ = t(column.name);
    if (!column.sort || !order) return h("th", { class: column.number ? "num" : null, scope: "col" }, label_);
    const chosen = order.sort === column.sort;
    const direction = order.descending ? "descending" : "ascending";
    return h("th", { class: column.number ? "num" : null, scope: "col", "aria-sort": chosen ? direction : null },
      h("button", { type: "button", onclick: () => order.onSort(column.sort, chosen ? !order.descending : Boolean(column.number)) },
        label_, chosen ? (order.descending ? " ↓" : " ↑") : ""));
  };
  return h("div", { class: "scroll" }, h("table", { "aria-label": label || null },
    h("thead", {}, h("tr", {}, columns.map(heading))),
    h("tbody", {}, rows.map((row, place) => [
      group && (!place || group(row) !== group(rows[place - 1]))
        ? h("tr", { class: "group" }, h("th", { colspan: columns.length, scope: "rowgroup" }, group(row))) : null,
      h("tr", { class: rowClass ? rowClass(row) : null },
        columns.map((column) => h("td", { class: [column.number ? "num" : "", column.class ?? ""].join(" ").trim() || null },
          column.cell(row))))]))));
}

/** Rows in an order of their own, for tables that are small enough to be sorted here. */
export function sorted(rows, keys, { sort, descending }) {
  const key = keys[sort];
  const found = [...rows].sort((left, right) => {
    const [a, b] = [key(left), key(right)];
    if (a === b) return 0;
    if (a === null || a === undefined) return -1;
    if (b === null || b === undefined) return 1;
    return a < b ? -1 : 1;
  });
  return descending ? found.reverse() : found;
}

/** Which part of many is shown, and the way to the others. */
export function pager(start, size, total, onStart) {
  if (total <= size) return null;
  const last = Math.min(start + size, total);
  return h("div", { class: "pager" }, t("{from}–{to} of {total}", { from: whole(start + 1), to: whole(last), total: whole(total) }),
    h("button", { type: "button", disabled: start === 0, onclick: () => onStart(Math.max(0, start - size)) }, t("Previous")),
    h("button", { type: "button", disabled: last >= total, onclick: () => onStart(start + size) }, t("Next")));
}

export const nothing = (text, more = "") => empty(text, more);
