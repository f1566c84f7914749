// Who is connected, with what software, whether quotas hold them back; what clients push of themselves, and why they do.
import { h, replace, card, badge, plain, refusal, field } from "../dom.js";
import { atLeast, change, get, roleOn } from "../api.js";
import { byteRate, bytes, rate, span, whole } from "../format.js";
import { pager, table, nothing } from "../table.js";
import { ask } from "../dialog.js";
import { t } from "../words.js";

const SIZE = 100;

export async function show(view) {
  const rows = h("div", {});
  const count = h("p", { class: "muted small" });
  let text = "";
  let start = 0;
  let found = [];
  let problems = [];
  const search = h("input", { type: "search", placeholder: t("Search clients ( / )"), "aria-label": t("Search clients"), oninput: (event) => { text = event.target.value.toLowerCase(); start = 0; draw(); } });
  view.root.append(h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", {}, t("Clients")), count)), card(null, [h("header", {}, search), rows]));
  showTelemetry(view);
  showSubscriptions(view);
  function draw() {
    const shown = found.filter((row) => `${row.client_id} ${row.software} ${row.host} ${row.principal}`.toLowerCase().includes(text));
    if (start >= shown.length) start = 0;
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
    ], shown.slice(start, start + SIZE), { none: nothing(t("No connections reported"), problems[0] ?? "") }),
    pager(start, SIZE, shown.length, (next) => { start = next; draw(); }));
  }
  view.onLook(async () => {
    const page = await get(view.path("clients"), {}, view.signal);
    problems = page.problems;
    found = Object.entries(page.by_broker).flatMap(([broker, each]) => (each.connections ?? []).map((row) => ({ broker, ...row })));
    found.sort((a, b) => b.received_bytes + b.sent_bytes - a.received_bytes - a.sent_bytes);
    draw();
  });
}

const ms = (value) => (value === undefined ? null : `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`);
const percent = (value) => (value === undefined ? null : `${Math.round(value * 100)} %`);

// The figures that tell most, by what clients call them; those that a client does not push are left out.
const TOLD = {
  producer: [
    ["Sent", (all) => rate(all.producer_record_send_rate)], ["", (all) => byteRate(all.producer_byte_rate)],
    ["Latency", (all) => ms(all.producer_node_request_latency_avg)], ["max", (all) => ms(all.producer_node_request_latency_max)],
    ["Queue time", (all) => ms(all.producer_record_queue_time_avg)], ["Throttle time", (all) => (all.producer_produce_throttle_time_avg ? ms(all.producer_produce_throttle_time_avg) : null)],
    ["Errors", (all) => (all.producer_record_error_total ? whole(all.producer_record_error_total) : null)],
  ],
  consumer: [
    ["Read", (all) => rate(all.consumer_fetch_manager_records_consumed_rate)], ["", (all) => byteRate(all.consumer_fetch_manager_bytes_consumed_rate)],
    ["Max lag", (all) => (all.consumer_fetch_manager_records_lag_max === undefined ? null : whole(all.consumer_fetch_manager_records_lag_max))],
    ["Fetch latency", (all) => ms(all.consumer_fetch_manager_fetch_latency_avg)], ["Partitions", (all) => (all.consumer_coordinator_assigned_partitions === undefined ? null : whole(all.consumer_coordinator_assigned_partitions))],
    ["Commit latency", (all) => ms(all.consumer_coordinator_commit_latency_avg)], ["Longest rebalance", (all) => (all.consumer_coordinator_rebalance_latency_max ? ms(all.consumer_coordinator_rebalance_latency_max) : null)],
    ["Poll idle", (all) => percent(all.consumer_poll_idle_ratio_avg)],
  ],
  other: [],
};

// What a client says of itself; its member id is long and says nothing to people.
const about = (row) => Object.entries(row.about).filter(([name]) => name !== "group_member_id").map(([name, value]) => `${name} ${value}`).join(", ");

function told(row) {
  const shown = TOLD[row.kind].map(([label, text]) => [label, text(row.figures)]).filter(([, text]) => text !== null && text !== "–");
  return shown.length ? shown.map(([label, text], index) => [index ? " · " : "", label ? [h("span", { class: "muted" }, t(label)), " "] : "", text]) : "–";
}

