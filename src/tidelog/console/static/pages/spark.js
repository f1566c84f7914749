// Spark: the pipelines, the alerts that they found, and every query that tells of itself or has a checkpoint.
import { h, replace, card, badge, place, plain, refusal } from "../dom.js";
import { get } from "../api.js";
import { bytes, moment, rate, span, whole } from "../format.js";
import { table, nothing, pager } from "../table.js";
import { t } from "../words.js";

const ALERTS = 20;
const STATES = [["live", "active"], ["open", "open"], ["updated", "updated"], ["closed", "closed"], ["dismissed", "dismissed"], ["all", "all"]];
const LEVELS = { open: "bad", updated: "warning", closed: "", dismissed: "" };

export async function show(view) {
  const pipelines = h("div", {});
  const queries = h("div", {});
  const outputs = h("p", { class: "muted small" });
  const alerts = alertsOf(view);
  view.root.append(h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", {}, t("Spark")), outputs)),
    card(t("Pipelines"), pipelines), card(t("Queries"), queries), alerts.card);
  view.onLook(async () => {
    const page = await get(view.path("spark"), {}, view.signal);
    replace(outputs, page.dead_letters === null ? null
      : h("a", { href: place(view.cluster, "topics", page.dead_letter_topic) }, t("{n} dead letters written", { n: whole(page.dead_letters) })),
    page.outputs.filter((each) => each !== page.dead_letter_topic)
      .map((each, at) => [at || page.dead_letters !== null ? " · " : "", h("a", { href: place(view.cluster, "topics", each) }, each)]));
    replace(pipelines, pipelineTable(view.cluster, page.pipelines));
    replace(queries, queryTable(view.cluster, page.queries));
    await alerts.look(page.incident_topic);
  });
}

const FEW = 2;
const state = (running) => (running === null ? badge(t("not reporting")) : running ? badge(t("running"), "good") : badge(t("not running")));

function pipelineTable(cluster, rows) {
  return table([
    { name: "Pipeline", class: "name", cell: (row) => [h("strong", {}, row.name), row.host ? h("span", { class: "muted small" }, " · ", plain(row.host)) : null,
      outputsByKind(row.outputs).map(([kind, names]) => h("div", { class: "muted small", title: names.join(", ") }, `→ ${kind} `, outputNames(cluster, kind, names))),
      row.error ? h("div", {}, badge(plain(row.error), "bad")) : null] },
    { name: "State", cell: (row) => state(row.running) },
    { name: "Lag", number: true, cell: (row) => h("a", { href: place(cluster, "groups", row.group) }, whole(row.lag)) },
    { name: "Last batch", number: true, cell: (row) => [whole(row.last_batch), row.last_batch_age_s === null ? null
      : h("div", { class: "muted small" }, t("{age} ago", { age: span(row.last_batch_age_s) }))] },
    { name: "Batch time", number: true, cell: (row) => (row.batch_ms === null ? "–" : span(row.batch_ms / 1000)) },
    { name: "Rows", number: true, cell: (row) => rate(row.rows_per_second) },
    { name: "Watermark", cell: (row) => (row.watermark_ms ? moment(row.watermark_ms) : "–") },
    { name: "State rows", number: true, cell: (row) => [whole(row.state_rows), row.state_bytes ? h("div", { class: "muted small" }, bytes(row.state_bytes)) : null] },
    { name: "Late rows", number: true, cell: (row) => [whole(row.late), row.dropped ? h("div", { class: "muted small" }, t("{n} dropped", { n: whole(row.dropped) })) : null] },
    { name: "Malformed rows", number: true, cell: (row) => whole(row.malformed) },
  ], rows, { none: nothing(t("No pipelines reported"), "tidelog pipeline run · tidelog console --pipelines DIR"), label: t("Pipelines") });
}

/** What a pipeline writes to, told as "topic NAME" or "lake NAME", by kind. */
function outputsByKind(outputs) {
  const found = new Map();
  for (const each of outputs) {
    const [kind, ...rest] = each.split(" ");
    found.set(kind, [...(found.get(kind) ?? []), rest.join(" ")]);
  }
  return [...found];
}

/** Topics are links; of many tables their number is enough, the others are in the title. */
function outputNames(cluster, kind, names) {
  if (kind !== "topic" && names.length > FEW) return t("{n} tables", { n: names.length });
  return names.map((name, at) => [at ? ", " : "", kind === "topic" ? h("a", { href: place(cluster, "topics", name) }, plain(name)) : plain(name)]);
}

