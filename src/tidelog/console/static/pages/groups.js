// Groups: the list, and one of them with members, lag in records and seconds, its history, and its offsets.
import { h, replace, card, badge, place, plain, field } from "../dom.js";
import { atLeast, change, get, roleOn, session } from "../api.js";
import { lately, rate, short, span, whole } from "../format.js";
import { pager, sorted, table, nothing } from "../table.js";
import { lineChart } from "../chart.js";
import { ask, askTyped } from "../dialog.js";
import { whyText } from "../events.js";
import { t } from "../words.js";

const LEVELS = { Stable: "good", Empty: "", Dead: "bad" };
const stateBadge = (state) => badge(t(state), LEVELS[state] ?? "warning");
const SIZE = 100;
const HOURLY_GAP_S = 2 * 3600; // after a day the history has one figure an hour of a partition

export async function show(view) {
  if (view.parts.length) return showGroup(view);
  const order = { sort: "lag", descending: true, onSort: (sort, descending) => { Object.assign(order, { sort, descending }); start = 0; draw(); } };
  let rows = [];
  let text = "";
  let start = 0;
  let internal = false;
  const body = h("div", {});
  const count = h("p", { class: "muted small" });
  const search = h("input", { type: "search", placeholder: t("Search groups ( / )"), "aria-label": t("Search groups"), oninput: (event) => { text = event.target.value.toLowerCase(); start = 0; draw(); } });
  view.root.append(h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", {}, t("Groups")), count)), card(null, [h("header", {}, search, h("span", { class: "grow" }),
      h("label", { class: "tick" }, h("input", { type: "checkbox", onchange: (event) => { internal = event.target.checked; view.look(); } }), t("Internal"))), body]));
  const keys = { name: (row) => row.group, state: (row) => row.state, lag: (row) => row.lag, seconds: (row) => row.lag_seconds, rate: (row) => row.committed_per_second };
  function draw() {
    const shown = sorted(rows.filter((row) => row.group.toLowerCase().includes(text)), keys, order);
    if (start >= shown.length) start = 0;
    count.textContent = shown.length === rows.length ? t("{n} groups", { n: whole(rows.length) })
      : t("{n} of {total} groups", { n: whole(shown.length), total: whole(rows.length) });
    replace(body, table([
      { name: "Group", sort: "name", class: "name", cell: (row) => h("a", { href: place(view.cluster, "groups", row.group) }, plain(row.group)) },
      { name: "State", sort: "state", cell: (row) => stateBadge(row.state) },
      { name: "Protocol", cell: (row) => h("span", { class: "muted" }, row.type) },
      { name: "Topics", number: true, cell: (row) => whole(row.topics) },
      { name: "Partitions", number: true, cell: (row) => whole(row.partitions) },
      { name: "Lag", sort: "lag", number: true, cell: (row) => whole(row.lag) },
      { name: "Time lag", sort: "seconds", number: true, cell: (row) => (row.lag ? span(row.lag_seconds, row.at_least) : row.lag === 0 ? "0" : "–") },
      { name: "Committed", sort: "rate", number: true, cell: (row) => rate(row.committed_per_second) },
    ], shown.slice(start, start + SIZE), { order, label: t("Groups"), none: nothing(text ? t("No groups match") : t("No groups yet"), t("A group appears when a consumer joins it or commits an offset.")) }),
    pager(start, SIZE, shown.length, (next) => { start = next; draw(); }));
  }
  view.onLook(async () => { rows = await get(view.path("groups"), { internal }, view.signal); draw(); });
}