function showTelemetry(view) {
  const rows = h("div", {});
  let start = 0;
  let page = { clients: [], problems: [] };
  view.root.append(card(t("Client metrics (KIP-714)"), rows));
  function draw() {
    if (start >= page.clients.length) start = 0;
    replace(rows, table([
      { name: "Client id", class: "name", cell: (row) => [plain(row.client_id || "–"), h("div", { class: "muted small" }, plain(about(row)))] },
      { name: "Software", cell: (row) => plain(row.software) },
      { name: "Address", class: "mono", cell: (row) => plain(row.address) },
      { name: "Metrics", class: "name", cell: told },
      { name: "Since last push", number: true, cell: (row) => span(row.pushed_ms_ago / 1000) },
      { name: "", class: "still", cell: (row) => h("button", { type: "button", onclick: () => allFigures(view, row) }, t("All {n}", { n: whole(row.series) })) },
    ], page.clients.slice(start, start + SIZE), { label: t("Client metrics (KIP-714)"), none: nothing(t("No recent client metrics"), page.problems[0] ?? t("Add a subscription below. Tidelog brokers with a metrics listener report client metrics here.")) }),
    pager(start, SIZE, page.clients.length, (next) => { start = next; draw(); }));
  }
  view.onLook(async () => {
    page = await get(view.path("telemetry"), {}, view.signal).catch((error) => { if (view.signal.aborted) throw error; return { clients: [], problems: [error.message] }; });
    draw();
  });
}

async function allFigures(view, row) {
  const figures = await get(view.path("telemetry", row.instance_id), {}, view.signal);
  await ask({
    title: row.client_id || row.instance_id, action: t("Close"), only: true, large: true,
    content: table([
      { name: "Metric", class: "name mono", cell: (each) => plain(each.name.replace("kafka_client_", "")) },
      { name: "Labels", class: "short mono", cell: (each) => plain(each.labels || "–") },
      { name: "Value", number: true, cell: (each) => whole(each.value) },
    ], figures),
    act: () => null,
  });
}

function showSubscriptions(view) {
  const rows = h("div", {});
  const admin = atLeast(roleOn(view.cluster), "admin");
  const again = (done) => done && view.look();
  view.root.append(card(t("Client metrics subscriptions"), rows, admin ? h("button", { type: "button", onclick: () => subscribe(view, null).then(again) }, t("Add")) : null));
  view.onLook(async () => {
    try {
      const found = await get(view.path("client-metrics"), {}, view.signal);
      replace(rows, table([
        { name: "Name", class: "name", cell: (row) => plain(row.name) },
        { name: "Metrics", class: "name mono", cell: (row) => plain(row.metrics.join(", ") || "–") },
        { name: "Interval", number: true, cell: (row) => span(row.interval_ms / 1000) },
        { name: "Clients", class: "name mono", cell: (row) => plain(row.match.join(", ") || "*") },
        { name: "", cell: (row) => (admin ? h("button", { type: "button", onclick: () => subscribe(view, row).then(again) }, t("Change")) : null) },
        { name: "", cell: (row) => (admin ? h("button", { type: "button", onclick: () => unsubscribe(view, row).then(again) }, t("Remove")) : null) },
      ], found, { none: nothing(t("No subscriptions: clients push no metrics")) }));
    } catch (error) {
      if (view.signal.aborted) return;
      replace(rows, h("div", { class: "body" }, error.code === "UNSUPPORTED_VERSION" ? t("This cluster does not support client metrics (KIP-714, Kafka 3.7 or later).") : refusal(error)));
    }
  });
}

function subscribe(view, row) {
  const name = h("input", { class: "wide mono", autocomplete: "off", value: row?.name ?? "", disabled: row !== null });
  const metrics = h("input", { class: "wide mono", autocomplete: "off", value: row?.metrics.join(", ") ?? "*" });
  const seconds = h("input", { type: "number", min: 0.1, max: 3600, step: "any", value: (row?.interval_ms ?? 60_000) / 1000 });
  const match = h("input", { class: "wide mono", autocomplete: "off", placeholder: "client_id=orders-.*", value: row?.match.join(", ") ?? "" });
  const parts = (text) => text.split(",").map((each) => each.trim()).filter(Boolean);
  return ask({
    title: t("Client metrics subscription"), action: t("Save"),
    content: [field(t("Name"), name), field(t("Metrics (name prefixes; * for all)"), metrics), field(t("Interval (seconds)"), seconds),
      field(t("Clients (selector=regex; empty matches all)"), match)],
    ready: () => name.value.trim() !== "" && metrics.value.trim() !== "" && seconds.value !== "",
    act: () => change("PUT", view.path("client-metrics", name.value.trim()), { metrics: parts(metrics.value), interval_ms: Math.round(Number(seconds.value) * 1000), match: parts(match.value) }).then(() => null),
  });
}

const unsubscribe = (view, row) => ask({
  title: t("Remove subscription"), action: t("Remove"), danger: true, content: h("p", {}, plain(row.name)),
  act: () => change("DELETE", view.path("client-metrics", row.name)).then(() => null),
});
