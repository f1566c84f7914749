// A picture of who writes and reads: producers, topics, readers, sinks; width by rate, colour by lag.
import { h, svg, replace, card, empty, place, visible } from "../dom.js";
import { get } from "../api.js";
import { rate, short, whole } from "../format.js";
import { t } from "../words.js";

const COLUMNS = [
  ["Producers", ["producer"]],
  ["Topics", ["topic"]],
  ["Groups and queries", ["group", "query", "pipeline"]],
  ["Sinks", ["topic sink", "lake", "sqlite", "cassandra"]],
];
const SINKS = { "topic sink": "Topic", lake: "Lake", sqlite: "SQLite", cassandra: "Cassandra" };
const BOX = { width: 230, height: 40, gap: 12, between: 100 };
const LATE = 1000;

export async function show(view) {
  const picture = h("div", { class: "topology body" });
  const remark = h("p", { class: "muted small" });
  view.root.append(h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", {}, t("Topology")), remark)),
    card(null, picture));
  view.onLook(async () => {
    const found = await get(view.path("topology"), {}, view.signal);
    remark.textContent = [
      t("Line width shows throughput. Green: keeping up. Amber: behind. Red: behind and not reading."),
      found.hidden ? t("{n} less active topics are not shown.", { n: whole(found.hidden) }) : "",
      found.hidden_groups ? t("{n} less active groups are not shown.", { n: whole(found.hidden_groups) }) : "",
      found.hidden_producers ? t("{n} less active producers are not shown.", { n: whole(found.hidden_producers) }) : "",
    ].join(" ");
    replace(picture, found.nodes.length ? draw(view.cluster, found) : empty(t("No topics yet")));
  });
}

function draw(cluster, { nodes, edges }) {
  const all = COLUMNS.map(([name, kinds]) => [name, nodes.filter((each) => kinds.includes(each.kind))]);
  // Of sinks nothing is known in most clusters: their place is left to the others.
  const kept = all.filter(([, column], at) => at < 3 || column.length);
  const columns = kept.map(([, column]) => column);
  const rows = Math.max(...columns.map((each) => each.length));
  const height = 34 + rows * (BOX.height + BOX.gap) + 8;
  const width = columns.length * BOX.width + (columns.length - 1) * BOX.between * (columns.length > 3 ? 1 : 2) + 4;
  const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": t("Topology") });
  const places = new Map();
  const step = (width - BOX.width - 4) / (columns.length - 1);
  orderByNeighbours(columns, edges);
  columns.forEach((column, index) => {
    const free = (rows - column.length) * (BOX.height + BOX.gap) / 2;
    column.forEach((node, at) => places.set(node.id, { x: 2 + index * step, y: 34 + free + at * (BOX.height + BOX.gap), node }));
    drawn.append(svg("text", { class: "column", x: 2 + index * step, y: 16 }, t(kept[index][0])));
  });
  const most = Math.max(...edges.map((each) => each.records_per_second), 1);
  for (const edge of edges) {
    const [from, to] = [places.get(edge.source), places.get(edge.target)];
    if (!from || !to) continue;
    const [x1, y1, x2, y2] = [from.x + BOX.width, from.y + BOX.height / 2, to.x, to.y + BOX.height / 2];
    const bend = (x2 - x1) / 2;
    const thick = 1.2 + 8 * Math.sqrt(edge.records_per_second / most);
    const told = [edge.records_per_second ? rate(edge.records_per_second) : "", edge.lag ? t("{n} messages behind", { n: short(edge.lag) }) : ""];
    drawn.append(svg("path", {
      class: `edge ${levelOf(edge)}`, "stroke-width": thick.toFixed(1),
      d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`,
    }, svg("title", {}, visible(`${from.node.name} → ${to.node.name} ${told.filter(Boolean).join(", ")}`))));
  }
  for (const { x, y, node } of places.values()) drawn.append(box(cluster, x, y, node));
  return drawn;
}

/** Put each node near those that it is tied to, so that fewer lines cross: from the topics outward. */
function orderByNeighbours(columns, edges) {
  const near = new Map();
  for (const { source, target } of edges) {
    for (const [one, other] of [[source, target], [target, source]]) near.set(one, [...(near.get(one) ?? []), other]);
  }
  const order = (column, beside) => {
    const position = new Map(beside.map((each, at) => [each.id, at]));
    const middle = (id) => {
      const known = (near.get(id) ?? []).map((each) => position.get(each)).filter((each) => each !== undefined);
      return known.length ? known.reduce((sum, each) => sum + each, 0) / known.length : beside.length;
    };
    const keys = new Map(column.map((each) => [each.id, middle(each.id)]));
    column.sort((a, b) => keys.get(a.id) - keys.get(b.id));
  };
  const [producers, topics, readers, sinks] = columns;
  order(producers, topics);
  order(readers, topics);
  if (sinks) order(sinks, readers);
}

function levelOf(edge) {
  if (edge.lag === null) return "";
  if (edge.lag < LATE) return "good";
  return edge.records_per_second > 0 ? "late" : "bad";
}

/** What stands below the name of a node. */
function subtitle(node) {
  if (node.kind === "topic") return node.records_per_second ? rate(node.records_per_second) : t("idle");
  if (node.kind === "producer") return node.detail || t("active recently");
  if (node.kind in SINKS) return t(SINKS[node.kind]);
  const kind = { group: t(node.state), query: "Spark", pipeline: t("Pipeline") }[node.kind];
  const state = node.kind === "group" || !node.state ? "" : t(node.state);
  return [kind, state, node.lag === null ? "" : t("{n} messages behind", { n: short(node.lag) })].filter(Boolean).join(" · ");
}

const cut = (text, most) => ([...text].length > most ? `${[...text].slice(0, most - 1).join("")}…` : text);

function box(cluster, x, y, node) {
  const parts = [svg("rect", { x, y, width: BOX.width, height: BOX.height, rx: 7 }), svg("title", {}, visible([node.name, node.detail].filter(Boolean).join(" · "))),
    // A picture of its own, which cuts what is too wide.
    svg("svg", { x: x + 11, y, width: BOX.width - 16, height: BOX.height },
      svg("text", { y: 17 }, cut(visible(node.name), 28)), svg("text", { class: "sub", y: 32 }, cut(visible(subtitle(node)), 38)))];
  return node.page.length ? svg("a", { href: place(cluster, ...node.page) }, parts) : svg("g", {}, parts);
}
