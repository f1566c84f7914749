// One topic: its records, partitions, configs, groups; and what can be done to it.
import { h, replace, card, badge, place, plain, field } from "../dom.js";
import { atLeast, change, get } from "../api.js";
import { bytes, byteRate, rate, short, whole } from "../format.js";
import { table, nothing } from "../table.js";
import { ask, askTyped } from "../dialog.js";
import { isFavourite, toggleFavourite } from "../favourites.js";
import { configTable } from "../configs.js";
import { t } from "../words.js";
import { showMessages } from "./messages.js";
import { showPartitions } from "./partitions.js";

const TABS = [["messages", "Messages"], ["partitions", "Partitions"], ["configs", "Configs"], ["groups", "Groups"]];

export async function showTopic(view) {
  const [name, tab = "messages"] = view.parts;
  const topic = await get(view.path("topics", name), {}, view.signal);
  const records = topic.partitions.reduce((sum, each) => sum + ((each.end_offset ?? 0) - (each.start_offset ?? 0)), 0);
  const star = h("button", {
    class: "icon", type: "button", "aria-label": t("Favorite"), "aria-pressed": String(isFavourite(view.cluster, name)),
    onclick: () => {
      toggleFavourite(view.cluster, name);
      star.setAttribute("aria-pressed", String(isFavourite(view.cluster, name)));
      star.textContent = isFavourite(view.cluster, name) ? "★" : "☆";
    },
  }, isFavourite(view.cluster, name) ? "★" : "☆");
  const body = h("div", { class: "stack" });
  view.root.append(
    h("div", { class: "head" },
      h("div", { class: "grow" },
        h("span", { class: "crumb" }, h("a", { href: place(view.cluster, "topics") }, t("Topics"))),
        h("h1", {}, plain(name), " ", star),
        h("p", { class: "muted small" }, [
          t("{n} partitions", { n: topic.partitions.length }), t("about {n} messages", { n: short(records) }),
          bytes(topic.partitions.reduce((sum, each) => sum + (each.size_bytes ?? 0), 0)), rate(topic.records_per_second), byteRate(topic.bytes_per_second),
        ].filter((each) => each !== "–").join(" · "))),
      actions(view, topic)),
    h("div", { class: "tabs", role: "navigation" }, TABS.map(([id, label]) =>
      h("a", { href: place(view.cluster, "topics", name, id), "aria-current": id === tab ? "page" : null }, t(label)))),
    body);
  if (tab === "partitions") return showPartitions(view, topic, body);
  if (tab === "configs") return showConfigs(view, topic, body);
  if (tab === "groups") return showGroups(view, topic, body);
  return showMessages(view, topic, body);
}

function actions(view, topic) {
  const again = () => window.dispatchEvent(new HashChangeEvent("hashchange"));
  const path = view.path("topics", topic.name);
  if (topic.internal) return null;
  return h("div", { class: "row" },
    atLeast(topic.role, "operator") ? h("button", { type: "button", onclick: () => clone(view, topic) }, t("Clone")) : null,
    atLeast(topic.role, "operator") ? h("button", {
      type: "button", onclick: async () => {
        const total = h("input", { type: "number", min: topic.partitions.length + 1, value: topic.partitions.length + 1 });
        const done = await ask({
          title: t("Add partitions"), action: t("Add"),
          content: [h("p", {}, t("Adding partitions changes which partition a key maps to. Partitions cannot be removed later.")), field(t("Total partitions"), total)],
          act: () => change("POST", `${path}/partitions`, { partitions: Number(total.value) }).then(() => null),
        });
        if (done) again();
      },
    }, t("Add partitions")) : null,
    atLeast(topic.role, "admin") ? [
      h("button", { type: "button", onclick: () => deleteRecords(path, topic).then((done) => done && again()) }, t("Delete messages")),
      h("button", {
        type: "button", class: "danger", onclick: async () => {
          const done = await askTyped({
            title: t("Delete topic"), text: t("The topic and all its messages will be permanently deleted."), name: topic.name, action: t("Delete"),
            act: () => change("DELETE", path, { name: topic.name }).then(() => null),
          });
          if (done) location.hash = place(view.cluster, "topics");
        },
      }, t("Delete"))] : null);
}

/** Another topic like this one: its partitions, replicas and configs, without its records. */
async function clone(view, topic) {
  const name = h("input", { class: "wide mono", autocomplete: "off", spellcheck: "false", value: `${topic.name}-copy` });
  const done = await ask({
    title: t("Clone topic"), action: t("Create"),
    content: [h("p", { class: "muted" }, t("Creates an empty topic with the same partitions, replicas and configs.")), field(t("Name"), name)],
    ready: () => name.value.trim() !== "",
    act: async () => {
      const configs = await get(view.path("topics", topic.name, "configs"));
      await change("POST", view.path("topics"), {
        name: name.value.trim(), partitions: topic.partitions.length, replication_factor: topic.partitions[0]?.replicas.length ?? -1,
        configs: Object.fromEntries(configs.filter((each) => each.is_own && each.value !== null).map((each) => [each.name, each.value])),
      });
      return null;
    },
  });
  if (done) location.hash = place(view.cluster, "topics", name.value.trim());
}

function deleteRecords(path, topic) {
  const partition = h("select", {}, h("option", { value: "" }, t("all partitions")), topic.partitions.map((each) => h("option", { value: each.partition }, each.partition)));
  const before = h("input", { type: "number", min: 0, placeholder: t("latest offset") });
  const typed = h("input", { class: "wide mono", autocomplete: "off", spellcheck: "false" });
  return ask({
    title: t("Delete messages"), action: t("Delete"), danger: true,
    content: [h("p", {}, t("Messages before this offset will be permanently deleted. Leave the offset empty to delete all messages.")),
      h("div", { class: "row" }, field(t("Partition"), partition), field(t("Before offset"), before)),
      field(t("Type the name to confirm"), typed, plain(topic.name))],
    ready: () => typed.value === topic.name,
    act: async () => {
      const chosen = partition.value === "" ? topic.partitions.map((each) => each.partition) : [partition.value];
      const offset = before.value === "" ? -1 : Number(before.value);
      const starts = await change("POST", `${path}/delete-records`, { before: Object.fromEntries(chosen.map((each) => [String(each), offset])) });
      return t("New start offsets: {list}", { list: Object.entries(starts).map(([each, start]) => `${each}: ${start}`).join(", ") });
    },
  });
}

async function showConfigs(view, topic, body) {
  const path = `${view.path("topics", topic.name)}/configs`;
  body.append(await configTable(path, atLeast(topic.role, "operator"), view.signal));
}

function showGroups(view, topic, body) {
  const rows = h("div", {});
  body.append(card(null, rows));
  view.onLook(async () => {
    const now = await get(view.path("topics", topic.name), {}, view.signal);
    replace(rows, table([
      { name: "Group", class: "name", cell: (row) => h("a", { href: place(view.cluster, "groups", row.group) }, plain(row.group)) },
      { name: "State", cell: (row) => badge(t(row.state), row.state === "Stable" ? "good" : "") },
      { name: "Lag", number: true, cell: (row) => whole(row.lag) },
    ], now.groups, { none: nothing(t("No group has committed offsets for this topic")) }));
  });
}
