// A picture of who writes and reads: producers, topics, groups; width by rate, colour by lag.
import { h, svg, replace, card, empty, place } from "../dom.js";
import { get } from "../api.js";
import { rate, short } from "../format.js";
import { t } from "../words.js";

const COLUMNS = ["producer", "topic", "group"];
const NAMES = { producer: "Producers", topic: "Topics", group: "Groups and queries" };
const BOX = { width: 230, height: 40, gap: 12 };
const LATE = 1000;

export async function show(view) {
  const picture = h("div", { class: "topology body" });
  const remark = h("p", { class: "muted small" });
  view.root.append(h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", {}, t("Topology")), remark)),
    card(null, picture));
  view.onLook(async () => {
    const found = await get(view.path("topology"), {}, view.signal);
    remark.textContent = [
      t("Lines are as thick as records are many; green keeps up, amber is behind, red is behind and does not read."),
      found.hidden ? t("{n} quieter topics are left out.", { n: found.hidden }) : "",
    ].join(" ");
    replace(picture, found.nodes.length ? draw(view.cluster, found) : empty(t("There are no topics yet.")));
  });
}

function draw(cluster, { nodes, edges }) {
  const columns = COLUMNS.map((kind) => nodes.filter((each) => each.kind === kind || (kind === "group" && each.kind === "query")));
  const rows = Math.max(...columns.map((each) => each.length));
  const height = 34 + rows * (BOX.height + BOX.gap) + 8;
  const width = 1120;
  const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": t("Topology") });
  const places = new Map();
  const step = (width - BOX.width - 4) / 2;
  orderByNeighbours(columns, edges);
  columns.forEach((column, index) => {
    const free = (rows - column.length) * (BOX.height + BOX.gap) / 2;
    column.forEach((node, at) => places.set(node.id, { x: 2 + index * step, y: 34 + free + at * (BOX.height + BOX.gap), node }));
    drawn.append(svg("text", { class: "column", x: 2 + index * step, y: 16 }, t(NAMES[COLUMNS[index]])));
  });
  const most = Math.max(...edges.map((each) => each.records_per_second), 1);
  for (const edge of edges) {
    const [from, to] = [places.get(edge.source), places.get(edge.target)];
    if (!from || !to) continue;
    const [x1, y1, x2, y2] = [from.x + BOX.width, from.y + BOX.height / 2, to.x, to.y + BOX.height / 2];
    const bend = (x2 - x1) / 2;
    const thick = 1.2 + 8 * Math.sqrt(edge.records_per_second / most);
    const told = [edge.records_per_second ? rate(edge.records_per_second) : "", edge.lag ? t("{n} records behind", { n: short(edge.lag) }) : ""];
    drawn.append(svg("path", {
      class: `edge ${levelOf(edge)}`, "stroke-width": thick.toFixed(1),
      d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`,
    }, svg("title", {}, `${from.node.name} → ${to.node.name} ${told.filter(Boolean).join(", ")}`)));
  }
  for (const { x, y, node } of places.values()) drawn.append(box(cluster, x, y, node));
  return drawn;
}

/** Put each node near those that it is tied to, so that fewer lines cross. */
function orderByNeighbours(columns, edges) {
  const [producers, topics, groups] = columns;
  const position = new Map(topics.map((each, at) => [each.id, at]));
  const middle = (id) => {
    const near = edges.flatMap((each) => (each.source === id ? [each.target] : each.target === id ? [each.source] : []));
    const known = near.map((each) => position.get(each)).filter((each) => each !== undefined);
    return known.length ? known.reduce((sum, each) => sum + each, 0) / known.length : topics.length;
  };
  for (const column of [producers, groups]) {
    const keys = new Map(column.map((each) => [each.id, middle(each.id)]));
    column.sort((a, b) => keys.get(a.id) - keys.get(b.id));
  }
}

function levelOf(edge) {
  if (edge.lag === null) return "";
  if (edge.lag < LATE) return "good";
  return edge.records_per_second > 0 ? "late" : "bad";
}

function box(cluster, x, y, node) {
  const sub = node.kind === "group" || node.kind === "query" ? [node.kind === "query" ? "Spark" : t(node.state), node.lag === null ? "" : t("{n} records behind", { n: short(node.lag) })].filter(Boolean).join(" · ")
    : node.kind === "topic" ? (node.records_per_second ? rate(node.records_per_second) : t("quiet")) : t("wrote lately");
  const name = [...node.name].length > 30 ? `${[...node.name].slice(0, 29).join("")}…` : node.name;
  const page = { topic: "topics", group: "groups", query: "spark" }[node.kind];
  const parts = [svg("rect", { x, y, width: BOX.width, height: BOX.height, rx: 7 }), svg("title", {}, node.name),
    svg("text", { x: x + 11, y: y + 17 }, name), svg("text", { class: "sub", x: x + 11, y: y + 32 }, sub)];
  return page ? svg("a", { href: node.kind === "query" ? place(cluster, page) : place(cluster, page, node.name) }, parts) : svg("g", {}, parts);
}
