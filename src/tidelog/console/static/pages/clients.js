// Who is connected, with what software, and whether quotas hold them back.
import { h, replace, card, badge, plain } from "../dom.js";
import { get } from "../api.js";
import { bytes, span, whole } from "../format.js";
import { table, nothing } from "../table.js";
import { t } from "../words.js";

const SHOWN = 500;

export async function show(view) {
  const rows = h("div", {});
  const count = h("p", { class: "muted small" });
  let text = "";
  let found = [];
  let problems = [];
  const search = h("input", { type: "search", placeholder: t("Search clients ( / )"), "aria-label": t("Search clients"), oninput: (event) => { text = event.target.value.toLowerCase(); draw(); } });
  view.root.append(h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", {}, t("Clients")), count)), card(null, [h("header", {}, search), rows]));
  function draw() {
    const shown = found.filter((row) => `${row.client_id} ${row.software} ${row.host} ${row.principal}`.toLowerCase().includes(text));
    count.textContent = t("{n} connections", { n: whole(found.length) });
    replace(rows, table([
      { name: "Client id", class: "name", cell: (row) => plain(row.client_id ?? "–") },
      { name: "Software", cell: (row) => plain([row.software, row.software_version].filter(Boolean).join(" ") || "–") },
      { name: "User", cell: (row) => plain(row.principal) },
      { name: "Address", class: "mono", cell: (row) => plain(`${row.host}:${row.port}`) },
      { name: "Broker", number: true, cell: (row) => row.broker },
      { name: "Requests", number: true, cell: (row) => whole(row.requests) },
      { name: "Received", number: true, cell: (row) => bytes(row.received_bytes) },
      { name: "Sent", number: true, cell: (row) => bytes(row.sent_bytes) },
      { name: "Idle", number: true, cell: (row) => span(row.idle_ms / 1000) },
      { name: "", cell: (row) => (row.pause_left_ms ? badge(t("throttled"), "warning") : "") },
    ], shown.slice(0, SHOWN), { none: nothing(t("No broker tells who is connected."), problems[0] ?? "") }));
  }
  view.onLook(async () => {
    const page = await get(view.path("clients"), {}, view.signal);
    problems = page.problems;
    found = Object.entries(page.by_broker).flatMap(([broker, each]) => (each.connections ?? []).map((row) => ({ broker, ...row })));
    found.sort((a, b) => b.received_bytes + b.sent_bytes - a.received_bytes - a.sent_bytes);
    draw();
  });
}
