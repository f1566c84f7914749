// Topics: a list with search, favourites and an order; one topic in tabs.
import { h, replace, card, badge, place, plain, field } from "../dom.js";
import { at, change, get, session } from "../api.js";
import { bytes, rate, short, whole } from "../format.js";
import { pager, table, nothing } from "../table.js";
import { ask } from "../dialog.js";
import { isFavourite, favourites, toggleFavourite } from "../favourites.js";
import { t } from "../words.js";
import { showTopic } from "./topic.js";

const SIZE = 100;

export async function show(view) {
  if (view.parts.length) return showTopic(view);
  const state = { search: "", internal: false, favourites: false, sort: "name", descending: false, start: 0 };
  const body = h("div", {});
  const count = h("p", { class: "muted small", "aria-live": "polite" });
  const search = h("input", {
    type: "search", placeholder: t("Search topics ( / )"), "aria-label": t("Search topics"),
    oninput: (event) => { state.search = event.target.value; state.start = 0; load(); },
  });
  const tick = (name, text) => h("label", { class: "tick" }, h("input", {
    type: "checkbox", onchange: (event) => { state[name] = event.target.checked; state.start = 0; load(); },
  }), text);
  view.root.append(
    h("div", { class: "head" }, h("div", { class: "grow" }, h("h1", {}, t("Topics")), count),
      !session.read_only
        ? h("button", { class: "main-action", type: "button", onclick: () => create(view) }, t("Create topic")) : null),
    card(null, [h("header", {}, search, h("span", { class: "grow" }), tick("favourites", t("Favorites")), tick("internal", t("Internal"))), body]));
  let asked = 0;
  async function load() {
    const number = ++asked;
    const names = state.favourites ? favourites(view.cluster) : [];
    const query = { ...state, favourites: "", limit: SIZE, names: names.join(",") };
    const page = state.favourites && !names.length ? { total: 0, matched: 0, topics: [] } : await get(view.path("topics"), query, view.signal);
    if (number !== asked) return;
    count.textContent = page.matched === page.total ? t("{n} topics", { n: whole(page.total) })
      : t("{n} of {total} topics", { n: whole(page.matched), total: whole(page.total) });
    replace(body, rowsOf(view.cluster, page.topics, state, load), pager(state.start, SIZE, page.matched, (start) => { state.start = start; load(); }));
  }
  view.onLook(load);
}

function rowsOf(cluster, topics, state, load) {
  const star = (row) => {
    const on = isFavourite(cluster, row.name);
    return h("button", {
      class: "icon", type: "button", "aria-pressed": String(on), "aria-label": t("Favorite"),
      onclick: () => { toggleFavourite(cluster, row.name); load(); },
    }, on ? "★" : "☆");
  };
  const health = (row) => (row.offline ? badge(t("{n} offline", { n: row.offline }), "bad")
    : row.under_replicated ? badge(t("{n} not in sync", { n: row.under_replicated }), "warning") : badge(t("healthy"), "good"));
  return table([
    { name: "", cell: star },
    { name: "Name", sort: "name", class: "name", cell: (row) => [h("a", { href: place(cluster, "topics", row.name) }, plain(row.name)), row.internal ? [" ", badge(t("internal"))] : null] },
    { name: "Partitions", sort: "partitions", number: true, cell: (row) => whole(row.partitions) },
    { name: "Replicas", number: true, cell: (row) => whole(row.replication_factor) },
    { name: "Written", sort: "rate", number: true, cell: (row) => rate(row.records_per_second) },
    { name: "Size", sort: "size", number: true, cell: (row) => bytes(row.size_bytes) },
    { name: "Groups", number: true, cell: (row) => whole(row.groups) },
    { name: "Lag", sort: "lag", number: true, cell: (row) => short(row.lag) },
    { name: "Health", sort: "problems", cell: health },
  ], topics, {
    label: t("Topics"),
    order: { ...state, onSort: (sort, descending) => { Object.assign(state, { sort, descending, start: 0 }); load(); } },
    none: state.search || state.favourites ? nothing(t("No topics match"), t("Search by part of a name, or mark favorites with a star."))
      : nothing(t("No topics yet"), t("Create a topic here, or produce to one with any Kafka client.")),
  });
}

async function create(view) {
  const name = h("input", { class: "wide mono", autocomplete: "off", spellcheck: "false" });
  const partitions = h("input", { type: "number", min: 1, value: 3 });
  const replicas = h("input", { type: "number", min: 1, placeholder: t("default") });
  const configs = h("textarea", { placeholder: "retention.ms=86400000\ncleanup.policy=compact", spellcheck: "false" });
  const done = await ask({
    title: t("Create topic"), action: t("Create"),
    content: [field(t("Name"), name), h("div", { class: "row" }, field(t("Partitions"), partitions), field(t("Replicas"), replicas)),
      field(t("Configs (one per line)"), configs)],
    ready: () => name.value.trim() !== "",
    act: () => change("POST", at(view.cluster, "topics"), {
      name: name.value.trim(), partitions: Number(partitions.value) || -1, replication_factor: Number(replicas.value) || -1,
      configs: Object.fromEntries(configs.value.split("\n").filter((line) => line.includes("=")).map((line) => {
        const [key, ...value] = line.split("=");
        return [key.trim(), value.join("=").trim()];
      })),
    }).then(() => null),
  });
  if (done) location.hash = place(view.cluster, "topics", name.value.trim());
}