async function showGroup(view) {
  const [name] = view.parts;
  const head = h("p", { class: "muted small" });
  const [records, seconds, partitions, members, rebalances, byPartition] = [0, 0, 0, 0, 0, 0].map(() => h("div", {}));
  let minutes = 60;
  const range = h("select", { "aria-label": t("Time span"), onchange: (event) => { minutes = Number(event.target.value); drawCharts(); drawPartitions(); } },
    [[60, "1 hour"], [360, "6 hours"], [1440, "1 day"], [10080, "7 days"]].map(([value, text]) => h("option", { value }, t(text))));
  const ofTopic = h("select", { "aria-label": t("Topic"), onchange: () => { arrangePartitions(); drawPartitions(); } });
  const ofPartition = h("select", { "aria-label": t("Partition"), onchange: () => drawPartitions() });
  let places = [];
  const admin = atLeast(roleOn(view.cluster), "admin");
  view.root.append(
    h("div", { class: "head" }, h("div", { class: "grow" }, h("span", { class: "crumb" }, h("a", { href: place(view.cluster, "groups") }, t("Groups"))), h("h1", {}, plain(name)), head),
      range,
      session.read_only ? null : h("button", { type: "button", onclick: () => reset(view, name) }, t("Reset offsets")),
      admin ? h("button", {
        type: "button", class: "danger", onclick: async () => {
          const done = await askTyped({
            title: t("Delete group"), text: t("The group's committed offsets will be permanently deleted. The group must have no members."), name, action: t("Delete"),
            act: () => change("DELETE", view.path("groups", name), { name }).then(() => null),
          });
          if (done) location.hash = place(view.cluster, "groups");
        },
      }, t("Delete")) : null),
    h("div", { class: "columns" }, card(t("Lag (messages)"), h("div", { class: "body" }, records)), card(t("Lag (seconds)"), h("div", { class: "body" }, seconds))),
    card(t("Partitions"), partitions), card(t("Lag by partition"), h("div", { class: "body" }, byPartition), h("div", { class: "row" }, ofTopic, ofPartition)), card(t("Members"), members), card(t("Rebalance history"), rebalances));
  async function drawCharts() {
    const history = await get(view.path("groups", name, "lag"), { minutes }, view.signal);
    const series = (index) => Object.entries(history).slice(0, 10).map(([topic, points]) => ({ name: topic, points: points.map(([at, values]) => [at, values[index]]) }));
    replace(records, lineChart(series(0), { minutes, label: t("Lag (messages)") }));
    replace(seconds, lineChart(series(1), { minutes, format: (value) => span(value), label: t("Lag (seconds)") }));
  }
  /** What can be chosen, keeping what is. */
  function choose(select, options) {
    const chosen = select.value;
    if ([...select.options].map((each) => each.value).join() === options.map(([value]) => value).join()) return;
    replace(select, options.map(([value, label]) => h("option", { value, selected: value === chosen }, label)));
  }
  function arrangePartitions() {
    choose(ofTopic, [...new Set(places.map((each) => each.topic))].map((each) => [each, each]));
    choose(ofPartition, [["", t("highest lag")], ...places.filter((each) => each.topic === ofTopic.value).map((each) => [String(each.partition), t("partition {n}", { n: each.partition })])]);
  }
  async function drawPartitions() {
    if (!ofTopic.value) return replace(byPartition, nothing(t("No committed offsets and no assigned partitions")));
    const found = await get(view.path("groups", name, "lag", "partitions"), { topic: ofTopic.value, partition: ofPartition.value, minutes }, view.signal);
    const series = found.partitions.map((each) => ({ name: t("partition {n}", { n: each.partition }), points: each.points.map(([at, values]) => [at, values[0]]) }));
    return replace(byPartition, series.length ? lineChart(series, { minutes, label: t("Lag by partition"), gap: minutes > 1440 ? HOURLY_GAP_S : undefined }) : nothing(t("No lag in this time span")),
      found.left_out ? h("p", { class: "muted small" }, t("{n} more partitions had lag.", { n: whole(found.left_out) })) : null);
  }
  view.onLook(async () => {
    const group = await get(view.path("groups", name), {}, view.signal);
    places = group.partitions;
    arrangePartitions();
    replace(head, stateBadge(group.state), " ", [group.type, group.assignor, t("coordinator {id}", { id: group.coordinator }), t("{n} messages behind", { n: short(group.lag) })].filter(Boolean).join(" · "));
    replace(partitions, table([
      { name: "Topic", class: "name", cell: (row) => h("a", { href: place(view.cluster, "topics", row.topic) }, plain(row.topic)) },
      { name: "Partition", number: true, cell: (row) => row.partition },
      { name: "Committed", number: true, cell: (row) => whole(row.committed) },
      { name: "End offset", number: true, cell: (row) => whole(row.end) },
      { name: "Lag", number: true, cell: (row) => whole(row.lag) },
      { name: "Time lag", number: true, cell: (row) => (row.lag === 0 ? "0" : span(row.lag_seconds, row.at_least)) },
      { name: "Member", class: "name", cell: (row) => (row.problem ? badge(row.problem, "bad") : plain(row.member ?? "–")) },
    ], group.partitions, { none: nothing(t("No committed offsets and no assigned partitions")) }));
    replace(members, table([
      { name: "Client id", class: "name", cell: (row) => plain(row.client_id) },
      { name: "Host", cell: (row) => plain(row.host) },
      { name: "Member id", class: "name", cell: (row) => [h("span", { class: "mono muted" }, plain(row.member_id)), row.instance_id ? [" ", badge(row.instance_id, "info")] : null] },
      { name: "Partitions", class: "name", cell: (row) => plain(row.partitions.join(", ") || "–") },
    ], group.members, { none: nothing(t("No active members")) }));
    replace(rebalances, group.rebalances.length ? h("div", { class: "feed" }, group.rebalances.map((each) => h("div", {},
      h("time", { class: "muted small" }, lately(each.at_ms)), h("span", { class: "dot info" }), h("span", {}, plain(whyText(each.args))))))
      : nothing(t("No rebalances since the console started monitoring")));
    await Promise.all([drawCharts(), drawPartitions()]);
  });
}

