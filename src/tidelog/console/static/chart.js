// Lines over time, as pictures of our own: an axis, a cursor that tells the figures, gaps where nobody looked.
import { h, svg, replace } from "./dom.js";
import { session } from "./api.js";
import { clock, short } from "./format.js";
import { t } from "./words.js";

const GAP_S = 720;
const SHORTEST_S = 300;
const HEIGHT = 170;
const EDGE = { left: 52, right: 10, top: 8, bottom: 20 };

/**
 * `series` are {name, points: [[second, value]…]}; a point holds until the next one. `minutes` is the width; where points are further apart than `gap`
 * seconds nobody looked.
 */
export function lineChart(series, { minutes, format = short, label, gap = GAP_S }) {
  const figure = h("figure", { class: "chart", role: "img", "aria-label": label });
  const shown = series.filter((each) => each.points.some(([, value]) => value !== null));
  if (!shown.length) {
    return h("div", { class: "empty" }, session.history_fails ? t("No data: the console cannot access its history.") : t("No data yet. Data appears while the console runs."));
  }
  const draw = () => replace(figure, picture(shown, Math.max(figure.clientWidth, 320), minutes, format, figure, gap));
  const watcher = new ResizeObserver(() => (figure.isConnected ? draw() : watcher.disconnect()));
  watcher.observe(figure);
  const legend = shown.length > 1 ? h("div", { class: "legend" }, shown.map((each, index) =>
    h("span", {}, svg("svg", {}, svg("rect", { class: `series-${1 + (index % 5)}`, y: 3, width: 14, height: 3 })), each.name))) : null;
  return h("div", {}, figure, legend);
}

function picture(series, width, minutes, format, figure, gap) {
  const end = Date.now() / 1000;
  // A console that has not run for long shows what it has, not an empty hour.
  const first = Math.min(...series.flatMap((each) => each.points.map(([second]) => second)));
  const begin = Math.max(end - minutes * 60, Math.min(first, end - SHORTEST_S));
  const inner = { width: width - EDGE.left - EDGE.right, height: HEIGHT - EDGE.top - EDGE.bottom };
  const most = Math.max(...series.flatMap((each) => each.points.map(([, value]) => value ?? 0)), 0);
  const top = niceTop(most);
  const x = (second) => EDGE.left + ((Math.max(second, begin) - begin) / (end - begin)) * inner.width;
  const y = (value) => EDGE.top + inner.height * (1 - value / top);
  const drawn = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, height: HEIGHT });
  for (const share of most ? [0, 0.5, 1] : [0]) {
    const line = y(top * share);
    drawn.append(svg("line", { class: "axis", x1: EDGE.left, x2: width - EDGE.right, y1: line, y2: line }),
      svg("text", { class: "label", x: EDGE.left - 6, y: line + 4, "text-anchor": "end" }, format(top * share)));
  }
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    const second = begin + (end - begin) * share;
    const anchor = share === 0 ? "start" : share === 1 ? "end" : "middle";
    drawn.append(svg("text", { class: "label", x: x(second), y: HEIGHT - 4, "text-anchor": anchor }, clock(second * 1000).slice(0, 5)));
  }
  series.forEach((each, index) => {
    for (const run of runs(each.points, end, gap)) {
      const path = run.map(([second, value], at) => `${at ? "L" : "M"}${x(second).toFixed(1)} ${y(value).toFixed(1)}`).join("");
      const color = `series-${1 + (index % 5)}`;
      const area = `${path}L${x(run.at(-1)[0]).toFixed(1)} ${y(0)}L${x(run[0][0]).toFixed(1)} ${y(0)}Z`;
      if (series.length === 1) drawn.append(svg("path", { class: `area ${color}`, d: area }));
      drawn.append(svg("path", { class: `line ${color}`, d: path, fill: "none" }));
    }
  });
  cursor(drawn, figure, series, { begin, end, width, inner, x, format });
  return drawn;
}

/** Pieces without gaps; within one, a figure holds until the next. */
function runs(points, end, gap) {
  const found = [];
  let run = [];
  for (const [second, value] of points) {
    if (value === null) continue;
    const last = run.at(-1);
    if (last && second - last[0] > gap) { found.push(run); run = []; }
    run.push([second, value]);
  }
  if (run.length) {
    if (end - run.at(-1)[0] <= gap) run.push([end, run.at(-1)[1]]);
    found.push(run);
  }
  return found.map((each) => (each.length === 1 ? [each[0], [each[0][0] + 1, each[0][1]]] : each));
}

function cursor(drawn, figure, series, { begin, end, width, inner, x, format }) {
  const line = svg("line", { class: "cursor", y1: EDGE.top, y2: EDGE.top + inner.height, visibility: "hidden" });
  const tip = h("div", { class: "tip", hidden: true });
  drawn.append(line);
  drawn.addEventListener("pointermove", (event) => {
    const box = drawn.getBoundingClientRect();
    const share = ((event.clientX - box.left) / box.width * width - EDGE.left) / inner.width;
    const second = begin + Math.min(Math.max(share, 0), 1) * (end - begin);
    line.setAttribute("x1", x(second));
    line.setAttribute("x2", x(second));
    line.setAttribute("visibility", "visible");
    const told = series.map((each) => {
      const before = each.points.filter(([at, value]) => at <= second && value !== null).at(-1);
      return before ? h("div", {}, series.length > 1 ? `${each.name}: ` : "", format(before[1])) : null;
    });
    replace(tip, h("div", { class: "muted" }, clock(second * 1000)), told);
    tip.hidden = false;
    figure.append(tip);
    tip.style.left = `${Math.min(Math.max(x(second) / width * box.width + 10, 0), box.width - tip.offsetWidth - 4)}px`;
  });
  drawn.addEventListener("pointerleave", () => { line.setAttribute("visibility", "hidden"); tip.hidden = true; });
}

function niceTop(most) {
  if (most <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= most);
}
