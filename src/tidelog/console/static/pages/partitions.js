// The partitions of a topic: where they are, moving them by a plan, how far moves are, and electing leaders.
import { h, replace, card, badge, plain, field } from "../dom.js";
import { atLeast, change, get, roleOn } from "../api.js";
import { byteRate, bytes, whole } from "../format.js";
import { table } from "../table.js";
import { lineChart } from "../chart.js";
import { ask } from "../dialog.js";
import { t } from "../words.js";

export function showPartitions(view, topic, body) {
  const chart = h("div", { class: "body" });
  const [rows, moves] = [0, 0].map(() => h("div", {}));
  const path = view.path("topics", topic.name);
  const admin = atLeast(topic.role, "admin") && !topic.internal;
  const actions = h("div", { class: "row" },
    admin ? h("button", { type: "button", onclick: () => reassign(view, topic, path) }, t("Reassign")) : null,
    atLeast(topic.role, "operator") ? h("button", { type: "button", onclick: () => elect(view, topic, path) }, t("Elect leaders")) : null);
  body.append(moves, card(t("Messages per second"), chart), card(t("Partitions"), rows, actions));
  view.onLook(async () => {
    const [now, points, moving] = await Promise.all([
      get(path, {}, view.signal), get(`${path}/rates`, { minutes: 60 }, view.signal), get(`${path}/reassignments`, {}, view.signal)]);
    replace(moves, movesCard(view, path, moving, admin));
    replace(chart, lineChart([{ name: "", points: points.map(([at, values]) => [at, values[0]]) }], { minutes: 60, label: t("Messages per second") }));
    replace(rows, table([
      { name: "Partition", number: true, cell: (row) => row.partition },
      { name: "Leader", number: true, cell: (row) => [row.leader ?? badge(t("none"), "bad"), row.leader !== null && row.leader !== row.replicas[0] ? [" ", badge(t("not preferred"), "warning")] : null] },
      { name: "Replicas", cell: (row) => row.replicas.map((each) => [badge(each, row.in_sync.includes(each) ? "good" : "warning"), " "]) },
      { name: "Start offset", number: true, cell: (row) => whole(row.start_offset) },
      { name: "End offset", number: true, cell: (row) => whole(row.end_offset) },
      { name: "Messages", number: true, cell: (row) => (row.end_offset === null ? "–" : whole(row.end_offset - row.start_offset)) },
      { name: "Size", number: true, cell: (row) => bytes(row.size_bytes) },
      { name: "", cell: (row) => (row.problem ? badge(row.problem, "bad") : "") },
    ], now.partitions, { label: t("Partitions") }));
  });
}

/** What is on its way, or nothing where nothing moves and no throttle is set. */
function movesCard(view, path, { moves, throttle, problem }, admin) {
  const brokers = Object.entries(throttle);
  if (!moves.length && !brokers.length) return problem ? h("p", { class: "muted small" }, plain(t("Cannot list reassignments: {problem}", { problem }))) : null;
  const again = (done) => done && view.look();
  const actions = h("div", { class: "row" },
    admin && moves.length ? h("button", {
      type: "button", class: "danger", onclick: () => ask({
        title: t("Cancel reassignments"), action: t("Cancel reassignments"), danger: true,
        content: h("p", {}, t("Partitions stay on their original brokers. Copied data is discarded.")),
        act: async () => (await change("POST", `${path}/reassign/cancel`)).remark || null,
      }).then(again),
    }, t("Cancel reassignments")) : null,
    brokers.length && !moves.length && atLeast(roleOn(view.cluster), "admin") ? h("button", {
      type: "button", onclick: () => ask({
        title: t("Remove throttle"), action: t("Remove"), content: h("p", {}, t("Removes the throttle from all topics and brokers of the cluster. This is not possible while partitions are moving.")),
        act: async () => { await change("DELETE", view.path("throttle")); return null; },
      }).then(again),
    }, t("Remove throttle")) : null);
  const limits = brokers.map(([broker, rate]) => `${t("Broker {id}", { id: broker })}: ${byteRate(rate)}`).join(", ");
  return card(t("Reassignments in progress"), [
    moves.length ? table([
      { name: "Partition", number: true, cell: (row) => row.partition },
      { name: "Replicas", cell: (row) => row.replicas.map((each) => [badge(each, row.removing.includes(each) ? "bad" : row.adding.some((one) => one.broker === each) ? "info" : "good"), " "]) },
      { name: "Copied", cell: (row) => row.adding.map((each) => progress(each, row.size_bytes)) },
      { name: "Removed", cell: (row) => row.removing.join(", ") || "–" },
    ], moves, { label: t("Reassignments in progress") }) : null,
    limits ? h("div", { class: "body muted small" }, t("Throttled: {list}", { list: limits })) : null], actions);
}

function progress({ broker, bytes: copied, in_sync: inSync }, size) {
  const share = inSync ? 1 : size ? Math.min((copied ?? 0) / size, 1) : 0;
  const bar = h("i", {});
  bar.style.width = `${Math.round(share * 100)}%`;
  return h("div", { class: "row" }, badge(broker, "info"), h("div", { class: "meter grow" }, bar),
    h("span", { class: "small muted" }, `${bytes(copied)} / ${bytes(size)}`));
}

