// Transactional ids: what they do, since when, and fencing one that hangs.
import { h, replace, card, badge, plain, refusal } from "../dom.js";
import { atLeast, change, get, roleOn } from "../api.js";
import { moment, span, whole } from "../format.js";
import { table, nothing } from "../table.js";
import { askTyped } from "../dialog.js";
import { t } from "../words.js";

export async function show(view) {
  const rows = h("div", {});
  const said = h("div", {});
  const admin = atLeast(roleOn(view.cluster), "admin");
  view.root.append(h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", {}, t("Transactions")))), said, card(null, rows));
  const fence = (row) => askTyped({
    title: t("Fence producer"), text: t("Aborts the open transaction and fences the producer that uses this id."), name: row.transactional_id, action: t("Fence"),
    act: () => change("POST", view.path("transactions", row.transactional_id, "fence"), { name: row.transactional_id }).then(() => null),
  }).then((done) => done && view.look());
  view.onLook(async () => {
    const page = await get(view.path("transactions"), {}, view.signal);
    replace(said, page.problems.map((each) => refusal(each)));
    replace(rows, table([
      { name: "Transactional id", class: "short", cell: (row) => plain(row.transactional_id) },
      { name: "State", cell: (row) => badge(row.state, row.state === "Ongoing" ? "info" : row.state.startsWith("Prepare") ? "warning" : "") },
      { name: "Producer id", number: true, cell: (row) => row.producer_id },
      { name: "Epoch", number: true, cell: (row) => whole(row.producer_epoch) },
      { name: "Coordinator", number: true, cell: (row) => row.coordinator },
      { name: "Started", cell: (row) => (row.started_at_ms && row.started_at_ms > 0 ? moment(row.started_at_ms) : "–") },
      { name: "Timeout", number: true, cell: (row) => (row.timeout_ms ? span(row.timeout_ms / 1000) : "–") },
      { name: "Open partitions", class: "short", cell: (row) => plain(row.partitions.join(", ") || "–") },
      { name: "", cell: (row) => (admin ? h("button", { type: "button", onclick: () => fence(row) }, t("Fence")) : null) },
    ], page.transactions, { none: nothing(t("No transactional ids"), t("An id appears when a producer with that transactional.id starts.")) }));
  });
}