function queryTable(cluster, rows) {
  const topic = (name) => h("a", { href: place(cluster, "topics", name) }, plain(name));
  const where = (row) => [row.application === row.name ? null : row.application, row.host, row.spark ? `Spark ${row.spark}` : null, row.path].filter(Boolean).join(" · ");
  return table([
    { name: "Query", class: "name", cell: (row) => [h("strong", {}, plain(row.name)), h("div", { class: "muted small" }, plain(where(row))),
      row.query_id ? h("div", { class: "muted small mono" }, plain(row.query_id)) : null,
      row.error ? h("div", { title: t("Last error") }, badge(plain(row.error), "bad")) : null] },
    { name: "State", cell: (row) => [state(row.running), row.running === false && row.seen_age_s !== null
      ? h("div", { class: "muted small" }, t("seen {age} ago", { age: span(row.seen_age_s) })) : null,
    row.has_state ? h("div", {}, badge(t("stateful"))) : null] },
    { name: "Reads", class: "short", cell: (row) => (row.problem ? badge(plain(row.problem), "bad") : row.topics.length ? row.topics.map((each) => h("div", {}, topic(each.topic), " ",
      h("span", { class: "muted small" }, each.lag ? t("{n} messages behind", { n: whole(each.lag) }) : ""))) : "–") },
    { name: "Writes", class: "short", cell: (row) => (row.sinks.length ? row.sinks.map((each) => h("div", {}, each.topics.map((name) => [topic(name), " "]),
      h("span", { class: "muted small" }, t("epoch {epoch}, {n} rows", { epoch: whole(each.epoch), n: whole(each.rows) })))) : "–") },
    { name: "Lag", number: true, cell: (row) => (row.commit_group ? h("a", { href: place(cluster, "groups", row.commit_group) }, whole(row.lag)) : whole(row.lag)) },
    { name: "Rows", number: true, cell: (row) => rate(row.rows_per_second) },
    { name: "Last batch", number: true, cell: (row) => [whole(row.batch),
      row.planned !== null && row.planned !== row.batch ? h("div", { class: "muted small" }, t("{n} started", { n: whole(row.planned) })) : null,
      row.batches === null ? null : h("div", { class: "muted small" }, t("{n} in this run", { n: whole(row.batches) }))] },
    { name: "Age", number: true, cell: (row) => span(row.batch_age_s) },
    { name: "Batch time", number: true, cell: (row) => (row.batch_ms === null ? "–" : span(row.batch_ms / 1000)) },
    { name: "Watermark", cell: (row) => (row.watermark_ms ? moment(row.watermark_ms) : "–") },
  ], rows, { none: nothing(t("No Spark queries reported"), "spark.readStream.format(\"tidelog\") · tidelog console --checkpoint DIR"), label: t("Queries") });
}

/** The incidents that pipelines have found; nothing where there is no topic of them. */
function alertsOf(view) {
  const rows = h("div", {});
  let chosen = "live";
  let text = "";
  let start = 0;
  let topic = null;
  const states = h("select", { "aria-label": t("Alert state"), onchange: (event) => { chosen = event.target.value; start = 0; load(); } },
    STATES.map(([value, name]) => h("option", { value }, t(name))));
  const search = h("input", { type: "search", placeholder: t("Search alerts"), "aria-label": t("Search alerts"), onchange: (event) => { text = event.target.value; start = 0; load(); } });
  const box = card(t("Alerts"), rows, [search, " ", states]);
  box.hidden = true;
  async function load() {
    try {
      draw(await get(view.path("alerts"), { state: chosen, search: text, start, limit: ALERTS }, view.signal));
    } catch (error) {
      if (!view.signal.aborted) replace(rows, refusal(error));
    }
  }
  function draw(page) {
    for (const option of states.options) {
      const [, name] = STATES.find(([value]) => value === option.value);
      const count = option.value === "all" ? Object.values(page.counts).reduce((sum, each) => sum + each, 0)
        : option.value === "live" ? page.counts.open + page.counts.updated : page.counts[option.value];
      option.textContent = `${t(name)} (${whole(count)})`;
    }
    replace(rows, table([
      { name: "Subject", class: "name", cell: (row) => [h("strong", {}, plain(row.subject)), h("div", { class: "muted small" }, plain(`${row.subject_kind} · ${row.pipeline}`))] },
      { name: "State", cell: (row) => badge(t(row.state), LEVELS[row.state] ?? "") },
      { name: "Severity", cell: (row) => plain(row.severity || "–") },
      { name: "Score", number: true, cell: (row) => whole(row.score) },
      { name: "Peak", number: true, cell: (row) => whole(row.peak) },
      { name: "Reasons", class: "name", cell: (row) => plain(row.reasons.map((each) => String(each.rule ?? "")).filter(Boolean).join(", ") || "–") },
      { name: "Opened", cell: (row) => plain(row.opened || "–") },
      { name: "Updated", cell: (row) => plain(row.updated || "–") },
      { name: "Id", class: "mono", cell: (row) => h("a", { href: place(view.cluster, "topics", topic), title: `${row.partition}:${row.offset}` }, plain(row.alert_id.slice(0, 12))) },
    ], page.alerts, { none: nothing(t("No alerts match")), label: t("Alerts") }),
    pager(start, ALERTS, page.matched, (from) => { start = from; load(); }));
  }
  return {
    card: box,
    look: async (incidents) => {
      topic = incidents;
      box.hidden = incidents === null;
      if (incidents !== null) await load();
    },
  };
}
