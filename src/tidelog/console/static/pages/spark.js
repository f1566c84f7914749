// Spark: the pipelines, and any query by its checkpoint, with the lag that no group shows.
import { h, replace, card, badge, place, plain } from "../dom.js";
import { get } from "../api.js";
import { moment, rate, span, whole } from "../format.js";
import { table, nothing } from "../table.js";
import { t } from "../words.js";

export async function show(view) {
  const pipelines = h("div", {});
  const queries = h("div", {});
  const letters = h("p", { class: "muted small" });
  view.root.append(h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", {}, t("Spark")), letters)),
    card(t("Pipelines"), pipelines), card(t("Queries by their checkpoints"), queries));
  view.onLook(async () => {
    const page = await get(view.path("spark"), {}, view.signal);
    replace(letters, page.dead_letters === null ? null : t("{n} dead letters were written", { n: whole(page.dead_letters) }),
      page.outputs.map((each) => [" · ", h("a", { href: place(view.cluster, "topics", each) }, each)]));
    replace(pipelines, table([
      { name: "Pipeline", class: "name", cell: (row) => h("strong", {}, row.name) },
      { name: "State", cell: (row) => (row.running ? badge(t("running"), "good") : badge(t("not running"))) },
      { name: "Lag", number: true, cell: (row) => h("a", { href: place(view.cluster, "groups", row.group) }, whole(row.lag)) },
      { name: "Last batch", number: true, cell: (row) => whole(row.last_batch) },
      { name: "Age", number: true, cell: (row) => span(row.last_batch_age_s) },
      { name: "Batch time", number: true, cell: (row) => (row.batch_ms === null ? "–" : span(row.batch_ms / 1000)) },
      { name: "Rows", number: true, cell: (row) => rate(row.rows_per_second) },
      { name: "State rows", number: true, cell: (row) => whole(row.state_rows) },
      { name: "Late", number: true, cell: (row) => whole(row.late) },
      { name: "Dropped", number: true, cell: (row) => whole(row.dropped) },
    ], page.pipelines, { none: nothing(t("No pipelines are named."), "tidelog console --pipelines DIR") }));
    replace(queries, table([
      { name: "Query", class: "name", cell: (row) => [h("strong", {}, plain(row.name)), h("div", { class: "muted small" }, plain(row.path))] },
      { name: "Batch done", number: true, cell: (row) => whole(row.batch) },
      { name: "Begun", number: true, cell: (row) => whole(row.planned) },
      { name: "Age", number: true, cell: (row) => span(row.batch_age_s) },
      { name: "Reads", class: "name", cell: (row) => (row.problem ? badge(row.problem, "bad") : row.topics.map((each) => h("div", {}, h("a", { href: place(view.cluster, "topics", each.topic) }, plain(each.topic)), " ",
        h("span", { class: "muted small" }, each.lag === null ? "" : t("{n} records behind", { n: whole(each.lag) }))))) },
      { name: "Lag", number: true, cell: (row) => whole(row.lag) },
      { name: "Watermark", cell: (row) => (row.watermark_ms ? moment(row.watermark_ms) : "–") },
      { name: "State", cell: (row) => (row.has_state ? badge(t("keeps state")) : "") },
    ], page.queries, { none: nothing(t("No checkpoints are named."), "tidelog console --checkpoint DIR") }));
  });
}