async function reassign(view, topic, path) {
  const brokers = await get(view.path("brokers"), {}, view.signal);
  const ticks = brokers.map((each) => [each.id, h("input", { type: "checkbox", checked: true })]);
  const factor = h("input", { type: "number", min: 1, max: brokers.length, value: topic.partitions[0]?.replicas.length ?? 1 });
  const throttle = h("input", { type: "number", min: 0.001, step: "any", placeholder: t("no limit") });
  const chosen = () => ticks.filter(([, tick]) => tick.checked).map(([id]) => id);
  const limited = atLeast(roleOn(view.cluster), "admin");
  let plan = null;
  await ask({
    title: t("Reassign partitions"), action: t("Preview"),
    content: [h("p", { class: "muted" }, t("Preview the changes before applying them.")),
      h("fieldset", { class: "row" }, h("legend", {}, t("Brokers")), ticks.map(([id, tick]) => h("label", { class: "tick" }, tick, id))),
      h("div", { class: "row" }, field(t("Replication factor"), factor), limited ? field(t("Throttle (MB/s per broker)"), throttle) : null)],
    ready: () => chosen().length > 0 && Number(factor.value) >= 1,
    act: async () => {
      plan = await change("POST", `${path}/reassign`, { brokers: chosen(), replication_factor: Number(factor.value) });
      return plan.moves.length ? null : t("No moves needed: every partition is already in place.");
    },
  });
  if (!plan?.moves.length) return;
  const rate = throttle.value ? Math.max(1, Math.round(Number(throttle.value) * 1e6)) : null;
  const by = (key) => Object.fromEntries(plan.moves.map((each) => [String(each.partition), each[key]]));
  const done = await ask({
    title: t("Reassign partitions: preview"), action: t("Move partitions"), large: true, danger: true,
    content: [
      h("p", {}, t("{size} to copy: {list}.", {
        size: bytes(plan.copied_bytes),
        list: Object.entries(plan.copied_by_broker).map(([id, size]) => `${t("Broker {id}", { id })} ${bytes(size)}`).join(", ") || "–",
      }), plan.unknown_sizes ? ` ${t("The size of {n} partitions is unknown.", { n: plan.unknown_sizes })}` : null,
      rate ? ` ${t("Limited to {rate} per broker.", { rate: byteRate(rate) })}` : null),
      table([
        { name: "Partition", number: true, cell: (row) => row.partition },
        { name: "Now", cell: (row) => row.current.join(", ") },
        { name: "New", cell: (row) => row.new.map((each) => [badge(each, row.added.includes(each) ? "info" : ""), " "]) },
        { name: "Removed", cell: (row) => row.removed.join(", ") || "–" },
        { name: "Copied", number: true, cell: (row) => (row.added.length ? bytes(row.size_bytes === null ? null : row.size_bytes * row.added.length) : t("reorder only")) },
      ], plan.moves)],
    act: async () => { await change("POST", `${path}/reassign`, { replicas: by("new"), expected: by("current"), throttle_bytes: rate, dry_run: false }); return null; },
  });
  if (done) await view.look();
}

async function elect(view, topic, path) {
  const now = await get(path, {}, view.signal);
  const kind = h("select", {}, h("option", { value: "preferred" }, t("preferred replica")),
    atLeast(topic.role, "admin") ? h("option", { value: "unclean" }, t("any replica (unclean)")) : null);
  const typed = h("input", { class: "wide mono", autocomplete: "off", spellcheck: "false", "aria-label": t("Name to confirm") });
  const typing = field(t("Type the name to confirm"), typed, plain(topic.name));
  const said = h("p", {});
  const draw = () => {
    const unclean = kind.value === "unclean";
    const meant = now.partitions.filter((each) => (unclean ? each.leader === null : each.leader !== each.replicas[0])).map((each) => each.partition);
    typing.hidden = !unclean;
    replace(said, unclean ? t("Elects an out-of-sync replica for each partition without a leader. Messages that this replica lacks are lost.") : t("Makes the first replica of each partition its leader."),
      " ", meant.length ? t("Affected partitions: {list}", { list: meant.join(", ") }) : t("No partition needs an election."));
  };
  kind.addEventListener("change", draw);
  draw();
  const done = await ask({
    title: t("Elect leaders"), action: t("Elect"), content: [field(t("New leader"), kind), said, typing],
    ready: () => kind.value === "preferred" || typed.value === topic.name,
    act: async () => {
      const answer = await change("POST", `${path}/elect-leaders`, { type: kind.value, name: kind.value === "unclean" ? typed.value : "" });
      if (answer.refused.length) return answer.refused.map((each) => `${each.partition}: ${each.problem}`).join("; ");
      return answer.elected.length ? t("Leaders elected for partitions: {list}", { list: answer.elected.join(", ") }) : t("No partition needs an election.");
    },
  });
  if (done) await view.look();
}
