// Brokers: partitions, disks, request times; one broker's configs with where they come from.
import { h, replace, card, badge, place, plain } from "../dom.js";
import { atLeast, get, roleOn } from "../api.js";
import { bytes, moment, whole } from "../format.js";
import { table, nothing } from "../table.js";
import { configTable } from "../configs.js";
import { t } from "../words.js";

export async function show(view) {
  if (view.parts.length) return showBroker(view);
  const [rows, disks, requests] = [0, 0, 0].map(() => h("div", {}));
  view.root.append(h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", {}, t("Brokers")))),
    card(t("Brokers"), rows), card(t("Log directories"), disks), card(t("Slowest recent requests"), requests));
  view.onLook(async () => {
    const [brokers, told] = await Promise.all([get(view.path("brokers"), {}, view.signal), get(view.path("requests"), {}, view.signal)]);
    replace(rows, table([
      { name: "Broker", cell: (row) => [h("a", { href: place(view.cluster, "brokers", row.id) }, row.id), row.is_controller ? [" ", badge(t("controller"), "info")] : null] },
      { name: "Address", class: "mono", cell: (row) => plain(row.address) },
      { name: "Rack", cell: (row) => plain(row.rack ?? "–") },
      { name: "Leaders", number: true, cell: (row) => whole(row.leaders) },
      { name: "Replicas", number: true, cell: (row) => whole(row.replicas) },
      { name: "In sync", number: true, cell: (row) => (row.in_sync < row.replicas ? badge(whole(row.in_sync), "warning") : whole(row.in_sync)) },
      { name: "Size", number: true, cell: (row) => bytes(row.size_bytes) },
      ...(brokers.some((each) => each.certificate_expires_ms) ? [{ name: "Certificate expires", cell: certificate }] : []),
    ], brokers));
    replace(disks, table([
      { name: "Broker", number: true, cell: (row) => row.broker },
      { name: "Directory", class: "name mono", cell: (row) => plain(row.path) },
      { name: "Size", number: true, cell: (row) => bytes(row.size_bytes) },
      { name: "Free", number: true, cell: (row) => bytes(row.usable_bytes) },
      { name: "Disk", cell: usage },
      { name: "", cell: (row) => (row.problem ? badge(row.problem, "bad") : "") },
    ], brokers.flatMap((broker) => broker.log_dirs.map((each) => ({ ...each, broker: broker.id })))));
    const slow = Object.entries(told.by_broker).flatMap(([broker, page]) => (page.requests ?? []).filter((each) => each.lately).map((each) => ({ broker, ...each })));
    slow.sort((a, b) => b.parts.total.p99_ms - a.parts.total.p99_ms);
    const ms = (part) => (row) => `${row.parts[part]?.p99_ms.toFixed(1) ?? "–"} ms`;
    replace(requests, table([
      { name: "Broker", number: true, cell: (row) => row.broker },
      { name: "Request", cell: (row) => row.request },
      { name: "Count", number: true, cell: (row) => whole(row.count) },
      { name: "p50", number: true, cell: (row) => `${row.parts.total.p50_ms.toFixed(1)} ms` },
      { name: "p99", number: true, cell: ms("total") },
      { name: "Queue p99", number: true, cell: ms("queue") },
      { name: "Processing p99", number: true, cell: ms("local") },
      { name: "Waiting p99", number: true, cell: ms("remote") },
    ], slow.slice(0, 15), { none: nothing(t("No request metrics reported"), told.problems[0] ?? "") }));
  });
}

const DAY_MS = 86_400_000;

function certificate(row) {
  if (!row.certificate_expires_ms) return "–";
  const left = row.certificate_expires_ms - Date.now();
  return badge(moment(row.certificate_expires_ms).slice(0, 10), left < 7 * DAY_MS ? "bad" : left < 30 * DAY_MS ? "warning" : "good");
}

function usage(row) {
  if (!row.total_bytes) return "–";
  const share = 1 - row.usable_bytes / row.total_bytes;
  const bar = h("i", {});
  bar.style.width = `${Math.round(share * 100)}%`;
  return h("div", { class: "row" }, h("div", { class: `meter grow ${share > 0.9 ? "bad" : ""}` }, bar), `${Math.round(share * 100)} %`);
}

async function showBroker(view) {
  const [id] = view.parts;
  view.root.append(h("div", { class: "head" }, h("div", { class: "grow" }, h("span", { class: "crumb" }, h("a", { href: place(view.cluster, "brokers") }, t("Brokers"))), h("h1", {}, t("Broker {id}", { id })))),
    await configTable(`${view.path("brokers", id)}/configs`, atLeast(roleOn(view.cluster), "admin"), view.signal));
}
