// What was done through the console, by whom.
import { h, replace, card, badge, plain } from "../dom.js";
import { get } from "../api.js";
import { moment } from "../format.js";
import { table, nothing } from "../table.js";
import { t } from "../words.js";

export async function show(view) {
  const rows = h("div", {});
  view.root.append(h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", {}, t("Audit")), h("p", { class: "muted small" }, t("Changes made through this console")))), card(null, rows));
  view.onLook(async () => {
    const entries = await get(view.path("audit"), {}, view.signal);
    replace(rows, table([
      { name: "Time", class: "still mono", cell: (row) => moment(row.at_ms) },
      { name: "User", cell: (row) => plain(row.user) },
      { name: "Address", class: "mono", cell: (row) => row.address },
      { name: "Action", class: "still", cell: (row) => row.action },
      { name: "Target", class: "short", cell: (row) => plain(row.target || "–") },
      { name: "Outcome", class: "short", cell: (row) => (row.outcome === "done" ? badge(t("done"), "good") : h("span", {}, badge(t("refused"), "bad"), " ", plain(row.outcome))) },
      { name: "Details", class: "doc mono", cell: (row) => plain(Object.keys(row.details).length ? JSON.stringify(row.details) : "") },
    ], entries, { none: nothing(t("No changes yet")) }));
  });
}
