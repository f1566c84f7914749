// A cluster at a glance: health, rates over the last hour, what changed lately.
import { h, replace, card, empty, place, plain } from "../dom.js";
import { get } from "../api.js";
import { bytes, byteRate, lately, rate, short, whole } from "../format.js";
import { lineChart } from "../chart.js";
import { eventText } from "../events.js";
import { t } from "../words.js";

const MINUTES = 60;

export async function show(view) {
  const tiles = h("div", { class: "tiles" });
  const problems = h("div", { class: "stack tight" });
  const records = h("div", { class: "body" });
  const size = h("div", { class: "body" });
  const feed = h("div", {});
  view.root.append(
    h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", {}, t("Overview")))),
    problems, tiles,
    h("div", { class: "columns" }, card(t("Messages per second"), records), card(t("Bytes per second"), size)),
    card(t("Recent changes"), feed));
  view.onLook(async () => {
    const [now, points, events] = await Promise.all([
      get(view.path("overview"), {}, view.signal),
      get(view.path("rates"), { minutes: MINUTES }, view.signal),
      get(view.path("events"), { limit: 60 }, view.signal),
    ]);
    replace(problems, now.problems.map((each) => h("div", { class: "refusal" }, plain(each))));
    replace(tiles, tilesOf(view.cluster, now));
    replace(records, lineChart([{ name: "", points: points.map(([at, values]) => [at, values[0]]) }],
      { minutes: MINUTES, label: t("Messages per second") }));
    replace(size, lineChart([{ name: "", points: points.map(([at, values]) => [at, values[1]]) }],
      { minutes: MINUTES, format: bytes, label: t("Bytes per second") }));
    replace(feed, events.length ? h("div", { class: "feed" }, events.map((each) => h("div", {},
      h("time", { class: "muted small" }, lately(each.at_ms)),
      h("span", { class: `dot ${each.level}` }),
      h("span", {}, eventText(view.cluster, each)))))
      : empty(t("No changes since the console started monitoring"), t("Changes to leaders, topics, configs, groups, disks and certificates appear here.")));
  });
}

function tilesOf(cluster, now) {
  const tile = (name, value, more, { level = "", page = null } = {}) =>
    h(page ? "a" : "div", { class: `tile ${level}`, href: page ? place(cluster, page) : null },
      h("span", { class: "name" }, name), h("span", { class: "value" }, value), h("span", { class: "more" }, more));
  const healthy = !now.offline && !now.under_replicated;
  return [
    tile(t("Partitions"), healthy ? t("healthy") : t("{n} at risk", { n: whole(now.offline + now.under_replicated) }),
      healthy ? t("{n}, all in sync", { n: whole(now.partitions) }) : t("{n} of {m} offline", { n: whole(now.offline), m: whole(now.partitions) }),
      { level: healthy ? "good" : "bad", page: "topics" }),
    tile(t("Brokers"), whole(now.brokers), now.controller === null ? t("no controller") : t("controller {id}", { id: now.controller }),
      { level: now.controller === null ? "bad" : "", page: "brokers" }),
    tile(t("Topics"), whole(now.topics), bytes(now.size_bytes), { page: "topics" }),
    tile(t("Groups"), whole(now.groups), t("{n} messages behind", { n: short(now.total_lag) }), { page: "groups" }),
    tile(t("Message rate"), rate(now.records_per_second), byteRate(now.bytes_per_second)),
    tile(t("Fullest disk"), now.fullest_disk === null ? "–" : `${Math.round(now.fullest_disk * 100)} %`, t("used"),
      { level: now.fullest_disk > 0.9 ? "bad" : "", page: "brokers" }),
  ];
}