async function reset(view, name) {
  const path = `${view.path("groups", name)}/reset`;
  const to = h("select", {}, [["earliest", "earliest offset"], ["latest", "latest offset"], ["offset", "specific offset"], ["time", "point in time"], ["shift", "shift by n messages (negative: back)"]].map(([value, text]) => h("option", { value }, t(text))));
  const number = h("input", { type: "number", value: 0 });
  const time = h("input", { type: "datetime-local", step: 1 });
  const topic = h("input", { class: "wide mono", placeholder: t("all committed topics"), autocomplete: "off" });
  const arrange = () => { number.hidden = !["offset", "shift"].includes(to.value); time.hidden = to.value !== "time"; };
  to.addEventListener("change", arrange);
  arrange();
  const request = () => ({ to: to.value, topic: topic.value.trim() || null, number: to.value === "time" ? new Date(time.value).getTime() : Number(number.value) });
  let plan = null;
  await ask({
    title: t("Reset offsets"), action: t("Preview"),
    content: [h("p", { class: "muted" }, t("Preview the changes before applying them.")), h("div", { class: "row" }, field(t("To"), to), number, time), field(t("Topic"), topic)],
    ready: () => to.value !== "time" || time.value !== "",
    act: async () => { plan = await change("POST", path, request()); return null; },
  });
  if (!plan) return;
  const done = await ask({
    title: t("Reset offsets: preview"), action: t("Apply changes"), large: true, danger: true,
    content: table([
      { name: "Topic", class: "name", cell: (row) => plain(row.topic) }, { name: "Partition", number: true, cell: (row) => row.partition },
      { name: "Committed", number: true, cell: (row) => whole(row.current) }, { name: "New", number: true, cell: (row) => whole(row.new) },
      { name: "Change", number: true, cell: (row) => (row.current === null ? "–" : whole(row.new - row.current)) }, { name: "", cell: (row) => h("span", { class: "muted small" }, t(row.remark)) },
    ], plan.offsets),
    act: async () => { await change("POST", path, { plan: plan.offsets, dry_run: false }); return null; },
  });
  if (done) await view.look();
}
